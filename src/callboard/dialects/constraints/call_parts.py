"""The parts of a call as a dialect writes it, by the class of its grammar.

A part is text as it stands, white space that may be more or less, the tool's name, its arguments as JSON, or what an
expression says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from callboard.core import InvocationCanister, ToolDeclaration
from callboard.dialects.call_builder import quote_json
from callboard.dialects.constraints.code_rules import expression_parts, shell_parts
from callboard.dialects.constraints.parts import COUNTER, Arguments, Blank, Expression, Name, Part, Parts
from callboard.dialects.constraints.rules import SPACE, GrammarRules, TooLarge, literal
from callboard.dialects.constraints.schema_rules import SchemaRules, any_object
from callboard.dialects.constraints.tag_rules import nested_parts, xml_parts
from callboard.dialects.dialect import Dialect
from callboard.dialects.grammar import Grammar, NotSpellable
from callboard.dialects.grammars.code_calls import ShellCommands
from callboard.dialects.grammars.harmony import HARMONY_CALL, HarmonyChannels
from callboard.dialects.grammars.json_objects import JsonObjects
from callboard.dialects.grammars.name_then_json import NameThenJson
from callboard.dialects.grammars.nested import NestedTags
from callboard.dialects.grammars.pythonic import PythonicCalls
from callboard.dialects.grammars.react import REACT_CALL, ReactAction
from callboard.dialects.grammars.typed_values import keys_of, types_of
from callboard.dialects.grammars.xml_tags import XmlTags
from callboard.dialects.render import render_call
from callboard.schema.subschemas import Schema, required_names

_ODD = re.compile(r"[^A-Za-z0-9_-]|^-|^$")
"""What is not in the names that every dialect spells."""
MAX_SIZE = 256_000
"""Characters of the rules of all tools' arguments. What has no room any more is any object."""


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
    XmlTags: xml_parts,
    NestedTags: nested_parts,
    PythonicCalls: expression_parts,
    ShellCommands: shell_parts,
}


def check_tools(dialect: Dialect, tools: Sequence[ToolDeclaration]) -> None:
    """Raises NotSpellable where there are no tools, or where a call of one would be read as something else."""
    if not tools:
        raise NotSpellable("no tool is declared")
    if isinstance(dialect.render_frame.grammars[0], ShellCommands):
        return
    for tool in tools:
        if _ODD.search(tool.name):
            render_call(dialect, InvocationCanister("0", tool.name, {}, "{}"))


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
            return _arguments(part, rules)
        case Expression():
            return part.write(rules)


def _arguments(part: Arguments, rules: GrammarRules) -> str:
    """The arguments by the schema, or by less of it where its rules are too many."""
    write = part.write or _json_arguments
    for schema in (part.tool.schema, _shallow(part.tool.schema)):
        try:
            with rules.attempt(MAX_SIZE):
                return write(rules, schema)
        except TooLarge:
            continue
    return write(rules, _shallow(part.tool.schema, only_required=True)) if part.write else any_object(rules)


def _json_arguments(rules: GrammarRules, schema: Schema) -> str:
    return SchemaRules(rules, schema).arguments()


def _shallow(schema: Schema, *, only_required: bool = False) -> Schema:
    """The schema with no more of each argument than its types."""
    required = required_names(schema)
    keys = required if only_required else keys_of(schema)
    properties = {key: {"type": sorted(types_of(schema, key))} for key in keys}
    return {"type": "object", "properties": properties, "required": required}
