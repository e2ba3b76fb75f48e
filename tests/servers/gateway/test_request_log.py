"""The log of requests: what it holds of each, for how long, and what it never holds."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from callboard.core import InvocationEnded, Note, ReplyEnded, ReplyStarted, TextPiece, Usage
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.request_log import MAX_BODY, CutBytes, LoggedRequest, RequestLog
from callboard.servers.gateway.request_view import read_events, view_request, view_row
from callboard.testing import FakeBackend, Silence, StatusReply

ASK = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
KEY = "sk-client-of-this-test-0123456789"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


async def ask(serving, logged, replies, *bodies, headers=None, path="chat", **settings):
    """The entries of these requests in a new log, the oldest first, and the answers."""
    async with (
        FakeBackend(replies) as backend,
        serving(backend, extend=logged, **settings) as served,
    ):
        answers = [await served.post(path, body, headers) for body in bodies]
        await asyncio.sleep(0)
        return [*reversed(list(served.request_log.newest()))], answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat", "messages", "responses", "gemini"])
async def test_what_is_kept_of_a_request(serving, logged, path, stream):
    bodies = {
        "responses": {"model": "gpt-5", "input": "Hi"},
        "messages": {**ASK, "max_tokens": 9},
        "gemini": {"model": "gpt-5", "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    }
    body = {**bodies.get(path, ASK), "stream": stream}
    [entry], [answer] = await ask(serving, logged, ["Hello, who is there?"], body, path=path)
    assert (entry.front, entry.model, entry.status, entry.is_live) == (path, "gpt-5", 200, False)
    assert entry.client.startswith("Python")
    assert entry.answer.join() == answer.data
    assert {} != msgspec.json.decode(entry.body).items() <= body.items()
    assert [reply.plan.mode.name for reply in entry.replies] == ["native"]
    assert "".join([e.text for e in read_events(entry.replies[0]) if isinstance(e, TextPiece)]) == (
        "Hello, who is there?"
    )
    assert entry.record.end == ReplyEnded("stop")
    assert 0 < entry.first_at <= entry.seconds
    assert entry.record.token == ""


def test_a_row_that_was_made_while_its_request_ended_is_made_anew(monkeypatch):
    """Rows of large requests are made on a thread."""
    entry = RequestLog().begin("chat")

    def end():
        entry.finish(200, 1.0)
        return 0.0

    with monkeypatch.context() as patch:
        patch.setattr("callboard.servers.gateway.request_view.monotonic", end)
        assert view_row(entry).is_open
    assert view_row(entry).end == "left"


async def test_a_gateway_without_a_board_keeps_nothing(serving):
    async with FakeBackend(["Hello"]) as backend, serving(backend) as served:
        answer = await served.post("chat", ASK)
        outcome = served.request_log, answer.status
    assert outcome == (None, 200)


async def test_a_request_is_seen_while_it_is_answered(serving, logged):
    async with (
        FakeBackend([Silence([ReplyStarted("r", "m"), TextPiece("So far")])]) as backend,
        serving(backend, extend=logged) as served,
    ):
        async with served.open("chat", {**ASK, "stream": True}) as answer:
            await answer.content.readuntil(b"So far")
            [entry] = served.request_log.newest()
            view = view_request(entry)
        await asyncio.wait_for(backend.disconnected.wait(), 60)
    row = view_row(entry)
    assert view.row.end == "open"
    assert "So far" in view.answer
    assert "So far" in view.replies[0].raw
    assert any("So far" in line for line in view.replies[0].reading.events)
    assert not any("reply_failed" in line for line in view.replies[0].reading.events)
    assert row.end == "left"


async def test_keys_are_kept_by_name_only(serving, logged):
    [entry], _ = await ask(
        serving, logged, ["Hello"], ASK, headers={"authorization": f"Bearer {KEY}"}, keys={"ann": digest(KEY)}
    )
    assert (entry.owner, entry.key) == ("ann", "ann")
    assert KEY not in everything(entry)


async def test_a_clients_own_key_is_not_kept(serving, logged):
    """Neither where a backend's refusal repeats it, nor where its reply does."""
    refusal = StatusReply(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    entries, answers = await ask(
        serving, logged, [refusal, f"It is {KEY}."], ASK, ASK, headers={"authorization": f"Bearer {KEY}"}
    )
    assert KEY in answers[0].text + answers[1].text  # it is the client's own
    assert [entry.key for entry in entries] == [f"client-{digest(KEY)[:8]}"] * 2
    assert not any(KEY in everything(entry) for entry in entries)
    assert "***" in view_row(entries[0]).why


async def test_whoever_has_no_key_is_not_in_the_log(serving, logged):
    """It would push out what others asked."""
    entries, [answer] = await ask(
        serving,
        logged,
        ["Hello"],
        ASK,
        headers={"authorization": "Bearer sk-nobodys-key-at-all"},
        keys={"ann": digest(KEY)},
    )
    assert (entries, answer.status) == ([], 401)


def test_a_request_is_open_until_its_key_is_masked():
    """A viewer on a thread sees nothing of a request that is only half finished."""
    seen = []

    class Watched(LoggedRequest):
        def _mask(self, token):
            seen.append((self.is_live, self.record.token))

    entry = Watched(identifier="x-1", number=1, front="chat", at=1.0)
    entry.record.token = KEY
    entry.finish(200, 0.1, KEY)
    assert (seen, entry.is_live, entry.record.token) == ([(True, KEY)], False, "")


def everything(entry):
    """All that a log's entry holds and that its pages show, as one text."""
    held = [entry.body, entry.answer.join(), *[reply.body.join() for reply in entry.replies]]
    return f"{held} {entry.notes} {entry.record.end} {entry.key} {view_request(entry)}"


async def test_refusals_of_the_gateway_are_there_too(serving, logged):
    entries, _ = await ask(serving, logged, [], b"{", {"messages": []}, {**ASK, "model": "../x"})
    assert [(entry.failure, entry.status) for entry in entries] == [
        ("invalid_json", 400),
        ("model_required", 400),
        ("invalid_request", 400),
    ]
    assert [view_row(entry).end for entry in entries] == ["refused"] * 3


async def test_what_a_row_counts(serving, logged):
    reply = [
        TextPiece('<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'),
        Usage(7, 5),
        ReplyEnded("stop"),
    ]
    [entry], _ = await ask(serving, logged, [reply], {**ASK, "tools": TOOLS, "store": True, "web_search_options": {}})
    row = view_row(entry)
    assert (row.recovered, row.input, row.output, row.end) == (1, 7, 5, "invocations")
    assert (row.mode, row.wire, row.backend) == ("native", "chat", entry.record.backend_name)
    assert any(isinstance(event, InvocationEnded) for event in read_events(entry.replies[0]))
    assert view_row(entry) is row  # made once


async def test_credentials_of_tools_are_not_shown(serving, logged):
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://x.test", "authorization": "Bearer of-secrets"}
    body = {"model": "gpt-5", "input": "Hi", "tools": [{**tool, "headers": {"x-key": "another-secret"}}]}
    [entry], _ = await ask(serving, logged, ["Hello"], body, path="responses")
    assert "server_label" in view_request(entry).body
    assert "of-secrets" not in view_request(entry).body
    assert "another-secret" not in view_request(entry).body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            "responses",
            {
                "input": "Hi",
                "tools": [
                    {
                        "type": "mcp",
                        "server_label": "s",
                        "server_url": "https://user:one-secret@x.test/?key=two-secret",
                        "authorization": "Bearer three-secret",
                        "headers": {"x-key": "four-secret"},
                    }
                ],
            },
        ),
        (
            "messages",
            {
                "max_tokens": 5,
                "messages": ASK["messages"],
                "mcp_servers": [{"type": "url", "url": "https://x.test", "authorization_token": "one-secret"}],
            },
        ),
        ("chat", {**ASK, "api_key": "one-secret", "tools": [{"type": "mcp", "mcp": {"headers": ["two-secret"]}}]}),
        ("responses", {"input": 5, "tools": [{"type": "mcp", "mcp": {"headers": ["two-secret"]}}]}),
    ],
    ids=["responses", "messages", "chat", "refused"],
)
async def test_credentials_of_a_client_are_seen_nowhere(serving, logged, path, fields, stream):
    [entry], _ = await ask(serving, logged, ["Hello"], {"model": "gpt-5", "stream": stream, **fields}, path=path)
    view = view_request(entry)
    assert "-secret" not in str(view)
    assert "***" in view.body


async def test_the_schema_of_a_function_is_no_credential(serving, logged):
    schema = {"type": "object", "properties": {"token": {"type": "string", "description": "of the door"}}}
    tools = [{"type": "function", "name": "open", "parameters": schema}]
    [entry], _ = await ask(
        serving, logged, ["Hello"], {"model": "gpt-5", "input": "Hi", "tools": tools}, path="responses"
    )
    assert "of the door" in view_request(entry).body
    assert "of the door" in view_request(entry).answer


async def test_what_declares_too_many_credentials_is_not_shown(serving, logged):
    tools = [{"type": "mcp", "headers": {f"x-{n}": f"secret-{n:04}" for n in range(1000)}}]
    [entry], _ = await ask(
        serving, logged, ["Hello"], {"model": "gpt-5", "input": "Hi", "tools": tools}, path="responses"
    )
    assert "secret-" not in str(view_request(entry))


def test_the_oldest_go_first():
    log = RequestLog(max_requests=3)
    entries = [log.begin("chat") for _ in range(5)]
    assert [entry.is_gone for entry in entries] == [True, True, False, False, False]
    assert [entry.number for entry in log.newest()] == [5, 4, 3]
    assert log.get(entries[0].identifier) is None
    assert log.get(entries[4].identifier) is entries[4]


def test_bytes_are_bounded_and_a_request_that_has_gone_takes_no_more():
    log = RequestLog(max_bytes=100_000)
    first, second = log.begin("chat"), log.begin("chat")
    second.set_body(b"x" * 24_400)
    assert len(log) == 1  # a body counts for what is made of it as well
    assert first.is_gone
    cost = log.cost
    first.set_body(b"x" * 10_000)
    first.add_sent(b"x" * 10_000)
    first.add_note(Note("alert", "x"))
    first.finish(200, 0.1)
    assert log.cost == cost
    assert not first.answer.chunks
    second.add_sent(b"x" * 90_000)
    assert (len(log), log.cost) == (0, 0)


def test_each_text_is_kept_up_to_a_limit():
    held = CutBytes(10)
    for chunk, kept in ((b"123456", 6), (b"789012", 4), (b"3", 0)):
        assert held.add(chunk) == kept
    assert (held.join(), held.size, held.is_cut) == (b"1234567890", 13, True)
    assert CutBytes().limit == MAX_BODY


def test_identifiers_of_two_processes_differ():
    assert RequestLog().begin("chat").identifier != RequestLog().begin("chat").identifier
