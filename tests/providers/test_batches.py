"""What is asked once more, and what arrives together."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace
from tests.tables import table

from callboard import core
from callboard.core import reply_events
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import HttpModel, Transport
from callboard.providers.http_exchange import ExchangeObserver
from callboard.testing import Cut, FakeBackend, StatusReply

WIRES = ["chat", "responses", "messages", "gemini"]
TOOLS = (
    core.ToolDeclaration("search", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}}),
    core.ToolDeclaration("clock", "The time.", {"type": "object"}),
)
ASKING = core.Request("fake-model", (core.UserCanister("Hi"),), TOOLS)
NO = [core.ReplyStarted(), core.ReasoningPiece("hm"), core.TextPiece("I would "), core.TextPiece("rather not."), core.Usage(10, 4, 2, 1), core.ReplyEnded("stop")]  # fmt: skip
YES = [
    core.ReplyStarted(),
    core.TextPiece('Sure.\n```json\n{"name": "search", "arguments": {"query": "x"}}\n```'),
    core.Usage(20, 8, 4, 2),
    core.ReplyEnded("stop"),
]
WRONG = [
    core.ReplyStarted(),
    core.TextPiece('```json\n{"name": "clock", "arguments": {}}\n```'),
    core.Usage(1, 1),
    core.ReplyEnded("stop"),
]
TWO = [
    core.ReplyStarted(),
    *[
        event
        for at, name in enumerate(["search", "clock"])
        for event in (
            core.InvocationStarted(at, f"c{at}", name),
            core.ArgumentsPiece(at, "{}"),
            core.InvocationEnded(at, f"c{at}", name, {}, "{}"),
        )
    ],
    core.Usage(5, 5),
    core.ReplyEnded("invocations"),
]
WRITTEN = [
    core.ReplyStarted(),
    core.TextPiece(
        '```json\n{"name": "search", "arguments": {}}\n```\n```json\n{"name": "clock", "arguments": {}}\n```'
    ),
    core.ReplyEnded("stop"),
]


@asynccontextmanager
async def model_at(url, wire, mode):
    resolution = resolve("fake-model", {"wire": wire})
    root = url.removesuffix("/v1") if wire == "messages" else url
    model = HttpModel(resolution, make_plan(resolution, mode), Transport(retries=0), base_url=root, reuse_sources=False)
    try:
        async with asyncio.timeout(120):  # against a test that hangs, not part of what it asserts
            yield model
    finally:
        await model.aclose()


def ask(replies, wire="chat", mode="validated", **changes):
    """The batches of one reply, and what the backend was asked."""

    async def scenario():
        async with FakeBackend(replies) as backend, model_at(backend.url, wire, mode) as model:
            batches = [batch async for batch in model.batches(replace(ASKING, **changes))]
        backend.assert_complete()
        return batches, backend.requests

    return asyncio.run(scenario())


def flat(batches):
    return [event for batch in batches for event in batch]


def called(events):
    return [(event.index, event.name) for event in events if isinstance(event, core.InvocationEnded)]


def text_of(events):
    return "".join([event.text for event in events if isinstance(event, core.TextPiece)])


def used(events):
    """The usage that a client is told last, which is the one that counts."""
    return [event for event in events if isinstance(event, core.Usage)][-1:]


@table("wire", WIRES)
@table("stream", [True, False])
@table("wanted", ["required", core.NamedTool("search")], ids=["required", "named"])
def test_a_model_that_did_not_call_is_asked_once_more(wire, stream, wanted):
    batches, requests = ask([NO, YES], wire, tool_choice=wanted, stream=stream)
    events = flat(batches)
    assert all(batches)
    assert called(events) == [(0, "search")]
    assert text_of(events).strip() == "Sure."
    assert events[-1] == core.ReplyEnded("invocations")
    assert [type(event) for event in events].count(core.ReplyStarted) == 1
    assert [note.text for note in events if isinstance(note, core.Note) and note.kind == "repaired"] == [
        "no tool was called although one was asked for: asked once more"
    ]
    assert (used(events)[0].input, used(events)[0].output) == (30, 12)
    assert "I would rather not." in str(requests[1].body)
    assert ("the tool search" if wanted != "required" else "one of the tools") in str(requests[1].body)
    assert str(requests[1].body).count("Hi") == str(requests[0].body).count("Hi")


@table("wire", WIRES)
def test_a_call_of_another_tool_is_asked_for_once_more(wire):
    events = flat(ask([WRONG, YES], wire, tool_choice=core.NamedTool("search"))[0])
    assert called(events) == [(0, "search")]


@table("stream", [True, False])
def test_a_model_that_never_calls(stream):
    events = flat(ask([NO, NO], tool_choice="required", stream=stream)[0])
    assert text_of(events) == "I would rather not."
    assert events[-1] == core.ReplyEnded("no_call")
    assert used(events) == [core.Usage(20, 8, 4, 2)]


@table("second", [[*YES[:2], YES[3]], StatusReply(500), Cut(after=YES[:1])], ids=["no usage", "500", "cut"])
def test_what_was_spent_is_told_whatever_comes_of_the_second(second):
    events = flat(ask([NO, second], tool_choice="required")[0])
    assert used(events) == [core.Usage(10, 4, 2, 1)]
    assert isinstance(events[-1], (core.ReplyEnded, core.ReplyFailed))


@table("reply", [StatusReply(500), Cut(after=NO[:3]), [*NO[:3], core.ReplyEnded("length")]])
def test_what_failed_or_is_too_long_is_not_asked_for_again(reply):
    batches, requests = ask([reply], tool_choice="required")
    assert len(requests) == 1
    assert flat(batches)[-1] != core.ReplyEnded("retry")


@table("wire", WIRES)
@table("stream", [True, False])
@table(("mode", "reply"), [("native", TWO), ("validated", WRITTEN)], ids=["native", "written"])
def test_one_call_at_most(wire, stream, mode, reply):
    events = flat(ask([reply], wire, mode, parallel=False, stream=stream)[0])
    assert called(events) == [(0, "search")]
    assert events[-1] == core.ReplyEnded("invocations")
    assert called(flat(ask([reply], wire, mode, stream=stream)[0])) == [(0, "search"), (1, "clock")]


def test_text_that_needs_no_call_is_given_as_it_comes():
    batches, _ = ask([NO], tool_choice="auto")
    pieces = [[event.text for event in batch if isinstance(event, core.TextPiece)] for batch in batches]
    assert [text for piece in pieces for text in piece if text] != ["I would rather not."]


class Listener(ExchangeObserver):
    passes_refusals = True

    def __init__(self, hear):
        self._hear = hear

    def on_answer(self, model, prepared, plan, response):
        self._hear(response)


@table("stream", [True, False])
def test_headers_go_along_and_those_of_the_answer_are_heard(stream):
    async def scenario():
        replies = [StatusReply(429, headers={"retry-after": "7"}), "Hello"]
        async with FakeBackend(replies) as backend, model_at(backend.url, "chat", "native") as model:
            for _ in replies:
                batches = model.batches(
                    replace(ASKING, stream=stream),
                    headers={"authorization": "Bearer hers"},
                    observer=Listener(
                        lambda response: heard.append((response.status, response.headers.get("Retry-After")))
                    ),
                )
                given.append([batch async for batch in batches])
        return backend.requests

    heard, given = [], []
    requests = asyncio.run(scenario())
    assert heard == [(429, "7"), (200, None)]
    assert [each.headers["authorization"] for each in requests] == ["Bearer hers"] * 2
    assert [type(batches[-1][-1]) for batches in given] == [core.ReplyFailed, core.ReplyEnded]


async def test_each_attempt_is_heard():
    heard = []
    async with FakeBackend([NO, YES]) as backend, model_at(backend.url, "chat", "validated") as model:
        request = replace(ASKING, tool_choice="required")
        async for _ in model.batches(request, observer=Listener(lambda response: heard.append(response.status))):
            pass
    assert heard == [200, 200]


class Loaded:
    """A server of a local model that stands already; the port of `EmbeddedServer`."""

    api_key = "local-key"

    def __init__(self):
        self.base_url = ""
        self.started = 0
        self.prompts = self

    async def start(self):
        self.started += 1

    async def prepare(self, _transport, body):
        assert body["messages"]


async def test_a_local_model_is_started_once_and_asked_as_any_other():
    server = Loaded()
    async with FakeBackend([NO, YES, "Hello"]) as backend:
        server.base_url = backend.url
        resolution = resolve("local:some")
        decided = make_plan(resolution, "validated")
        model = HttpModel(resolution, decided, Transport(), server=server)
        first = [batch async for batch in model.batches(replace(ASKING, tool_choice="required"))]
        second = [event async for event in reply_events(model, ASKING)]
        await model.aclose()
        requests = backend.requests
    assert server.started == 1
    assert called(flat(first)) == [(0, "search")]
    assert text_of(second) == "Hello"
    assert {each.headers["authorization"] for each in requests} == {"Bearer local-key"}
