"""A tool that asks to be strict is declared with the strict form of its schema, or says that it has none."""

from __future__ import annotations

from importlib import import_module

import msgspec
from tests.tables import table

from callboard.core import Request, ToolDeclaration, UserCanister

OPTIONAL = {"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}, "additionalProperties": False}
STRICT = {
    "type": "object",
    "required": ["x"],
    "additionalProperties": False,
    "properties": {"x": {"type": ["string", "null"], "description": "d"}},
}
OPEN = {"type": "object", "properties": {"x": {"type": "object", "properties": {}, "additionalProperties": True}}}
CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def nullable(name):
    return {
        "type": "object",
        "properties": {name: {"type": ["string", "null"]}},
        "required": [name],
        "additionalProperties": False,
    }


def optional(name):
    return {
        "type": "object",
        "properties": {name: {"type": "string"}},
        "required": [],
        "additionalProperties": False,
    }


FORMS = {"chat": nullable, "responses": nullable, "messages": optional}


def declared(wire, *tools):
    """The schema and `strict` of each tool as they are sent, and what was dropped."""
    lowered = import_module("callboard.wires." + wire).encode_request(Request("m", (UserCanister("u"),), tools))
    sent = [tool.get("function", tool) for tool in lowered.body["tools"]]
    return [(tool.get("parameters", tool.get("input_schema")), tool.get("strict")) for tool in sent], lowered.dropped


@table("wire", FORMS)
def test_a_strict_form_is_made(wire):
    sent, dropped = declared(wire, ToolDeclaration("f", "", OPTIONAL, strict=True), ToolDeclaration("g", strict=True))
    assert sent == [(FORMS[wire]("x"), True), (CLOSED, True)]
    assert dropped == ("minLength in the strict parameters of f",)


@table("wire", FORMS)
def test_a_strict_schema_goes_as_it_came(wire):
    ((schema, strict),), dropped = declared(wire, ToolDeclaration("f", "", STRICT, strict=True))
    assert (msgspec.json.encode(schema), strict, dropped) == (msgspec.json.encode(STRICT), True, ())


@table("wire", FORMS)
def test_a_tool_that_cannot_be_strict_is_not_and_the_others_are(wire):
    tools = [ToolDeclaration(name, "", schema, strict=True) for name, schema in [("f", OPEN), ("g", STRICT)]]
    assert declared(wire, *tools) == ([(OPEN, False), (STRICT, True)], ("strict of the tool f",))


@table("wire", FORMS)
@table("strict", [None, False])
def test_nothing_is_made_unasked(wire, strict):
    assert declared(wire, ToolDeclaration("f", "", OPTIONAL, strict=strict)) == ([(OPTIONAL, strict)], ())


@table("wire", [*FORMS, "gemini"])
def test_it_is_told_where_a_null_may_stand_for_nothing(wire):
    tools = [ToolDeclaration(name, "", schema, strict=strict) for name, schema, strict in TOLD]
    request = Request("m", (UserCanister("u"),), (*tools, ToolDeclaration("c", kind="custom", strict=True)))
    lowered = import_module("callboard.wires." + wire).encode_request(request)
    assert lowered.nullable == ({"made.1": OPTIONAL} if FORMS.get(wire) is nullable else {})


TOLD = [("made.1", OPTIONAL, True), ("unasked", OPTIONAL, None), ("strict", STRICT, True), ("open", OPEN, True)]


@table("wire", FORMS)
@table("odd", [{"x": object()}, {"x": "\ud800"}, {"x": "x" * 10_000}], ids=["no JSON", "no text", "long"])
def test_a_schema_that_is_not_kept_is_made_strict_too(wire, odd):
    tools = [ToolDeclaration("f", "", {**OPTIONAL, "examples": odd}, strict=True)]
    told = ("minLength in the strict parameters of f",)
    assert declared(wire, *tools) == ([(FORMS[wire]("x"), True)], told)


@table("wire", FORMS)
def test_a_request_is_not_changed(wire):
    tool = ToolDeclaration("f", "", OPTIONAL, strict=True)
    before = msgspec.json.encode(tool)
    declared(wire, tool)
    assert msgspec.json.encode(tool) == before
