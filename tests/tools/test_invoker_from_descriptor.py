from __future__ import annotations

import asyncio
import enum

import pytest
from tests.tables import table

from callboard import Context, execute_invoker, tool
from callboard.errors import DescriptorError, SchemaError
from callboard.tools import InvokerDescriptor, make_invoker

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
COUNTED = {**TEXT, "properties": {**TEXT["properties"], "times": {"type": "integer", "default": 2}}}


def plain(text: str, times: int = 3) -> str:
    """Say it again."""
    return text * times


async def awaited(text: str, times: int = 3) -> str:
    """Say it again."""
    await asyncio.sleep(0)
    return text * times


def loose(text, times=3):
    return text * times


async def seeds(context: Context, arguments: dict) -> str:
    """Say it again."""
    return arguments["text"] * arguments["times"] + context.auxdata.get("end", "")


def seeds_blocking(context, arguments):
    return arguments["text"] * arguments["times"] + context.auxdata.get("end", "")


def with_context(context: Context, text: str, times: int) -> str:
    return text * times + context.auxdata.get("end", "")


def any_keyword(**words):
    return words["text"] * words["times"]


def described(arguments=None, description="", **options):
    path = "io.toml:3: invokers[0]"
    return InvokerDescriptor(name="say", arguments=arguments, description=description, path=path, options=options)


def called(invoker, **arguments):
    context = Context(auxdata={"end": "!"}, invoker=invoker)
    return asyncio.run(execute_invoker(invoker, arguments, context, on_error="feedback"))


@table(
    ("function", "end"),
    [
        (plain, ""), (awaited, ""), (loose, ""), (seeds, "!"), (seeds_blocking, "!"), (with_context, "!"),
        (any_keyword, ""), (tool(plain), ""), (tool(awaited), ""), (tool(with_context), "!"),
    ],
)  # fmt: skip
def test_a_schema_of_its_own(function, end):
    invoker = make_invoker(described(COUNTED), function)
    assert (invoker.name, invoker.arguments_schema) == ("say", COUNTED)
    # The schema's default, not the function's.
    assert called(invoker, text="ab").text == "abab" + end
    assert called(invoker, text="ab", times="1").text == "ab" + end
    assert called(invoker, times=1).error.message == "ArgValidationError: text\n  Field required"


@table("function", [plain, awaited, tool(plain), tool(name="other")(awaited)])
def test_the_signature_where_there_is_no_schema(function):
    invoker = make_invoker(described(), function)
    assert (invoker.name, invoker.description) == ("say", "Say it again.")
    assert invoker.arguments_schema["required"] == ["text"]
    assert called(invoker, text="ab").text == "ababab"


def test_arguments_that_the_schema_allows_and_the_function_does_not_take():
    # Seed 000's schemas say nothing of others.
    assert called(make_invoker(described(TEXT), plain), text="a", tone="loud").error.message == (
        "ArgValidationError: tone\n  Extra inputs are not permitted"
    )
    invoker = make_invoker(described({**COUNTED, "properties": {**COUNTED["properties"]}}), any_keyword)
    assert called(invoker, text="a", tone="loud").text == "aa"


def test_a_descriptions_place():
    assert make_invoker(described(TEXT), plain).description == "Say it again."
    assert make_invoker(described(TEXT, description="Repeat."), plain).description == "Repeat."
    assert make_invoker(described(description="Repeat."), tool(plain)).description == "Repeat."


@table("arguments", [None, TEXT])
def test_what_a_tool_says_of_itself_holds_unless_the_descriptor_does(arguments):
    function = tool(
        timeout=5, idempotent=True, approval=True, cli={"-t": "text"}, strict=True, subjects={"text": "path"}
    )(plain)
    kept = make_invoker(described(arguments), function)
    assert (kept.timeout, kept.idempotent, kept.approval, kept.cli) == (5, True, True, {"-t": "text"})
    assert (kept.declare().strict, kept.subjects) == (True, {"text": "path"})
    said = make_invoker(
        described(
            arguments, timeout=7.0, idempotent=False, approval=False, cli={"-x": "text"}, strict=False,
            subjects={"text": "command"},
        ),
        function,
    )  # fmt: skip
    assert said.subjects == {"text": "command"}
    assert (said.timeout, said.idempotent, said.approval, said.cli) == (7, False, False, {"-x": "text"})
    assert said.declare().strict is False


@table("arguments", [None, TEXT])
def test_a_subject_that_is_no_argument_is_refused(arguments):
    with pytest.raises(DescriptorError) as caught:
        make_invoker(described(arguments, subjects={"txt": "path"}), tool(plain))
    assert str(caught.value).endswith("invokers[0]: say: subjects: no argument 'txt'; did you mean 'text'?")


def test_the_schema_is_the_only_judge_of_values():
    class Tone(enum.Enum):
        LOUD = "loud"

    def say(tone: Tone) -> str:
        return repr(tone)

    schema = {"type": "object", "properties": {"tone": {"enum": ["loud", "soft"]}}, "required": ["tone"]}
    assert called(make_invoker(described(schema), say), tone="soft").text == "'soft'"


def takes_any(*words: str) -> str:
    return " ".join(words)


def by_place(text: str, /) -> str:
    return text


@table(
    ("arguments", "function", "told"),
    [
        (None, seeds, "say takes (context, arguments), and nothing says which arguments; describe them in [arguments]"),
        (None, loose, "loose(text): has no annotation; say what it is: `text: str`"),
        ({"properties": {"txt": {}}}, plain, "the function takes no argument 'txt'; did you mean 'text'?"),
        ({"properties": {"text": {}}}, lambda: 3, "the function takes no argument 'text'; it takes none"),
        ({"properties": {"text": {}}}, plain, "the function wants 'text', which [arguments] may leave out; put it"),
        (TEXT, takes_any, "the function cannot be called by keyword; remove `*args` and `/`"),
        (TEXT, by_place, "the function cannot be called by keyword; remove `*args` and `/`"),
        (TEXT, dict, "the function has no signature that Python can tell"),
    ],
)
def test_a_function_that_does_not_fit(arguments, function, told):
    with pytest.raises(DescriptorError) as caught:
        make_invoker(described(arguments), function)
    assert str(caught.value).startswith(f"io.toml:3: invokers[0]: {told}")


def test_what_a_schema_requires_elsewhere_is_not_looked_for():
    schema = {"properties": {"text": {"type": "string"}}, "allOf": [{"required": ["text"]}]}
    assert called(make_invoker(described(schema), plain), text="a").text == "aaa"


def test_a_schema_that_is_none():
    with pytest.raises(SchemaError) as caught:
        make_invoker(described({"type": "object", "properties": {"text": {"type": "strin"}}}), plain)
    assert str(caught.value).startswith("io.toml:3: invokers[0]")
