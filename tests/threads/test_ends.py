"""Replies that broke off, were cut or ignored what was asked, as users met them; each test is named after its thread."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path

import pytest
from tests.servers.gateway.conftest import behind, serve_gateway
from tests.tables import table

from callboard import Agent, Limits, core, tool
from callboard.core import pipe
from callboard.testing import FakeBackend, Raw, StatusReply
from callboard.text.sse import SSEEncoder
from callboard.wires import WIRES

FRONTS = ("responses", "chat", "messages")
BACKS = ("chat", "responses", "messages", "gemini")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "parameters": SCHEMA}
SAID = {"role": "user", "content": "Weather in Oslo?"}
ASKING = {
    "responses": {"model": "m", "input": "Weather in Oslo?", "tools": [{"type": "function", **FUNCTION}]},
    "chat": {"model": "m", "messages": [SAID], "tools": [{"type": "function", "function": FUNCTION}]},
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "messages": [SAID],
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
    },
}
REQUIRED = {"responses": "required", "chat": "required", "messages": {"type": "any"}}

OPENED = [core.InvocationStarted(0, "c1", "weather"), core.ArgumentsPiece(0, '{"city": "Os')]
WHOLE = [
    core.InvocationStarted(0, "c1", "weather"),
    core.ArgumentsPiece(0, '{"city": "Oslo"}'),
    core.InvocationEnded(0, "c1", "weather", {"city": "Oslo"}, '{"city": "Oslo"}'),
]
CUT = {
    "at text": [core.ReplyStarted("r", "m"), core.TextPiece("It is")],
    "in arguments": [core.ReplyStarted("r", "m"), core.TextPiece("I look."), *OPENED],
    "between calls": [core.ReplyStarted("r", "m"), *WHOLE],
}
"""What came before a stream ended as if nothing were missing."""


def frames(wire, events):
    """The events as that wire's backend sends them, without an end unless there is one among them."""
    encoder = pipe(WIRES[wire].stream_encoder(identifier="r", model="m", created=0), SSEEncoder())
    return [frame for event in events for frame in encoder.feed(event)]


def through(replies, asks, wire="chat", compat_events=False, **facts):
    """A gateway's answers, and how often its backend was asked."""

    async def scenario():
        async with (
            FakeBackend(replies) as backend,
            serve_gateway(behind(backend, wire=wire, **facts), compat_events=compat_events) as served,
        ):
            served.gateway.backends[0].breaker._threshold = 100  # faults are what these backends are here for
            answers = [await served.post(front, ASKING[front] | more) for front, more in asks]
            return answers, len([each for each in backend.requests if each.method == "POST"])

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def end(front, answer):
    """How a client is told that the reply ended: the word of its wire, `failed` for an error."""
    match front, answer.streamed:
        case "responses", True:
            last = answer.events[-1]
            return "failed" if last["type"] == "error" else last["response"]["status"]
        case "responses", False:
            return answer.body.get("status") or "failed"
        case "chat", True:
            reasons = [event["choices"][0]["finish_reason"] for event in answer.events if event.get("choices")]
            return "failed" if "error" in answer.events[-1] else next(filter(None, reasons))
        case "chat", False:
            return answer.body["choices"][0]["finish_reason"] if answer.status == 200 else "failed"
        case _, True:
            if answer.events[-1]["type"] == "error":
                return "failed"
            return next(event["delta"]["stop_reason"] for event in answer.events if event["type"] == "message_delta")
        case _:
            return answer.body["stop_reason"] if answer.status == 200 else "failed"


NOT_WHOLE = {"responses": {"incomplete", "failed"}, "chat": {"length", "failed"}, "messages": {"max_tokens", "failed"}}
DONE = {"responses": "completed", "chat": "stop", "messages": "end_turn"}
CALLED = {"responses": "completed", "chat": "tool_calls", "messages": "tool_use"}
STREAM = {"stream": True}


def check_blocks(answer):
    """What clients of Messages rely on: blocks one after another, each opened and closed once."""
    place, is_open = 0, False
    for event in answer.events:
        match event["type"]:
            case "content_block_start":
                assert (event["index"], is_open) == (place, False)
                is_open = True
            case "content_block_delta":
                assert (event["index"], is_open) == (place, True)
            case "content_block_stop":
                assert (event["index"], is_open) == (place, True)
                place, is_open = place + 1, False
            case "message_delta":
                assert not is_open


@table("back", BACKS)
def test_hermes_6847_a_stream_that_breaks_off_is_no_whole_reply(back):
    places = [place for place in CUT if not (back == "gemini" and place == "in arguments")]
    replies = [Raw(frames(back, CUT[place])) for place in places for _ in FRONTS]
    answers, _ = through(replies, [(front, STREAM) for _ in places for front in FRONTS], back)
    for (place, front), answer in zip(product(places, FRONTS), answers, strict=True):
        assert end(front, answer) in NOT_WHOLE[front], (back, place, front, answer)
        if front == "responses":
            said = answer.events[-1]["response"]
            assert said["status"] != "completed"
        if front == "messages":
            check_blocks(answer)


@table("place", list(CUT))
async def test_command_code_785_an_agent_whose_stream_breaks_off_has_not_completed(place):
    ran = []

    @tool
    def weather(city: str) -> str:
        """The weather."""
        ran.append(city)
        return "sunny"

    async with FakeBackend([Raw(frames("chat", CUT[place]))] * 4) as backend:
        agent = Agent("m", tools=[weather], base_url=backend.url, mode="native", limits=Limits(rounds=2))
        async with agent.stream("Weather?") as events:
            outcome = [event.state async for event in events if isinstance(event, core.RunEnded)]
    assert outcome == ["failed"]
    assert ran == []


USAGE = {"id": "r", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
LENIENT = {
    ("chat", "[DONE]"): ["[DONE]"],
    ("chat", "usage"): [USAGE],
    ("responses", "[DONE]"): ["[DONE]"],
    ("messages", "[DONE]"): ["[DONE]"],
    ("messages", "usage"): [{"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}],
    ("gemini", "[DONE]"): ["[DONE]"],
}


@table(("back", "sign"), list(LENIENT))
def test_agent_afk_635_an_end_without_its_reason_is_an_end(back, sign):
    rows = [(CUT["at text"], DONE), (CUT["between calls"], CALLED)]
    replies = [Raw([*frames(back, events), *LENIENT[back, sign]]) for events, _ in rows for _ in FRONTS]
    answers, _ = through(replies, [(front, STREAM) for _ in rows for front in FRONTS], back)
    for ((_, ends), front), answer in zip(product(rows, FRONTS), answers, strict=True):
        assert end(front, answer) == ends[front], (back, sign, front, answer)


@table("front", FRONTS)
@table("back", ["chat", "responses", "messages", "gemini"])
def test_agent_afk_635_an_answer_that_is_none_is_malformed(front, back):
    junk = b"\x00\x01\xff\xfe binary \x80 junk\n\n\x07"
    asks = [(front, STREAM), (front, {}), (front, STREAM)]
    answers, _ = through([Raw([junk]), Raw([junk]), Raw([b""])], asks, back)
    for answer in answers:
        assert end(front, answer) == "failed", answer
    for answer in answers[:2]:
        assert "before the model said anything" in answer.text or "no reply" in answer.text


CUT_CALL = [core.ReplyStarted("r", "m"), core.TextPiece("I look."), *OPENED]


def cut_by_limit(reason):
    """A chat backend that gives that reason for a call whose arguments its limit cut."""
    last = {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return Raw([*frames("chat", CUT_CALL), last, "[DONE]"])


ENDED_WRONG = {
    "tool_calls": ("chat", cut_by_limit("tool_calls")),
    "stop": ("chat", cut_by_limit("stop")),
    "[DONE]": ("chat", Raw([*frames("chat", CUT_CALL), "[DONE]"])),
    "tool_use": (
        "messages",
        Raw(
            [
                *frames("messages", CUT_CALL),
                {"type": "content_block_stop", "index": 1},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
                {"type": "message_stop"},
            ]
        ),
    ),
    "completed": (
        "responses",
        Raw([*frames("responses", CUT_CALL), {"type": "response.completed", "response": {"status": "completed"}}]),
    ),
    "in text": (
        "chat",
        [
            core.ReplyStarted("r", "m"),
            core.TextPiece('Hi <tool_call>\n{"name": "weather", "arguments": {"city": "Os'),
            core.ReplyEnded("stop"),
        ],
    ),
}


@table("case", list(ENDED_WRONG))
def test_vllm_53270_a_call_that_was_cut_is_told_as_cut_whatever_the_reason(case):
    back, reply = ENDED_WRONG[case]
    facts = {"profile": {"watch": "hermes"}} if case == "in text" else {}
    answers, _ = through([reply] * 3, [(front, STREAM) for front in FRONTS], back, **facts)
    ends = {"responses": "incomplete", "chat": "length", "messages": "max_tokens"}
    for front, answer in zip(FRONTS, answers, strict=True):
        assert end(front, answer) == ends[front], answer
        if front == "responses":
            assert "response.function_call_arguments.done" not in [event["type"] for event in answer.events]
        if front == "messages":
            check_blocks(answer)


def test_vllm_46303_an_agent_tells_its_model_that_the_call_was_cut():
    async def scenario():
        async with FakeBackend([cut_by_limit("tool_calls"), "Sunny."]) as backend:

            @tool
            def weather(city: str) -> str:
                """The weather."""
                raise AssertionError(city)

            agent = Agent("m", tools=[weather], base_url=backend.url, mode="native")
            result = await agent.run("Weather?")
            return result, [each.body for each in backend.requests if each.method == "POST"][-1]

    result, body = asyncio.run(scenario())
    assert result.state == "completed"
    (told,) = [each["content"] for each in body["messages"] if each["role"] == "tool"]
    assert "cut" in told
    assert "ArgValidationError" not in told


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", ["native", "validated"])
def test_llama_cpp_27217_a_required_call_that_never_comes_is_no_completed_reply(front, mode, caplog):
    asks = [(front, {"tool_choice": REQUIRED[front]} | more) for more in (STREAM, {})]
    answers, asked = through(lambda _: "It is sunny.", asks, profile={"mode": mode})
    for answer in answers:
        assert end(front, answer) in NOT_WHOLE[front] - {"failed"}, answer
        assert "It is sunny." in answer.text.replace('"}}', "") or answer.streamed
        assert "no tool was called although one was asked for" in answer.text
    assert asked == 4  # each was asked for once more
    assert "no tool was called" in answers[1].headers["x-callboard-incomplete"]
    assert "no tool was called" in caplog.text


def test_llama_cpp_27217_an_agent_that_got_no_required_call_has_not_completed():
    async def scenario():
        async with FakeBackend(lambda _: "It is sunny.") as backend:

            @tool
            def weather(city: str) -> str:
                """The weather."""
                return city

            agent = Agent("m", tools=[weather], base_url=backend.url, mode="native", tool_choice="required")
            async with agent.stream("Weather?") as events:
                return [event async for event in events]

    *events, last = asyncio.run(scenario())
    assert last.state == "incomplete"
    assert any("no tool was called" in getattr(event, "text", "") for event in events)


def test_claudish_141_each_block_is_closed_once():
    """A Responses backend that says everything twice: as pieces, as items, and in its last event."""
    item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
    text = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": text}
    called = {"type": "response.output_item.done", "output_index": 1, "item": item}
    whole = {
        "type": "response.function_call_arguments.done",
        "item_id": "fc",
        "output_index": 1,
        "arguments": item["arguments"],
    }
    reply = Raw(
        [
            {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
            {
                "type": "response.output_text.delta",
                "item_id": "m1",
                "output_index": 0,
                "content_index": 0,
                "delta": "Hi",
            },
            *[done] * 2,
            {"type": "response.output_item.added", "output_index": 1, "item": item | {"arguments": ""}},
            {
                "type": "response.function_call_arguments.delta",
                "item_id": "fc",
                "output_index": 1,
                "delta": '{"city": "Os',
            },
            *[whole] * 2,
            *[called] * 3,
            {"type": "response.completed", "response": {"status": "completed", "output": [text, item]}},
        ]
    )
    (answer,), _ = through([reply], [("messages", STREAM)], "responses")
    check_blocks(answer)
    stops = [event for event in answer.events if event["type"] == "content_block_stop"]
    assert [event["index"] for event in stops] == [0, 1]
    pieces = [event["delta"]["partial_json"] for event in answer.events if event.get("delta", {}).get("partial_json")]
    assert json.loads("".join(pieces)) == {"city": "Oslo"}


TOO_LONG = json.loads((Path(__file__).parents[1] / "vectors" / "too_long.json").read_text("utf-8"))
"""The status and the body with which each server refuses a conversation that is too long."""


@table("server", list(TOO_LONG))
def test_codex_shortens_a_conversation_that_is_too_long_for_any_server(server):
    status, body = TOO_LONG[server]
    (answer, streamed), _ = through(lambda _: StatusReply(status, body), [("responses", {}), ("responses", STREAM)])
    assert (answer.status, answer.body["error"]["code"]) == (400, "context_length_exceeded")
    said = streamed.body if not streamed.streamed else streamed.events[-1]["response"]
    assert said["error"]["code"] == "context_length_exceeded"


def test_a_streamed_reply_without_end_is_ended(monkeypatch):
    monkeypatch.setattr("callboard.providers.http_exchange.MAX_TEXT", 10_000)
    endless = Raw(
        frames("chat", [core.ReplyStarted("r", "m"), *[core.TextPiece("x" * 999)] * 12, core.ReplyEnded("stop")])
    )
    answers, _ = through([endless] * 3, [(front, STREAM) for front in FRONTS])
    for front, answer in zip(FRONTS, answers, strict=True):
        assert end(front, answer) == "failed"
        assert "more than 10000 characters" in answer.text


def test_compat_events_of_items_name_their_item_at_the_top():
    reply = [core.ReplyStarted("r", "m"), core.TextPiece("Hi"), *WHOLE, core.ReplyEnded("invocations")]
    (answer,), _ = through([reply], [("responses", STREAM)], compat_events=True)
    items = [event for event in answer.events if event["type"].startswith("response.output_item.")]
    assert len(items) == 4
    assert all(event["item_id"] == event["item"]["id"] for event in items)


HALVES = {
    "chat": (
        r'{"id":"r","choices":[{"index":0,"delta":{"content":"Hi \ud83d"}}]}',
        r'{"id":"r","choices":[{"index":0,"delta":{"content":"\ude00!"}}]}',
        r'{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
    ),
    "messages": (
        r'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        r'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi \ud83d"}}',
        r'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00!"}}',
        '{"type":"message_stop"}',
    ),
}


@table("back", list(HALVES))
def test_a_character_that_two_frames_were_cut_through_is_whole(back):
    (answer,), _ = through([Raw(list(HALVES[back]))], [("chat", STREAM)], back)
    said = "".join([event["choices"][0]["delta"].get("content") or "" for event in answer.events])
    assert (said, end("chat", answer)) == ("Hi \U0001f600!", "stop")


async def test_a_request_with_half_a_character_is_answered():
    async with FakeBackend(["Hello"]) as backend, serve_gateway(behind(backend)) as served:
        answer = await served.post("responses", rb'{"model": "m", "input": "cut \ud83d"}')
        (asked,) = [each.body for each in backend.requests if each.method == "POST"]
        outcome = answer.status, asked["messages"][-1]["content"]
    assert outcome == (200, "cut \ufffd")


@table("front", FRONTS)
def test_llama_cpp_27217_the_second_attempt_is_held_to_the_tool_s_schema(front):
    """Where the endpoint constrains replies."""
    asked = []

    def reply(body):
        asked.append(body)
        if len(asked) == 1:
            return '{{"name": "hello", "arguments": null}}'
        return '{"action": {"tool": "weather", "arguments": {"city": "Oslo"}}}'

    named = {
        "responses": {"type": "function", "name": "weather"},
        "chat": {"type": "function", "function": {"name": "weather"}},
        "messages": {"type": "tool", "name": "weather"},
    }
    choice = {"tool_choice": named[front]} | STREAM
    (answer,), _ = through(reply, [(front, choice)], profile={"mode": "native", "supports_json_schema": True})
    assert end(front, answer) == CALLED[front]
    assert "weather" in answer.text
    first, second = asked
    assert "response_format" not in first
    assert "weather" in str(second["response_format"]["json_schema"]["schema"])
    assert "tools" not in second


@table("more", [STREAM, {}])
def test_a_completed_response_says_when_it_was_completed(more):
    cut = [core.ReplyStarted("r", "m"), core.TextPiece("Hi"), core.ReplyEnded("length")]
    answers, _ = through(["Hello", cut], [("responses", more)] * 2)
    whole, short = [each.events[-1]["response"] if each.streamed else each.body for each in answers]
    assert whole["completed_at"] >= whole["created_at"] > 0
    assert short["completed_at"] is None
