"""The parts of calls in tags: a tag for each argument, and its value as raw text.

Nothing is escaped in such a value, so its text must not have what would end it: its own closing tag, the opening of
another argument, the end of the call where something follows that may. What a model could not write otherwise (a
closing tag in a value) it cannot write in such a dialect at all.

The length of raw text is not held, but that it may not be empty (`minLength`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.literal_rules import json_without
from callboard.dialects.constraints.parts import COUNTER, Arguments, Name, Part, Parts
from callboard.dialects.constraints.rules import GrammarRules, literal, sequence
from callboard.dialects.constraints.schema_rules import SchemaRules
from callboard.dialects.constraints.text_rules import BLANK, Word, pattern_of, text_without, word_of
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.grammars.json_arguments import to_json
from callboard.dialects.grammars.nested import NestedTags
from callboard.dialects.grammars.typed_values import types_at
from callboard.dialects.grammars.xml_tags import VALUE_KINDS, XmlTags
from callboard.schema.subschemas import Schema

_KEY = re.compile(r"(?!\s)[^<>\"'\n|｜]{1,256}(?<!\s)")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_LOOSE: Mapping[str, Word] = {
    "<": ("<", BLANK),
    "=": (BLANK, "=", BLANK),
    ">": (BLANK, ">"),
    " ": (BLANK,),
    "\n": (BLANK,),
}
_MAX_VARIANTS = 64


def xml_parts(grammar: XmlTags, tool: ToolDeclaration) -> Parts:
    """The parts of a call in `XmlTags`."""
    return (
        *_head(grammar, tool),
        grammar.after_head,
        Arguments(tool, lambda rules, schema: _XmlArguments(grammar, schema, rules).write()),
        grammar.ends[0] if grammar.ends else "",
    )


def nested_parts(grammar: NestedTags, tool: ToolDeclaration) -> Parts:
    """The parts of a call in `NestedTags`."""

    def write(rules: GrammarRules, schema: Schema) -> str:
        return _NestedArguments(grammar, schema, rules).write()

    before = grammar.before
    opening, ending = f'{before}<{grammar.call} name="', f"{before}</{grammar.call}>"
    return opening, Name(tool.name), '">', Arguments(tool, write), ending


def _head(grammar: XmlTags, tool: ToolDeclaration) -> Iterator[Part]:
    name = grammar.escape(tool.name)
    template = grammar.calls[0].format(name="\0name\0", attribute="\0name\0", index="\0index\0", _="")
    fields: Mapping[str, Part] = {"name": Name(name), "index": COUNTER}
    for place, piece in enumerate(template.split("\0")):
        yield fields[piece] if place % 2 else piece


class _RawArguments:
    """Writes arguments whose strings are raw text, and whose other values are JSON.

    Args:
        rules: Take the rules.
        schema: Describes them.
        words: What no value has in it.
    """

    def __init__(self, rules: GrammarRules, schema: Schema, words: list[Word]) -> None:
        self._rules = rules
        self._words = words
        self._pattern = pattern_of(words)
        self._schema = SchemaRules(rules, schema, json_without(words))

    def write(self) -> str:
        """All arguments."""
        return self._schema.members(self._schema.combine(self._schema.root), self._argument, comma=())

    def _argument(self, key: str, schema: Any) -> str:
        raise NotImplementedError

    def _check_key(self, key: str) -> None:
        if _KEY.fullmatch(key) is None:
            raise NotSpellable(f"the argument {key!r} has no spelling")

    def types(self, schema: Any) -> frozenset[str]:
        return types_at(schema, self._schema.root)

    def raw(self, schema: Any) -> str:
        """A value that is raw text where it may be a string, and else JSON."""
        types = self.types(schema)
        if "string" not in types:
            return self._schema.value(schema)
        ways: list[str] = []
        variants = self._variants(schema) or [{}]  # where they only refer to each other, there are none
        for variant in variants:
            values = [variant["const"]] if "const" in variant else variant.get("enum")
            if isinstance(values, (list, tuple)):
                ways += [self._write_fixed(value) for value in values if self._is_spellable(value, types)]
            elif self.types(variant) & {"string"}:
                ways.append(self._text(variant))
        if not ways:
            raise NotSpellable("none of the values that it may have has a spelling")
        return ways[0] if len(ways) == 1 else self._rules.add("raw", " | ".join(dict.fromkeys(ways)))

    def _variants(self, schema: Any) -> list[dict[str, Any]]:
        """The schemas of which a value has to fit one; of very many the first."""
        variants: list[dict[str, Any]] = []
        waiting = [schema]
        for _ in range(_MAX_VARIANTS):
            if not waiting:
                break
            each = waiting.pop(0)
            combined = self._schema.combine(each) if isinstance(each, Mapping) else {}
            nested = combined.get("anyOf") or combined.get("oneOf")
            if isinstance(nested, (list, tuple)):
                waiting += nested
            else:
                variants.append(combined)
        return variants

    def _is_spellable(self, value: Any, types: frozenset[str]) -> bool:
        """Whether it would be read as what it is: all that may be a string is one."""
        if not isinstance(value, str):
            return value is None and "null" in types
        return not self._pattern.search(value) and not ("null" in types and value == "null")

    def _write_fixed(self, value: Any) -> str:
        return literal(value if isinstance(value, str) else to_json(value))

    def _text(self, schema: Mapping[str, Any]) -> str:
        least = schema.get("minLength")
        if isinstance(least, int) and least > 0:
            return self._rules.find("some-text", lambda: text_without(self._rules, self._words, is_empty=False))
        return self._rules.find("any-text", lambda: text_without(self._rules, self._words))


class _XmlArguments(_RawArguments):
    def __init__(self, grammar: XmlTags, schema: Schema, rules: GrammarRules) -> None:
        super().__init__(rules, schema, list(_words_of(grammar)))
        self._grammar = grammar

    def _argument(self, key: str, schema: Any) -> str:
        self._check_key(key)
        grammar = self._grammar
        types = self.types(schema)
        newline = "\n" if grammar.newlines else ""
        kinds = ["string"] if "string" in types else [VALUE_KINDS.get(each, "object") for each in types]
        ways = [
            grammar.arguments[0].format(
                key=grammar.escape(key), string="true" if kind == "string" else "false", type=kind, _=""
            )
            for kind in sorted(set(kinds))
        ]
        opening = literal(f"{ways[0]}{newline}")
        if len(ways) > 1:
            opening = f"({' | '.join([literal(way + newline) for way in dict.fromkeys(ways)])})"
        ending = literal(f"{newline}{grammar.argument_end.format(key=key, _='')}{grammar.between}")
        return sequence([opening, self.raw(schema), ending])

    def _text(self, schema: Mapping[str, Any]) -> str:
        if not self._grammar.cdata:
            return super()._text(schema)
        inside = text_without(self._rules, [word_of(_CDATA_END)])
        return self._rules.find("cdata", lambda: f"[^<]* | {literal(_CDATA)} {inside} {literal(_CDATA_END)}")

    def _write_fixed(self, value: Any) -> str:
        if self._grammar.cdata and isinstance(value, str) and "<" in value:
            return literal(f"{_CDATA}{value}{_CDATA_END}")
        return super()._write_fixed(value)


class _NestedArguments(_RawArguments):
    def __init__(self, grammar: NestedTags, schema: Schema, rules: GrammarRules) -> None:
        super().__init__(rules, schema, [word_of(grammar.before)])
        self._before = grammar.before

    def _argument(self, key: str, schema: Any) -> str:
        self._check_key(key)
        before = self._before
        return sequence([literal(f"{before}<{key}>"), self.raw(schema), literal(f"{before}</{key}>")])


def _words_of(grammar: XmlTags) -> Iterator[Word]:
    """What would end a raw value."""
    yield word_of(grammar.argument_end)
    if grammar.lasting:
        yield from (word_of(each) for each in (*grammar.ends, *grammar.around))
        return
    yield from (_loosen(each) for each in grammar.arguments)
    after = [word for each in (*grammar.around, *grammar.calls) if (word := _loosen(each))]
    for ending in (*grammar.ends, *grammar.around):
        yield from ((*word_of(ending), BLANK, *word) for word in after)


def _loosen(template: str) -> Word:
    """What a template begins with, and may be written with more white space."""
    word: Word = ()
    for char in template.partition("{")[0].rstrip('"'):
        word += _LOOSE.get(char, (char,))
    while word and word[-1] == BLANK:
        word = word[:-1]
    return word
