"""How values are written: as JSON, as Python has it, or with a dialect's own quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from callboard.dialects.call_builder import quote_json
from callboard.dialects.constraints.rules import NOTHING, SPACE, GrammarRules, literal
from callboard.dialects.constraints.text_rules import text_without, word_of
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.grammars.json_arguments import to_json
from callboard.dialects.grammars.python_literals import LiteralSyntax

_HEX = "[0-9a-fA-F]"
_UNICODE = f'"u" ([0-9a-cA-CefEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}})'
"""Four digits of a character that is no half of a pair: a half alone is no text."""
_JSON_CHAR = f'[^"\\\\\\x00-\\x1F\\x7F] | "\\\\" (["\\\\/bfnrt] | {_UNICODE})'
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
    char: str = ""
    """One character of a string; "" where a string cannot be counted."""
    quotes_keys: bool = True
    """Whether keys stand in double quotes, so that any may be written."""
    colon: str = ":"
    blank: bool = True
    """Whether there may be white space."""

    def space(self, rules: GrammarRules) -> str:
        return rules.find("space", lambda: SPACE) if self.blank else NOTHING

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


def _json_string(rules: GrammarRules) -> str:
    char = rules.find("char", lambda: _JSON_CHAR)
    return rules.find("string", lambda: f'"\\"" {char}* "\\""')


def _python_string(rules: GrammarRules) -> str:
    char = rules.find("python-char", lambda: _PYTHON_CHAR)
    return rules.find("python-string", lambda: f'"\\"" {char}* "\\""')


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
    char="char",
)
PYTHON_VALUES = ValueSyntax(
    "python",
    {True: "True", False: "False", None: "None"},
    _python_quote,
    _python_quote,
    _python_string,
    char="python-char",
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
        quotes_keys=False,
        blank=False,
    )
