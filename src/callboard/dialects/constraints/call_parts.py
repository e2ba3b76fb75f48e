"""The parts of a call as a dialect writes it, by the class of its grammar.

A part is text as it stands, white space that may be more or less, the tool's name, its arguments as JSON, or what a
rule writes. From the same parts a grammar for llama.cpp is made and a structural tag for vLLM and SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from callboard.core import ToolDeclaration
from callboard.dialects.call_builder import quote_json
from callboard.dialects.constraints.rules import SPACE, GrammarRules, TooLarge, literal
from callboard.dialects.constraints.schema_rules import SchemaRules
from callboard.dialects.grammar import Grammar, NotSpellable
from callboard.dialects.grammars.harmony import HARMONY_CALL, HarmonyChannels
from callboard.dialects.grammars.json_objects import JsonObjects
from callboard.dialects.grammars.name_then_json import NameThenJson
from callboard.dialects.grammars.react import REACT_CALL, ReactAction


class Blank(msgspec.Struct, frozen=True):
    """White space that means nothing, as the dialect writes it."""

    text: str = ""


class Name(msgspec.Struct, frozen=True):
    """The name of the tool, as it stands in the call."""

    text: str


class Arguments(msgspec.Struct, frozen=True):
    """The arguments as a JSON object."""

    tool: ToolDeclaration


class Expression(msgspec.Struct, frozen=True, eq=False):
    """What an expression says."""

    write: Callable[[GrammarRules], str]
    style: str = ""
    """What xgrammar calls arguments that are written so."""


Part: TypeAlias = str | Blank | Name | Arguments | Expression
Parts: TypeAlias = tuple[Part, ...]
MAX_SIZE = 256_000
"""Characters of the rules of all tools' arguments. What has no room any more is any object."""
COUNTER = Expression(lambda rules: rules.find("counter", lambda: '"0" | [1-9] [0-9]?'))


def parts_of(grammar: Grammar, tool: ToolDeclaration) -> Parts:
    """The parts of a call of the tool. Raises NotSpellable."""
    write = _TABLE.get(type(grammar))
    if write is None:
        raise NotSpellable(f"there are no rules for calls that {type(grammar).__name__} reads")
    return tuple([part for part in write(grammar, tool) if part != ""])


_FIELD = re.compile(r"\{(name|arguments|identifier)\}")
_JSON_TOKEN = re.compile(r'"[^"]*"|[{}\[\],:]|\s+')


def _json_objects(grammar: JsonObjects, tool: ToolDeclaration) -> Parts:
    return (*_fill(grammar.header, tool), *_json_parts(grammar.call, tool))


def _json_parts(template: str, tool: ToolDeclaration) -> Iterator[Part]:
    """The parts of a JSON object with fields; there may be white space between any two of its tokens."""
    for place, piece in enumerate(_FIELD.split(template)):
        if not place % 2:
            yield from _space_out(piece.replace("{{", "{").replace("}}", "}"))
        elif piece == "name":
            yield Name(quote_json(tool.name))
        elif piece == "identifier":
            yield from ('"', COUNTER, '"')
        else:
            yield Arguments(tool)


def _space_out(text: str) -> Iterator[Part]:
    """Text of JSON, with white space in front of and behind its commas and colons, and inside its brackets."""
    for word in _JSON_TOKEN.findall(text):
        if word in "}],:":
            yield Blank()
        if word.strip():
            yield word
        if word in "{[":
            yield Blank()
        if word in ",:":
            yield Blank(" ")


def _name_then_json(grammar: NameThenJson, tool: ToolDeclaration) -> Parts:
    header, tail = grammar.headers[0], grammar.tail.format()
    if grammar.name_from_id:
        before, _, behind = header.format(id="\0", _="").partition("\0")
        return before, "functions.", Name(tool.name), ":", COUNTER, behind, Arguments(tool), tail
    return (*_fill(header, tool), Arguments(tool), tail)


def _harmony(_grammar: HarmonyChannels, tool: ToolDeclaration) -> Parts:
    return _fill(HARMONY_CALL, tool)


def _react(_grammar: ReactAction, tool: ToolDeclaration) -> Parts:
    return _fill(REACT_CALL, tool)


def _fill(template: str, tool: ToolDeclaration) -> Parts:
    """The parts of a template with a name, and perhaps arguments."""
    fields: dict[str, Part] = {"name": Name(tool.name), "arguments": Arguments(tool)}
    pieces = template.format(name="\0name\0", arguments="\0arguments\0", line="\n", _="").split("\0")
    return tuple([fields.get(piece, piece) if place % 2 else piece for place, piece in enumerate(pieces)])


_TABLE: Mapping[type[Grammar], Callable[[Any, ToolDeclaration], Parts]] = {
    JsonObjects: _json_objects,
    NameThenJson: _name_then_json,
    HarmonyChannels: _harmony,
    ReactAction: _react,
}


def expression_of(part: Part, rules: GrammarRules) -> str:
    """What a part says, as an expression."""
    match part:
        case str():
            return literal(part)
        case Blank():
            return rules.find("space", lambda: SPACE)
        case Name():
            return literal(part.text)
        case Arguments():
            return _arguments(part.tool, rules)
        case Expression():
            return part.write(rules)


def _arguments(tool: ToolDeclaration, rules: GrammarRules) -> str:
    """Arguments by the schema, or any where its rules are too many."""
    try:
        with rules.attempt(MAX_SIZE):
            return SchemaRules(rules, tool.schema).arguments()
    except TooLarge:
        return SchemaRules(rules, {}).any_object()
