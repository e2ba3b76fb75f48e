from __future__ import annotations

import asyncio
from types import MappingProxyType

import pytest
from tests.tables import table

from callboard import Context, Ensemble, Invoker, execute_invoker, tool
from callboard.core import ToolDeclaration
from callboard.errors import SchemaError, ToolDefinitionError
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


@table(
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


@table("is_async", [False, True])
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


# Flags as keys.

SEARCH = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "path": {"type": "string", "default": "."}, "-v": {"type": "boolean"}},
    "required": ["text"],
    "additionalProperties": False,
}
FLAGS = {"-t": "text", "-p": "path", "--path": "path", "-v": "text"}


@table("validated", [True, False])
def test_a_flag_as_a_key_is_the_argument_it_stands_for(validated):
    calls = []
    invoker = Invoker("search", recording(calls), SEARCH, cli=FLAGS)
    asyncio.run(invoker.call(Context(), {"-t": "x", "path": "src"}, validated=validated))
    asyncio.run(invoker.call(Context(), {"--path": "lib", "text": "x", "-v": True}, validated=validated))
    assert [given for _, given in calls] == [
        {"text": "x", "path": "src"},
        {"path": "lib", "text": "x", "-v": True},  # which is an argument here
    ]


@table(
    ("arguments", "message"),
    [
        ({"-t": "x", "text": "y"}, "-t\n  Stands for 'text', which is given already"),
        ({"text": "x", "-p": "a", "--path": "b"}, "--path\n  Stands for 'path', which is given already"),
        ({"-x": "x"}, "text\n  Field required\n-x\n  Extra inputs are not permitted"),
        ({"-p": 3}, "text\n  Field required\npath\n  Input should be a valid string"),
    ],
)
def test_mistakes_with_flags(arguments, message):
    calls = []
    with pytest.raises(ArgumentsInvalid) as caught:
        asyncio.run(Invoker("search", recording(calls), SEARCH, cli=FLAGS)(Context(), arguments))
    assert str(caught.value) == f"ArgValidationError: {message}"
    assert calls == []


def test_arguments_as_the_tool_would_get_them():
    invoker = Invoker("search", recording([]), SEARCH, cli=FLAGS)
    assert invoker.coerce({"-t": "x"}) == {"text": "x", "path": "."}
    assert invoker.coerce({"-p": "x"}) == {"path": "x"}  # not even these fit
    assert invoker.coerce({"-t": "x", "text": "y"}) == {"-t": "x", "text": "y"}


# What permissions look at, and which calls change nothing.


def test_the_subjects_of_a_tool():
    @tool(subjects={"path": "path"})
    def read(path: str) -> str:
        """Read."""
        return path

    assert read.subjects == Invoker.of(read).subjects == {"path": "path"}
    assert Invoker("search", recording([]), SEARCH, subjects={"path": "path"}).subjects == {"path": "path"}
    assert Invoker("search", recording([]), SEARCH).subjects == {}


@table(
    ("subjects", "told"),
    [
        ({"pth": "path"}, "search: subjects: no argument 'pth'; did you mean 'path'?"),
        (
            {"path": "file"},
            "search: subjects={'path': 'file'} is not valid; Invalid enum value 'file'; subjects are path, command, further_path",
        ),
    ],
)
def test_subjects_that_cannot_be(subjects, told):
    with pytest.raises(ToolDefinitionError) as caught:
        Invoker("search", recording([]), SEARCH, subjects=subjects)
    assert str(caught.value) == told


def test_which_calls_are_idempotent():
    always = Invoker("search", recording([]), SEARCH, idempotent=True)
    never = Invoker("search", recording([]), SEARCH)
    some = Invoker("search", recording([]), SEARCH, cli=FLAGS, repeatable=lambda given: given["path"] == ".")
    assert [each.is_idempotent({"text": "x"}) for each in (always, never, some)] == [True, False, True]
    assert not some.is_idempotent({"text": "x", "-p": "src"})


@table("schema", [None, [], True, "object"])
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(ToolDefinitionError, match=r"^search: .* is not a schema; give a JSON Schema such as"):
        Invoker("search", recording([]), schema)


def gives(_context, _arguments):
    yield 1


@table("invocable", [None, "search", gives])
def test_what_cannot_be_awaited_is_refused(invocable):
    with pytest.raises(ToolDefinitionError, match=r"^search: .* cannot be awaited; give an async function of"):
        Invoker("search", invocable, {"type": "object"})


def test_a_plain_function_of_context_and_arguments_may_be_an_invocable():
    invoker = Invoker("add", lambda _, arguments: arguments["a"] + 1, {"type": "object"})
    assert asyncio.run(execute_invoker(invoker, {"a": 1})).text == "2"


def test_a_schema_cannot_be_changed_behind_its_validator():
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    invoker = Invoker("search", recording([]), schema)
    schema["properties"]["text"]["type"] = "integer"
    with pytest.raises(TypeError):
        invoker.arguments_schema["type"] = "array"
    assert invoker.declare().schema == {"type": "object", "properties": {"text": {"type": "string"}}}


def test_what_a_model_is_told_and_what_is_validated_stay_the_same():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    invoker = Invoker("f", lambda context, arguments: arguments["n"], schema)
    for shown in (schema, invoker.arguments_schema, invoker.declare().schema):
        shown["properties"]["n"]["type"] = "string"
    assert invoker.declare().schema["properties"]["n"]["type"] == "integer"
    assert invoker.find_mistake({"n": "x"})


def test_the_name_of_an_invoker_is_read_only():
    invoker = Invoker("f", lambda context, arguments: None, {"type": "object"})
    with pytest.raises(AttributeError):
        invoker.name = "g"
    assert (invoker.replace(name="g").name, invoker.name) == ("g", "f")


def test_auxdata_is_read_only_outside_of_a_run_too():
    for context in (Context(), Context(auxdata={"user": "ada"}), Context({"user": "ada"}, {})):
        with pytest.raises(TypeError):
            context.auxdata["user"] = "eve"
