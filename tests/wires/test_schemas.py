"""The schemas of MCP servers that users reported: each provider takes them, and what is lost of them is told.

`tests/vectors/schemas.jsonl` has one row for each: the thread, the schema, arguments that are valid and such that are
not. A schema counts as sent without loss only if it still refuses what the given one refuses.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from callboard.core import Request, ToolDeclaration, UserCanister
from callboard.execution import execute_invoker
from callboard.testing.strict import Rulebook
from callboard.tools import Invoker
from callboard.wires import WIRES

VECTORS = Path(__file__).resolve().parents[1] / "vectors/schemas.jsonl"
ROWS = {row["name"]: row for row in map(json.loads, VECTORS.read_text("utf-8").splitlines())}
COMBINING = {"allOf", "anyOf", "oneOf", "$ref"}
every_row = pytest.mark.parametrize("name", ROWS)


def lowered(row, wire, *, strict=None):
    """The request on that wire, the schema that it tells, and what it lost."""
    tool = ToolDeclaration("f", "Does.", row["schema"], strict=strict)
    request = Request("m", (UserCanister("Go."),), (tool,))
    made = WIRES[wire].encode_request(request)
    body = msgspec.json.decode(msgspec.json.encode(made.body))
    (declared,) = body["tools"]
    match wire:
        case "chat":
            schema = declared["function"]["parameters"]
        case "responses":
            schema = declared["parameters"]
        case "messages":
            schema = declared["input_schema"]
        case _:
            (function,) = declared["functionDeclarations"]
            schema = function["parametersJsonSchema"]
    return body, schema, made


def valid(schema, arguments):
    return jsonschema_rs.validator_for(schema).is_valid(arguments)


@every_row
@pytest.mark.parametrize("strict", [None, True])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages", "gemini"])
def test_a_schema_is_taken_and_nothing_is_lost_unsaid(name, wire, strict):
    row = ROWS[name]
    body, schema, made = lowered(row, wire, strict=strict)
    servers = {"chat": ("openai", "llama.cpp"), "gemini": ("gemini",)}
    for server in servers.get(wire, ()):
        assert Rulebook(server).refuse(wire, body) is None
    assert schema["type"] == "object"
    assert wire == "gemini" or COMBINING.isdisjoint(schema)
    if "f" not in made.nullable:  # in OpenAI's strict form every member is there
        assert valid(schema, row["valid"]) or made.dropped
    refused = [each for each in row["invalid"] if not valid(schema, each)]
    assert len(refused) == len(row["invalid"]) or made.dropped, "something is lost, and nothing says so"


@every_row
def test_arguments_are_validated_by_the_whole_schema(name):
    row = ROWS[name]
    ran = []
    invoker = Invoker("f", lambda _, given: ran.append(given) or "ok", row["schema"])
    result = asyncio.run(execute_invoker(invoker, row["valid"]))
    assert (result.text, result.error) == ("ok", None)
    for each in row["invalid"]:
        result = asyncio.run(execute_invoker(invoker, each))
        assert result.error is not None
        assert result.error.category == "validation"
    assert len(ran) == 1
