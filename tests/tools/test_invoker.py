from __future__ import annotations

import asyncio
from types import MappingProxyType

import pytest

from callboard import Context, Ensemble, Invoker, tool
from callboard.core import ToolDeclaration
from callboard.errors import SchemaError
from callboard.schema import ArgumentsInvalid

SCHEMA = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City and state"},
        "unit": {"type": "string", "enum": ["F", "C"], "default": "F"},
        "days": {"type": "integer"},
    },
    "required": ["location"],
}


def recording(calls):
    async def get_weather(context, arguments):
        calls.append((context, dict(arguments)))
        return {"temperature": 62}

    return get_weather


def test_calling_validates_and_calls():
    calls = []
    invoker = Invoker("get_weather", recording(calls), SCHEMA)
    context = Context(auxdata={"user": "ada"}, invoker=invoker)
    assert asyncio.run(invoker(context, {"location": "San Francisco, CA", "days": "3"})) == {"temperature": 62}
    assert calls == [(context, {"location": "San Francisco, CA", "unit": "F", "days": 3})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "ArgValidationError: location\n  Field required"),
        ({"location": 3}, "ArgValidationError: location\n  Input should be a valid string"),
        (
            {"location": "Oslo", "unit": "K", "days": "few"},
            "ArgValidationError: unit\n  Input should be 'F' or 'C'\ndays\n  Input should be a valid integer",
        ),
    ],
)
def test_what_does_not_fit_never_reaches_the_tool(arguments, message):
    calls = []
    invoker = Invoker("get_weather", recording(calls), SCHEMA)
    with pytest.raises(ArgumentsInvalid) as caught:
        asyncio.run(invoker(Context(), arguments))
    assert str(caught.value) == message
    assert calls == []


def test_immutable_schemas_and_arguments_will_do():
    calls = []
    frozen = MappingProxyType(SCHEMA | {"properties": MappingProxyType(SCHEMA["properties"])})
    invoker = Invoker("get_weather", recording(calls), frozen)
    asyncio.run(invoker(Context(), MappingProxyType({"location": "Oslo"})))
    assert calls[0][1] == {"location": "Oslo", "unit": "F"}


def test_a_schema_that_is_none_is_refused_by_name():
    with pytest.raises(SchemaError, match=r"^get_weather"):
        Invoker("get_weather", recording([]), {"type": "objekt"})


@pytest.mark.parametrize("is_async", [False, True])
def test_the_invoker_of_a_tool(is_async):
    if is_async:

        @tool(timeout=2, idempotent=True, approval=True, cli={"-n": "number"})
        async def double(number: int, context: Context) -> int:
            """Double it."""
            return number * context.auxdata["factor"]

    else:

        @tool(timeout=2, idempotent=True, approval=True, cli={"-n": "number"})
        def double(number: int, context: Context) -> int:
            """Double it."""
            return number * context.auxdata["factor"]

    invoker = Invoker.of(double)
    assert asyncio.run(invoker(Context(auxdata={"factor": 2}), {"number": "21"})) == 42
    assert (invoker.name, invoker.description, invoker.arguments_schema) == ("double", "Double it.", double.schema)
    assert (invoker.timeout, invoker.idempotent, invoker.approval) == (2, True, True)
    assert (invoker.cli, invoker.blocking) == ({"-n": "number"}, not is_async)
    with pytest.raises(ArgumentsInvalid):
        asyncio.run(invoker(Context(auxdata={"factor": 2}), {"number": 1, "context": {}}))


def test_what_models_are_told():
    invoker = Invoker("get_weather", recording([]), SCHEMA, description="Get current weather for location")
    assert invoker.declare() == ToolDeclaration("get_weather", "Get current weather for location", SCHEMA)
    assert invoker.declare("io__get_weather").name == "io__get_weather"
    assert invoker.replace(strict=True).declare().strict is True


def test_its_ensemble_may_be_given_or_come_later():
    io = Ensemble("io")
    invoker = Invoker(name="get_weather", invocable=recording([]), arguments_schema=SCHEMA, ensemble=io)
    assert invoker.ensemble is io
    later = Invoker("later", recording([]), SCHEMA)
    assert later.ensemble is None
    io.add_invoker(later)
    assert later.ensemble is io
