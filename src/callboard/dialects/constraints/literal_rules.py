"""How values are written: as JSON, as Python has it, or with a dialect's own quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from callboard.dialects.call_builder import quote_json
from callboard.dialects.constraints.rules import NOTHING, SPACE, GrammarRules, characters, literal
from callboard.dialects.constraints.text_rules import Word, pattern_of, text_without, word_of
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.grammars.json_arguments import to_json
from callboard.dialects.grammars.python_literals import LiteralSyntax

_HEX = "[0-9a-fA-F]"
_UNICODE = f'"u" ([0-9a-cA-CefEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}})'
"""Four digits of a character that is no half of a pair: a half alone is no text."""
_JSON_ESCAPE = f'"\\\\" (["\\\\/bfnrt] | {_UNICODE})'
_PYTHON_CHAR = '[^"\\\\\\x00-\\x1F\\x7F] | "\\\\" ["\\\\nt\']'
_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,15})'
_NUMBER = f'{_INTEGER} ("." [0-9]{{1,15}})? ([eE] [-+]? [0-9] [0-9]?)?'
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_BARE_KEY = re.compile(r"[^\W\d][\w -]*")


class ValueSyntax(msgspec.Struct, frozen=True, eq=False):
    """How a value is written; `string` makes the rule of a string of any characters."""

    name: str
    words: Mapping[Any, str]
    """How true, false and null are written."""
    spell_string: Callable[[str], str]
    spell_key: Callable[[str], str]
    """A member's key in an object. Raises NotSpellable."""
    string: Callable[[GrammarRules], str]
    char: Callable[[GrammarRules], str]
    """The rule of one character of a string that is counted."""
    quote: str = '"'
    """What stands around a string."""
    quotes_keys: bool = True
    """Whether keys stand in double quotes, so that any may be written."""
    avoids: str = ""
    """Characters that no key has that nobody declared."""
    colon: str = ":"
    blank: bool = True
    """Whether there may be white space."""

    def space(self, rules: GrammarRules) -> str:
        return rules.find("space", lambda: SPACE) if self.blank else NOTHING

    def spellings(self, value: Any) -> list[str]:
        """The texts of a value; a string of Python may stand in either quotes. Raises NotSpellable."""
        text = self.spell(value)
        if self.words[True] == "True" and isinstance(value, str) and not {"'", "\\"}.intersection(text):
            return [text, f"'{text[1:-1]}'"]
        return [text]

    def spell(self, value: Any) -> str:
        """The text of a value. Raises NotSpellable."""
        if isinstance(value, str):
            return self.spell_string(value)
        if value is None or isinstance(value, bool):
            return self.words[value]
        if isinstance(value, Mapping):
            return f"{{{','.join([f'{self.spell_key(key)}{self.colon}{self.spell(each)}' for key, each in value.items()])}}}"
        if isinstance(value, (list, tuple)):
            return f"[{','.join([self.spell(each) for each in value])}]"
        return to_json(value)


def integer(rules: GrammarRules) -> str:
    return rules.find("integer", lambda: _INTEGER)


def number(rules: GrammarRules) -> str:
    return rules.find("number", lambda: _NUMBER)


def _json_char(rules: GrammarRules) -> str:
    return rules.find("json-char", lambda: f"{json_character()} | {_JSON_ESCAPE}")


def _json_string(rules: GrammarRules) -> str:
    return rules.find("json-string", lambda: f'"\\"" {_json_char(rules)}* "\\""')


def _python_char(rules: GrammarRules) -> str:
    return rules.find("python-char", lambda: _PYTHON_CHAR)


def _python_string(rules: GrammarRules) -> str:
    single = _PYTHON_CHAR.replace('[^"', "[^'", 1)
    return rules.find(
        "python-string",
        lambda: f'"\\"" {_python_char(rules)}* "\\"" | "\'" {rules.find("python-single", lambda: single)}* "\'"',
    )


def _python_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    if not escaped.isprintable():
        raise NotSpellable(f"the string {text!r} has no plain spelling")
    return f'"{escaped}"'


def _bare_key(key: str) -> str:
    if _BARE_KEY.fullmatch(key) is None:
        raise NotSpellable(f"the argument {key!r} has no spelling")
    return key


def identifier_key(key: str) -> str:
    """The name of a keyword argument. Raises NotSpellable."""
    if _IDENTIFIER.fullmatch(key) is None:
        raise NotSpellable(f"the argument {key!r} has no spelling")
    return key


JSON_VALUES = ValueSyntax(
    "json",
    {True: "true", False: "false", None: "null"},
    quote_json,
    quote_json,
    _json_string,
    _json_char,
)
PYTHON_VALUES = ValueSyntax(
    "python",
    {True: "True", False: "False", None: "None"},
    _python_quote,
    _python_quote,
    _python_string,
    _python_char,
)


def values_of(literals: LiteralSyntax) -> ValueSyntax:
    """How a dialect with these literals writes values."""
    if not literals.bare:
        return PYTHON_VALUES
    quote = literals.quotes[0]

    def spell(text: str) -> str:
        if quote in text:
            raise NotSpellable(f"the string {text!r} has no spelling")
        return f"{quote}{text}{quote}"

    def string(rules: GrammarRules) -> str:
        mark = literal(quote)
        return rules.find("quoted", lambda: f"{mark} {text_without(rules, [word_of(quote)])} {mark}")

    return ValueSyntax(
        "bare",
        JSON_VALUES.words,
        spell,
        _bare_key,
        string,
        lambda rules: rules.find("bare-char", lambda: characters(quote[0], other=True)),
        quote=quote,
        quotes_keys=False,
        blank=False,
    )


def json_without(words: Sequence[Word]) -> ValueSyntax:
    """JSON in whose text none of the words stands, because a reader that knows no JSON looks for them."""
    pattern = pattern_of(words)
    plain = [word for word in words if not _NEVER_PLAIN.intersection(word)]

    def spell(text: str) -> str:
        quoted = quote_json(text)
        if pattern.search(quoted):
            raise NotSpellable(f"the string {text!r} has no spelling")
        return quoted

    def string(rules: GrammarRules) -> str:
        escape = rules.find("escape", lambda: _JSON_ESCAPE)
        return rules.find("plain", lambda: f'"\\"" {text_without(rules, plain, quoted=escape)} "\\""')

    def char(rules: GrammarRules) -> str:
        return rules.find(
            "plain-char", lambda: f"{json_character(first)} | {rules.find('escape', lambda: _JSON_ESCAPE)}"
        )

    first = "".join(sorted({word[0] for word in words}))
    return ValueSyntax("plain", JSON_VALUES.words, spell, spell, string, char, avoids=first)


def json_character(others: str = "") -> str:
    """A character that stands in a JSON string as it is, but for the others."""
    return f'[^"\\\\\\x00-\\x1F\\x7F{characters(others)[1:-1] if others else ""}]'


_NEVER_PLAIN = frozenset({'"', "\n", "\\"})
"""Characters that stand in no JSON string as they are."""
