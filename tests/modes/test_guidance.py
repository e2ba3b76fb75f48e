import asyncio

import pytest
from msgspec.structs import replace

from callboard import Agent, tool
from callboard.core import (
    InvocationEnded,
    NamedTool,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextPiece,
    ToolDeclaration,
    UserCanister,
)
from callboard.dialects import DIALECTS, parse
from callboard.dialects.grammars.code_calls import CodeCall
from callboard.modes import Sources, TextCall, lower_request, make_plan
from callboard.modes.guidance import EXAMPLE_TOOL, REFUSAL_HINT, write_examples, write_guidance
from callboard.profiles import resolve
from callboard.testing import FakeBackend

F = ToolDeclaration("f", "Does it.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
REQUEST = Request("m", (SupervisorCanister("Be brief."), UserCanister("Do it.")), (F,))


def plan(mode="validated", **facts):
    return make_plan(resolve("some-model", {"mode": mode, **facts}))


def instructions(request, plan):
    return lower_request(request, plan).canisters[0].text


@pytest.mark.parametrize("mode", ["native", "structured", "validated", "parsed"])
def test_the_examples_are_the_last_words_of_the_instructions(mode):
    text = instructions(REQUEST, plan(mode, examples=2))
    assert text.startswith("Be brief.\n\n")
    assert text.endswith(write_guidance(plan(mode, examples=2), [F]))
    assert "feeding_time" in text
    assert instructions(REQUEST, plan(mode)) == text[: text.index("\n\nTwo examples")]


@pytest.mark.parametrize("mode", ["native", "structured", "validated", "parsed"])
def test_the_model_is_told_that_it_may_refuse(mode):
    text = instructions(REQUEST, plan(mode, refusal_hint=True))
    assert text == f"{instructions(REQUEST, plan(mode))}\n\n{REFUSAL_HINT}"
    both = instructions(REQUEST, plan(mode, refusal_hint=True, examples=2))
    assert both.startswith(f"{text}\n\nTwo examples")


def test_instructions_alone_make_a_system_message():
    request = replace(REQUEST, canisters=REQUEST.canisters[1:])
    lowered = lower_request(request, plan("native", refusal_hint=True))
    assert lowered.canisters == (SupervisorCanister(REFUSAL_HINT), *request.canisters)


def test_a_native_request_without_examples_stays_the_same_object():
    assert lower_request(REQUEST, plan("native")) is REQUEST


def test_a_request_without_tools_has_no_examples():
    request = replace(REQUEST, tools=())
    assert lower_request(request, plan("native", examples=2)).canisters == REQUEST.canisters


@pytest.mark.parametrize("mode", ["native", "structured", "validated"])
def test_each_request_of_a_conversation_begins_with_the_same_bytes(mode):
    shown = plan(mode, examples=2)
    later = replace(REQUEST, canisters=(*REQUEST.canisters, UserCanister("And?")))
    forced = [replace(later, tool_choice=choice) for choice in ("required", "none", NamedTool("f"))]
    assert {instructions(each, shown) for each in (REQUEST, later, *forced)} == {instructions(REQUEST, shown)}


@pytest.mark.parametrize("name", sorted(DIALECTS.keys() - {"markdown_bash"}))
def test_the_example_is_a_call_and_the_refusal_is_none(name):
    row = DIALECTS[name]
    answers_in_objects = name == "action"
    text = write_examples(row, 2, answers_in_objects=answers_in_objects)
    assert text.startswith(
        write_examples(row, 1, answers_in_objects=answers_in_objects).replace("An example", "Two examples")
    )
    _, call, refusal = text.split("You write:\n")
    call = call.partition("\nThe user says:")[0]
    calls = [event for event in parse(call, [EXAMPLE_TOOL], row) if isinstance(event, InvocationEnded)]
    assert [(each.name, each.arguments) for each in calls] == [("feeding_time", {"animal": "penguin"})]
    said = parse(refusal, [EXAMPLE_TOOL], row)
    assert "".join([event.text for event in said if isinstance(event, TextPiece)]).startswith("I cannot do that")
    assert not any(isinstance(event, InvocationEnded) for event in said)


def test_a_dialect_that_cannot_spell_the_example_has_none():
    """It writes code, in which no tool with a name of its own is called."""
    shell = DIALECTS["markdown_bash"]
    code = replace(shell, rendered_as=replace(shell.rendered_as, grammars=(CodeCall(("python",)),)))
    assert write_examples(code, 2) == ""


def test_a_tool_of_the_examples_own_name_is_no_example():
    request = replace(REQUEST, tools=(F, EXAMPLE_TOOL))
    assert "penguin" not in instructions(request, plan(examples=2))


def test_an_example_is_no_source_of_a_quotation():
    """A call of the very words of the example would be held for a copy, if the instructions were a source."""
    lowered = lower_request(REQUEST, plan(examples=2))
    call = TextCall("feeding_time", {"animal": "penguin"}, '{"animal":"penguin"}')
    assert call.source(Sources(lowered.canisters)) == ""
    assert call.source(Sources((UserCanister(lowered.canisters[0].text),))) != ""


@pytest.mark.parametrize(
    ("mode", "dialect", "copied"),
    [
        (
            "validated",
            "hermes",
            '<tool_call>\n{"name": "feeding_time", "arguments": {"animal": "penguin"}}\n</tool_call>',
        ),
        ("native", "hermes", '<tool_call>\n{"name": "feeding_time", "arguments": {"animal": "penguin"}}\n</tool_call>'),
        ("structured", "json", '{"action": {"tool": "feeding_time", "arguments": {"animal": "penguin"}}}'),
    ],
)
def test_a_copied_example_is_a_call_of_an_unknown_tool(mode, dialect, copied):
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def ask():
        done = '{"action": {"answer": "5"}}' if mode == "structured" else "5"
        async with FakeBackend([copied, done]) as backend:
            profile = {"examples": 2, "dialect": dialect, "watch": dialect}
            result = await Agent("some-model", [add], base_url=backend.url, mode=mode, profile=profile).run("2 and 3?")
            return result, backend.requests[0].body["messages"][0]

    result, system = asyncio.run(ask())
    assert (system["role"], "feeding_time(animal)" in system["content"]) == ("system", True)
    (refused,) = [each for each in result.canisters if isinstance(each, ResultCanister)]
    assert refused.error.category == "not_found"
    assert result.output == "5"
