"""What an endpoint takes otherwise is a fact of its profile; the same request goes to all of them."""

import asyncio

from tests.tables import table

from callboard import core
from callboard.core import reply_events
from callboard.profiles import resolve
from callboard.providers import open_model
from callboard.testing import FakeBackend

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
TOOL = core.ToolDeclaration("f", "", SCHEMA, strict=True)
ASKED = (core.SupervisorCanister("One."), core.SupervisorCanister("Two."), core.UserCanister("Hi"))


def body_for(canisters=ASKED, **facts):
    request = core.Request(
        "m", canisters, tools=(TOOL,), parallel=False, controls=core.Controls(max_tokens=9, effort="xhigh"), stream=True
    )

    async def scenario():
        async with FakeBackend(["Hello."]) as backend:
            model = open_model("m", base_url=backend.url, mode="native", profile=facts)
            [event async for event in reply_events(model, request)]
            await model.aclose()
            return backend.requests[0].body

    return asyncio.run(scenario())


def test_without_quirks_it_is_openai_s():
    body = body_for()
    assert (body["max_tokens"], body["reasoning_effort"], body["parallel_tool_calls"]) == (9, "xhigh", False)
    assert body["tools"][0]["function"]["strict"] is True
    assert [message["role"] for message in body["messages"]] == ["system", "system", "user"]
    assert body["stream_options"] == {"include_usage": True}


@table(
    ("facts", "gone", "there"),
    [
        ({"max_tokens_field": "max_completion_tokens"}, "max_tokens", {"max_completion_tokens": 9}),
        ({"supports_parallel_calls": False}, "parallel_tool_calls", {}),
        ({"reports_usage": False}, "stream_options", {}),
        ({"efforts": ("low", "high")}, "", {"reasoning_effort": "high"}),
        ({"efforts": ("none", "max")}, "", {"reasoning_effort": "max"}),
    ],
)
def test_a_fact_changes_what_is_sent(facts, gone, there):
    body = body_for(**facts)
    assert gone not in body
    assert {key: body[key] for key in there} == there


def test_strict_is_left_out_of_every_tool():
    (tool,) = body_for(supports_strict=False)["tools"]
    assert tool["function"] == {"name": "f", "parameters": SCHEMA}


THOUGHT = core.AssistantCanister([core.ReasoningContent("hm", origin="m"), core.TextualContent("t")])
SEEN = core.UserCanister([core.TextualContent("a"), core.PictureContent(b"png"), core.TextualContent("b")])


@table(
    ("facts", "said"),
    [
        ({}, {"content": "t", "reasoning_content": "hm"}),
        ({"reasoning_field": "reasoning"}, {"content": "t", "reasoning": "hm"}),
        ({"reasoning_field": ""}, {"content": "t"}),
    ],
)
def test_reasoning_goes_back_under_the_endpoint_s_name(facts, said):
    assert body_for((core.UserCanister("u"), THOUGHT, core.UserCanister("v")), **facts)["messages"][1] == {
        "role": "assistant",
        **said,
    }


def test_openrouter_s_name_for_reasoning_is_known():
    assert resolve("openrouter:x").profile.reasoning_field == "reasoning"


def test_content_is_one_text_where_no_parts_are_taken():
    assert [part["type"] for part in body_for((SEEN,))["messages"][0]["content"]] == ["text", "image_url", "text"]
    assert body_for((SEEN,), supports_content_parts=False)["messages"] == [{"role": "user", "content": "a\nb"}]


def test_system_messages_are_one_where_a_template_wants_that():
    messages = body_for(merge_system_messages=True)["messages"]
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "One.\n\nTwo."),
        ("user", "Hi"),
    ]
