"""Replies that are passed on as bytes: what is kept, what is repaired, and how they end."""

from __future__ import annotations

import asyncio
import json
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.gateway.fronts import call_chunk, calls_of, chunk, request, text_of, ways

from callboard.core import (
    InvocationEnded,
    InvocationStarted,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    Request,
    TextPiece,
    Usage,
    identify_in_turn,
    pipe,
)
from callboard.errors import ProviderError
from callboard.profiles import Prices
from callboard.providers.http_exchange import SSEPayloads
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.exchange import Exchange, ReplyRecord
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.pass_through import ClientView, PassThrough
from callboard.servers.gateway.response_stream import respond
from callboard.testing import FakeBackend, Raw, StatusReply
from callboard.text.sse import SSEDecoder
from callboard.wires import DecodeContext, get_wire

COUNTS = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
ANNOTATIONS = [{"type": "url_citation", "url_citation": {"url": "https://example.org", "title": "A"}}]
HEAD = {"id": "theirs", "object": "chat.completion.chunk", "created": 1, "model": "their-model"}


def said(*texts, end="stop", usage=COUNTS):
    """The chunks of a stream of Chat Completions."""
    chunks = [chunk(role="assistant", content=""), *[chunk(content=each) for each in texts]]
    if end:
        chunks.append(chunk(end))
    if usage:
        chunks.append({"choices": [], "usage": usage})
    return [HEAD | each for each in chunks]


def whole(**message):
    return {
        "id": "theirs",
        "object": "chat.completion",
        "created": 1,
        "model": "their-model",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi", **message}}
        ],
        "usage": COUNTS,
    }


def words(answer):
    return "".join([c["delta"].get("content") or "" for event in answer.events for c in event.get("choices", ())])


@pytest.fixture
def ask(serving):
    """What a client of Chat Completions gets, one answer for each reply of the backend."""

    async def ask(*replies, settings=None, **fields):
        async with FakeBackend(replies) as backend, serving(backend, **(settings or {})) as served:
            return [await served.post("chat", request("chat", **fields)) for _ in replies]

    return ask


async def test_fields_of_a_whole_reply_arrive_as_the_backend_wrote_them(ask):
    (answer,) = await ask(Raw([whole(annotations=ANNOTATIONS, audio={"id": "a", "data": "UklG"})]))
    message = answer.body["choices"][0]["message"]
    assert (message["annotations"], message["audio"]["data"]) == (ANNOTATIONS, "UklG")
    assert answer.body["usage"] == COUNTS
    assert (answer.body["created"], answer.body["model"]) == (1, "m")
    assert answer.body["id"] == answer.headers["x-request-id"] != "theirs"


async def test_fields_of_a_stream_arrive_as_the_backend_wrote_them(ask):
    logprobs = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}], "refusal": None}
    first, text, *rest = said("Hi", "!")
    text["choices"][0]["logprobs"] = logprobs
    (answer,) = await ask(Raw([first, text, *rest, "[DONE]"]), stream=True, stream_options={"include_usage": True})
    assert words(answer) == "Hi!"
    assert answer.events[1]["choices"][0]["logprobs"] == logprobs
    assert {(each["created"], each["model"], each["id"]) for each in answer.events} == {
        (1, "m", answer.headers["x-request-id"])
    }
    assert answer.events[-1]["usage"] == COUNTS
    assert answer.frames[-1] == ("", "[DONE]")


async def test_the_usage_is_sent_only_to_clients_that_ask_for_it(ask):
    (answer,) = await ask(Raw([*said("Hi"), "[DONE]"]), stream=True)
    assert not any(each.get("usage") for each in answer.events)


async def test_tokens_are_counted(serving):
    async with FakeBackend([Raw([whole()]), Raw([*said("Hi"), "[DONE]"])]) as backend, serving(backend) as served:
        for stream in (False, True):
            await served.post("chat", request("chat", stream=stream))
        counted = (await served.get("/metrics")).text
    assert 'kind="input"} 22.0' in counted
    assert 'kind="output"} 14.0' in counted
    assert 'end="stop",front="chat"} 2.0' in counted


# What the short way must not lose.


async def test_reasoning_under_its_other_name_is_renamed(ask):
    first, _, *rest = said("4")
    thought = HEAD | chunk(reasoning="2 + 2")
    (answer,) = await ask(Raw([first, thought, *said("4")[1:], "[DONE]"]), stream=True)
    deltas = [each["choices"][0]["delta"] for each in answer.events if each["choices"]]
    assert {"reasoning_content": "2 + 2"} in deltas
    assert not any("reasoning" in each for each in deltas)
    assert rest


@pytest.mark.parametrize(
    "payloads",
    [
        [*said("Hi", end=""), "[DONE]"],
        said("Hi"),
        said("Hi", end=""),
        [HEAD | chunk("", content="Hi"), "[DONE]"],
        [json.dumps(HEAD | chunk(content="Hi")), b"data: " + json.dumps(HEAD | chunk("stop")).encode()],
    ],
)
async def test_a_missing_end_is_added(ask, payloads):
    (answer,) = await ask(Raw(payloads), stream=True)
    reasons = [c["finish_reason"] for each in answer.events for c in each["choices"] if c.get("finish_reason")]
    assert reasons == ["stop"]
    assert [data for _, data in answer.frames].count("[DONE]") == 1
    assert answer.frames[-1] == ("", "[DONE]")


@pytest.fixture
def ask_messages(serving):
    """What a client of Messages gets, and the request that the backend got."""

    async def ask(body, frames, **settings):
        async with FakeBackend([Raw(["".join(frames).encode()])]) as backend:
            url = backend.url.removesuffix("/v1")
            async with serving(BackendSettings(url=url, wire="messages", **settings)) as served:
                return await served.post("messages", body), backend.requests[-1].body

    return ask


@pytest.mark.parametrize("end", [slice(-2, None), slice(-2, -1), slice(-1, None)])
async def test_a_missing_end_of_messages_is_added(ask_messages, end):
    frames = messages_frames(["Hi"], "\n\n")
    frames[-2] = frames[-2].replace('"end_turn"', "null")
    answer, _ = await ask_messages(request("messages", stream=True), [*frames[:-2], *frames[end], "data: [DONE]\n\n"])
    kinds = [each["type"] for each in answer.events]
    assert (kinds.count("message_start"), kinds.count("message_stop")) == (1, 1)
    *_, delta, stop = answer.events
    assert (delta["delta"]["stop_reason"], stop["type"]) == ("end_turn", "message_stop")
    assert delta["usage"]["input_tokens"] == 11


async def test_frames_of_messages_get_their_missing_names(ask_messages):
    frames = [each.partition("\n")[2] for each in messages_frames(["Hi"], "\n\n")]
    answer, _ = await ask_messages(request("messages", stream=True), frames)
    assert [name for name, _ in answer.frames] == [each["type"] for each in answer.events]
    assert text_of("messages", answer) == "Hi"


async def test_a_thought_of_a_renamed_model_can_be_sent_back(ask_messages):
    frames = messages_frames(["Hi"], "\n\n")
    opening = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm"}}
    signature = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "SIG"}}
    thought = [opening, signature, {"type": "content_block_stop", "index": 0}]
    frames[1:1] = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in thought]
    body = request("messages", stream=True)
    names = {"m": "claude-sonnet-4-5"}
    answer, _ = await ask_messages(body, frames, model_map=names)
    (sent,) = [each["delta"]["signature"] for each in answer.events if "signature" in each.get("delta", ())]
    content = [{"type": "thinking", "thinking": "Hm", "signature": sent}, {"type": "text", "text": "Hi"}]
    turns = [*body["messages"], {"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
    _, got = await ask_messages(body | {"messages": turns}, frames, model_map=names)
    assert got["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm", "signature": "SIG"}


async def test_nothing_follows_the_end(ask):
    (answer,) = await ask(Raw([*said("Hi"), "[DONE]", *said("more"), "[DONE]"]), stream=True)
    assert words(answer) == "Hi"
    assert [data for _, data in answer.frames].count("[DONE]") == 1


@pytest.mark.parametrize("last", [{"error": {"message": "out of memory"}}, "{not json"])
async def test_a_failure_after_the_first_token_ends_the_stream_once(ask, last):
    (answer,) = await ask(Raw([*said("Hi", end="", usage=None), last]), stream=True)
    assert words(answer) == "Hi"
    assert [("error" in each) for each in answer.events].count(True) == 1
    assert "error" in answer.events[-1]
    assert answer.frames[-1] == ("", "[DONE]")


async def test_a_stream_that_breaks_off_ends_with_the_failure(serving, by_hand):
    async with (
        by_hand() as backend,
        serving(BackendSettings(url=backend.url)) as served,
        served.open("chat", request("chat", stream=True)) as answer,
    ):
        asked = await backend.asked.get()
        await asked.say("Hi")
        await answer.content.readany()
        asked.cut()
        rest = await answer.read()
    assert rest.count(b'"error"') == 1
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_whole_reply_to_a_client_of_a_stream_is_streamed(ask):
    (answer,) = await ask(StatusReply(200, whole()), stream=True)
    assert words(answer) == "Hi"
    assert answer.frames[-1] == ("", "[DONE]")


async def test_a_stream_to_a_client_of_a_whole_reply_is_put_together(serving, by_hand):
    async with by_hand() as backend, serving(BackendSettings(url=backend.url)) as served:
        answer = asyncio.ensure_future(served.post("chat", request("chat", stream=False)))
        asked = await backend.asked.get()
        await asked.say("Hi")
        await asked.end()
        assert text_of("chat", await answer) == "Hi"


@ways
async def test_an_error_before_the_first_token_has_its_status(ask, stream):
    error = {"error": {"message": "overloaded", "code": 503}}
    refusal, broken = await ask(StatusReply(503, error), Raw([error]), stream=stream)
    assert (refusal.status, broken.status >= 500) == (503, True)
    assert "overloaded" in broken.text


async def test_a_client_that_leaves_cancels_the_reply(serving, by_hand):
    async with by_hand() as backend, serving(BackendSettings(url=backend.url)) as served:
        async with served.open("chat", request("chat", stream=True)) as answer:
            asked = await backend.asked.get()
            await asked.say("Hi")
            await answer.content.readany()
        await asked.left.wait()


TOOLS = {"search": {"type": "object", "properties": {"q": {"type": "string"}}}}
CALL = [
    HEAD | chunk(role="assistant", content=None),
    HEAD | call_chunk(identifier="call_1", name="search", arguments='{"q":"x"}'),
    HEAD | chunk("tool_calls"),
    "[DONE]",
]
LONG = {
    "tools are watched for": (Raw([*said("Hi"), "[DONE]"]), {}, {"tools": TOOLS}),
    "a control token was escaped": (Raw([*said("Hi"), "[DONE]"]), {}, {"said": "<|im_start|>system"}),
    "nothing may be lost": (Raw([*said("Hi"), "[DONE]"]), {"strict": True}, {}),
    "a budget": (Raw([*said("Hi"), "[DONE]"]), {"budget_per_day": 1.0, "prices": {"m": Prices(input=1, output=1)}}, {}),
    "a call nobody declared": (Raw(CALL), {}, {}),
    "a call of Chat Completions": (Raw(CALL), {"profiles": {"m": {"watch": ""}}}, {"tools": TOOLS}),
    "text in parts": (Raw([HEAD | chunk(content=[{"type": "text", "text": "Hi"}]), *said("!"), "[DONE]"]), {}, {}),
}


@pytest.mark.parametrize("why", LONG)
async def test_what_may_change_takes_the_long_way(ask, why):
    reply, settings, fields = LONG[why]
    (answer,) = await ask(reply, settings=settings, stream=True, **fields)
    assert answer.status == 200
    assert {each["created"] for each in answer.events} != {1}


async def test_text_is_passed_and_the_call_after_it_is_repaired(ask):
    first, text, *_ = said("Hi")
    calls = [HEAD | call_chunk(name="search", arguments=json.dumps({"q": query})) for query in "xy"]
    reply = Raw([first, text, *calls, HEAD | chunk("tool_calls"), "[DONE]"])
    (answer,) = await ask(reply, settings={"profiles": {"m": {"watch": ""}}}, stream=True, tools=TOOLS)
    assert words(answer) == "Hi"
    assert [each["created"] for each in answer.events[:2]] == [1, 1]
    assert calls_of("chat", answer) == [("search", {"q": "x"}), ("search", {"q": "y"})]
    parts = [each for event in answer.events for each in event["choices"][0]["delta"].get("tool_calls", ())]
    assert len({each["id"] for each in parts if "id" in each}) == 2
    assert answer.events[-1]["choices"][0]["finish_reason"] == "tool_calls"


# Streams in pieces.


def chat_frames(texts, gap):
    return [f"data: {json.dumps(each, ensure_ascii=len(str(each)) % 2 == 0)}{gap}" for each in said(*texts)] + [
        f"data: [DONE]{gap}"
    ]


def messages_frames(texts, gap):
    usage = {"input_tokens": 11, "output_tokens": 1}
    message = {"id": "msg", "type": "message", "role": "assistant", "content": [], "model": "theirs", "usage": usage}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    return [f"event: {each['type']}{gap[: len(gap) // 2]}data: {json.dumps(each)}{gap}" for each in events]


FRAMES = {"chat": chat_frames, "messages": messages_frames}
CONTEXT = DecodeContext(identify=identify_in_turn(1))
pieces_of_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def decoded(wire):
    """The long way: the stages that decode every reply."""
    return pipe(SSEDecoder(), SSEPayloads(None), get_wire(wire).stream_decoder(CONTEXT))


def read(wire, data):
    """The events of bytes, as clients read them."""
    stages = decoded(wire)
    return [*stages.feed(data), *stages.finish()]


def answer_of(wire, stages, chunks, why="stop"):
    """The bytes that the client gets of a reply, and the events that the gateway counts."""
    seen, sent = [], []

    async def source(record):
        for events in (*map(stages.feed, chunks), stages.finish(why)):
            if events:
                record.add_notes(events)
                record.set_end(events)
                seen.extend(events)
                yield events

    async def send(message):
        sent.append(message.get("body", b""))

    body = request(wire, stream=True, stream_options={"include_usage": True})
    exchange = Exchange(
        front=FRONTENDS[wire],
        request=Request("m", (), stream=True),
        body=body,
        echo=body,
        identifier="ours",
        created=1,
        record=ReplyRecord(front=wire),
        source=source,
    )
    asyncio.run(respond(exchange, asyncio.Event().wait, send, heartbeat=60.0))
    return b"".join(sent), [event for event in seen if isinstance(event, (Usage, ReplyEnded, ReplyFailed))]


def pass_on(wire, chunks, why="stop", *, has_tools=False):
    return answer_of(
        wire, PassThrough(get_wire(wire), CONTEXT, ClientView("ours", "m"), has_tools=has_tools), chunks, why
    )


def cut(data, places):
    ends = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(ends)]


def facts(events):
    """What a reply means: its texts, its calls, its end, and its usage unless the reply failed."""
    calls = [event for event in events if isinstance(event, (InvocationStarted, InvocationEnded))]
    ends = [event for event in events if isinstance(event, (Usage, ReplyEnded, ReplyFailed))]
    ends = ["failed"] if isinstance(ends[-1], ReplyFailed) else ends
    return text_in(events, TextPiece), text_in(events, ReasoningPiece), calls, ends


def text_in(events, kind):
    return "".join([event.text for event in events if isinstance(event, kind)])


@pytest.mark.hypothesis
@pytest.mark.parametrize("wire", FRAMES)
@given(
    texts=st.lists(pieces_of_text, min_size=1, max_size=8),
    gap=st.sampled_from(["\n\n", "\r\n\r\n"]),
    places=st.lists(st.integers(0, 4000), max_size=12),
    noise=st.sampled_from(["", ": comment\n\n", "retry: 5\n\n", "\n"]),
)
def test_the_bytes_do_not_depend_on_how_the_backend_cut_them(wire, texts, gap, places, noise):
    data = noise.join(FRAMES[wire](texts, gap)).encode()
    passed, ends = pass_on(wire, [data])
    assert (passed, ends) == pass_on(wire, cut(data, places))
    assert passed
    assert facts(read(wire, passed)) == facts(read(wire, data)) == ("".join(texts), "", [], ends)


@pytest.mark.hypothesis
@pytest.mark.parametrize("wire", FRAMES)
@given(data=st.data(), places=st.lists(st.integers(0, 4000), max_size=6))
def test_bytes_of_any_kind_end_as_the_long_way_ends(wire, data, places):
    frames = FRAMES[wire](["Hi", "there", "you"], "\n\n")
    odd = st.one_of(st.sampled_from(frames), st.binary(max_size=20).map(lambda each: each.decode("latin-1")))
    sent = "".join(data.draw(st.lists(odd, max_size=8))).encode("latin-1")
    passed, ends = pass_on(wire, cut(sent, places))
    again, same_ends = pass_on(wire, [sent])
    assert ends == same_ends
    if isinstance(ends[-1], ReplyEnded):
        assert passed == again
        assert facts(read(wire, passed))[0] == facts(read(wire, sent))[0]


def tool_call(index=0, identifier=None, **function):
    call = {"index": index, "function": function} | ({"id": identifier} if identifier else {})
    return {"tool_calls": [call]}


deltas = st.one_of(
    st.builds(lambda text: {"content": text}, pieces_of_text),
    st.builds(lambda text: {"reasoning_content": text}, pieces_of_text),
    st.builds(lambda text: {"reasoning": text, "content": None}, pieces_of_text),
    st.builds(lambda text: {"content": [{"type": "text", "text": text}]}, pieces_of_text),
    st.sampled_from(
        [
            {"role": "assistant", "content": ""},
            {"content": "Hi", "tool_calls": []},
            {"content": "Hi", "mood": "calm"},
            tool_call(name="f", arguments=""),
            tool_call(arguments='{"q":'),
            tool_call(arguments='"x"}'),
            tool_call(name="f", arguments='{"q":"x"}'),
            tool_call(1, "call_9", name="g", arguments="{}"),
            {"function_call": {"name": "f", "arguments": "{}"}},
        ]
    ),
)
payloads = st.one_of(
    st.builds(lambda delta: chunk(**delta), deltas),
    st.builds(lambda delta, reason: chunk(reason, **delta), deltas, st.sampled_from(["", "stop", "length"])),
    st.builds(lambda text: {"choices": [{"index": 0, "message": {"content": text}}]}, pieces_of_text),
    st.sampled_from(
        [
            {"choices": [], "usage": COUNTS},
            {"choices": [*chunk(content="Hi")["choices"], {"index": 1, "delta": {"content": "Ho"}}]},
            {"choices": [{"index": 1, "delta": {"content": "Ho"}}]},
            {"error": {"message": "out of memory"}},
            "[DONE]",
            "{not json",
            '{"choices":\ndata: []}',
        ]
    ),
)
ends_of_streams = st.sampled_from(
    [[], ["[DONE]"], [chunk("stop"), "[DONE]"], [chunk("stop"), {"choices": [], "usage": COUNTS}]]
)


@st.composite
def streams(draw):
    """The bytes of a stream, as backends of all kinds write them."""
    names = draw(st.lists(st.sampled_from([HEAD, HEAD | {"id": "other"}, {"id": "", "model": ""}, {}]), min_size=1))
    gap = draw(st.sampled_from(["\n\n", "\r\n\r\n", "\n: comment\n\n"]))
    chunks = [*draw(st.lists(payloads, max_size=8)), *draw(ends_of_streams)]
    texts = [
        each if isinstance(each, str) else json.dumps(name | each)
        for each, name in zip(chunks, cycle(names), strict=False)
    ]
    data = "".join([f"data: {each}{gap}" for each in texts]).encode()
    return data[: len(data) - draw(st.sampled_from([0, 0, 1, 2, 9]))]


@pytest.mark.hypothesis
@given(data=streams(), places=st.lists(st.integers(0, 4000), max_size=6), has_tools=st.booleans())
def test_a_reply_means_what_it_means_by_the_long_way(data, places, has_tools):
    chunks = cut(data, places)
    passed, ends = pass_on("chat", chunks, has_tools=has_tools)
    expected, expected_ends = answer_of("chat", decoded("chat"), chunks)
    assert ends == expected_ends
    if passed.startswith(b"data: "):
        assert facts(read("chat", passed)) == facts(read("chat", expected))
        assert passed.count(b"data: [DONE]") == 1
    else:  # a failure with the first token is an answer without a stream, which the long way may have begun
        assert facts(read("chat", passed)) == ("", "", [], ["failed"])


@pytest.mark.parametrize("choice", ['"message": {"content": "Hi"}', '\ndata: "delta": {"content":\ndata: "Hi"}'])
def test_text_of_a_whole_message_and_in_several_lines_arrives_in_pieces(choice):
    passed, _ = pass_on("chat", [f'data: {{"choices": [{{"index": 0, {choice}}}]}}\n\ndata: [DONE]\n\n'.encode()])
    chunks = [json.loads(frame.data) for frame in SSEDecoder().feed(passed) if frame.data != "[DONE]"]
    assert "".join([each["choices"][0]["delta"].get("content", "") for each in chunks]) == "Hi"


@pytest.mark.parametrize("halves", [('"\\ud83d"', '"\\ude00"'), ('"a\\ud83d"', '"\\ude00b"')])
def test_the_halves_of_a_character_are_joined(halves):
    frames = [json.dumps(each) for each in said("x", "FIRST", "SECOND")]
    frames = [each.replace('"FIRST"', halves[0]).replace('"SECOND"', halves[1]) for each in frames]
    data = "".join([f"data: {each}\n\n" for each in [*frames, "[DONE]"]]).encode()
    passed, _ = pass_on("chat", [data])
    assert facts(read("chat", passed)) == facts(read("chat", data))
    assert "😀".encode() in passed or b"\\ud83d\\ude00" in passed
    assert b'\\ud83d"' not in passed


def test_each_frame_has_the_names_of_the_gateway():
    names = [{"id": "", "model": ""}, {"id": "a", "model": "org/b"}, {"id": "c"}, {"id": "d", "model": "e"}]
    chunks = [each | name for each, name in zip(said("x", "y", "z"), names, strict=False)]
    data = "".join([f"data: {json.dumps(each)}\n\n" for each in chunks]).replace("org/b", "org\\/b")
    passed, _ = pass_on("chat", [data.encode()])
    frames = [json.loads(each[6:]) for each in passed.decode().split("\n\n") if "choices" in each]
    assert {(each["id"], each["model"]) for each in frames[1:]} == {("ours", "m")}


def test_text_arrives_at_once_after_chunks_with_unknown_fields():
    empty, text = [{**HEAD, **chunk(content=each, mood="calm")} for each in ("", "Hi")]
    passing = PassThrough(get_wire("chat"), CONTEXT, ClientView("ours", "m"), has_tools=False)
    events = [
        event for each in (empty, empty, text) for event in passing.feed(f"data: {json.dumps(each)}\n\n".encode())
    ]
    assert TextPiece("Hi") in events


def test_bytes_that_are_not_utf8_do_not_reach_the_client():
    frames = [json.dumps(each).encode() for each in said("x", "y", "BAD")]
    data = b"".join([b"data: %b\n\n" % each.replace(b"BAD", b"\xff") for each in [*frames, b"[DONE]"]])
    passed, ends = pass_on("chat", [data])
    assert "\ufffd" in passed.decode()
    assert ends[-1] == ReplyEnded("stop")


def test_a_frame_without_an_end_is_refused():
    begin = "".join(FRAMES["chat"](["Hi"], "\n\n")[:2]).encode()
    passing = PassThrough(get_wire("chat"), CONTEXT, ClientView("ours", "m"), has_tools=False)
    passing.feed(begin)
    passing.feed(b"data: " + b"x" * 2**23)
    with pytest.raises(ProviderError, match="a frame of the stream is larger than"):
        passing.feed(b"x" * 2**23)
