"""Requests of one run of a client are one session: whose they are, and what their sums say."""

from __future__ import annotations

import asyncio
import json

import pytest

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ResultCanister, TextPiece, Usage
from callboard.profiles import Prices
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.request_log import RequestLog
from callboard.servers.gateway.sessions import is_failure
from callboard.servers.gateway.traffic import Traffic
from callboard.testing import FakeBackend

SESSION = "d9ac269b-425d-4681-b3d7-9bad11e50e4f"
KEYS = {"ann": "sk-ann-of-this-test-0123456789", "bob": "sk-bob-of-this-test-0123456789"}
USER = {"role": "user", "content": "Make it."}
BODIES = {
    "chat": {"messages": [USER]},
    "messages": {"max_tokens": 9, "messages": [USER]},
    "responses": {"input": "Make it."},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Make it."}]}]},
}


@pytest.fixture
def traffic(serving, logged):
    """The sessions and turns after these requests: pairs of a path, a body and headers."""

    async def run(replies, *requests, **settings):
        async with FakeBackend(replies) as backend, serving(backend, extend=logged, **settings) as served:
            for path, body, headers in requests:
                answer = await served.post(path, {"model": "gpt-5", **body}, headers)
                assert answer.status == 200, answer
            while any(entry.is_live for entry in served.request_log.newest()):  # noqa: ASYNC110  # it ends after its answer
                await asyncio.sleep(0)
            found = Traffic(served.gateway, served.request_log)
            sessions = await found.sessions()
            return sessions, [await found.turns(each.identifier) for each in sessions]

    return run


def call(name, identifier="call_1"):
    return [
        InvocationStarted(0, identifier, name),
        InvocationEnded(0, identifier, name, {}, "{}"),
        Usage(11, 7),
        ReplyEnded("invocations"),
    ]


def after_call(name, output, identifier="call_1"):
    """A conversation of Chat Completions after a call."""
    asked = {"id": identifier, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": identifier, "content": output},
        ]
    }


@pytest.mark.parametrize(
    ("path", "fields", "headers", "client"),
    [
        ("messages", {}, {"x-claude-code-session-id": SESSION, "user-agent": "claude-cli/2.1 (cli)"}, "Claude Code"),
        ("messages", {"metadata": {"user_id": json.dumps({"session_id": SESSION})}}, {}, "Python"),
        ("messages", {"metadata": {"user_id": f"user_0a_account__session_{SESSION}"}}, {}, "Python"),
        ("responses", {}, {"session-id": SESSION, "user-agent": "codex_exec/0.169 (Debian)"}, "Codex"),
        ("responses", {}, {"session_id": SESSION, "user-agent": "codex_cli_rs/0.40"}, "Codex"),
        ("responses", {"prompt_cache_key": SESSION}, {"user-agent": "Mozilla/5.0"}, "Mozilla"),
        ("chat", {}, {"x-session-affinity": SESSION, "user-agent": "opencode/1.18 ai-sdk"}, "opencode"),
    ],
)
async def test_a_session_that_a_client_names(traffic, path, fields, headers, client):
    request = path, {**BODIES[path], **fields}, headers
    other = path, BODIES[path], {}
    [session], [turns] = await traffic(["Hi", "Hi", "Hi"], request, other, request)
    assert (session.name, session.turns, session.client_name) == (SESSION, 2, client)
    assert [row.number for row in turns] == [1, 3]


@pytest.mark.parametrize("path", ["chat", "messages", "responses", "gemini"])
async def test_a_client_without_a_name_continues_the_conversation_that_began_the_same(traffic, path):
    """Qwen Code and Gemini CLI name no session. A second run with the same prompt is another session."""
    said = {
        "chat": {"messages": [USER, {"role": "assistant", "content": "Done."}, USER]},
        "messages": {"max_tokens": 9, "messages": [USER, {"role": "assistant", "content": "Done."}, USER]},
        "responses": {"input": [USER, {"role": "assistant", "content": "Done."}, USER]},
        "gemini": {
            "contents": [*BODIES["gemini"]["contents"], {"role": "model", "parts": [{"text": "Done."}]}]
            + BODIES["gemini"]["contents"]
        },
    }[path]
    first, more = (path, BODIES[path], {}), (path, said, {})
    sessions, turns = await traffic(["Done."] * 6, first, more, more, first, more, first)
    assert [each.turns for each in sessions] == [2, 3]  # the last run has one request, and is no row
    assert [[row.number for row in each] for each in turns] == [[4, 5], [1, 2, 3]]


async def test_no_client_adds_to_the_session_of_another_key(traffic):
    requests = [
        ("chat", BODIES["chat"], {"authorization": f"Bearer {key}", "session_id": SESSION}) for key in KEYS.values()
    ]
    sessions, _ = await traffic(["Hi", "Hi"], *requests, keys={name: digest(key) for name, key in KEYS.items()})
    assert [(each.key, each.turns) for each in sessions] == [("bob", 1), ("ann", 1)]


async def test_a_hostile_name_is_cut_and_escaped(traffic):
    long = "x" * 1_000_000
    bad = ("responses", {**BODIES["responses"], "prompt_cache_key": f"\x1b[2J\u202e{long}"}, {})
    none = ("messages", {**BODIES["messages"], "metadata": {"user_id": long}}, {})
    odd = ("messages", {**BODIES["messages"], "metadata": {"user_id": '{"session_id": 5}'}}, {})
    [session], _ = await traffic(["Hi"] * 4, bad, bad, none, odd)
    assert (session.turns, len(session.identifier)) == (2, 20)
    assert session.name.isprintable()
    assert len(session.name) < 150


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sums_of_a_session(traffic, stream):
    headers = {"x-session-id": SESSION}
    usage = [TextPiece("Done."), Usage(20, 3), ReplyEnded("stop")]
    requests = [
        BODIES["chat"],
        after_call("bash", "Exit code: 2\nls: no such file"),
        after_call("bash", "made", "call_2"),
        after_call("bash", "made", "call_2"),
    ]
    [session], [turns] = await traffic(
        [call("bash"), call("bash", "call_2"), usage, usage],
        *[("chat", {**body, "stream": stream}, headers) for body in requests],
        prices={"gpt-5": Prices(input=1e6, output=1e6)},
    )
    assert (session.turns, session.tools) == (4, (("bash", 2, 1),))
    assert (session.input, session.output, session.cost) == (62, 20, 82.0)
    assert [(row.tools, row.failed_calls, row.cost) for row in turns] == [
        (("bash",), 1, 18.0),
        (("bash",), 0, 18.0),
        ((), 0, 23.0),
        ((), 0, 23.0),
    ]
    assert 0 < session.token_seconds < sum([row.seconds for row in turns])


async def test_a_session_outlives_its_requests_in_the_log(serving, logged):
    headers = {"x-session-id": SESSION}
    async with FakeBackend(lambda _: "Hi") as backend, serving(backend, extend=logged) as served:
        served.request_log._max_requests = 2
        for _ in range(5):
            await served.post("chat", {"model": "gpt-5", **BODIES["chat"]}, headers)
        found = Traffic(served.gateway, served.request_log)
        [session] = await found.sessions()
        turns = await found.turns(session.identifier)
    assert session.turns == 5
    assert [row.number for row in turns] == [4, 5]


def test_the_number_of_sessions_is_bounded():
    log = RequestLog(max_requests=10)
    for number in range(1000):
        log.begin("chat", session=str(number))
    assert len(log.sessions.newest()) == 500
    assert log.sessions.newest()[0].name == "999"


@pytest.mark.parametrize(
    "text",
    [
        "Exit code 2\nls: cannot access '/nope'",
        "Chunk ID: 3905cc\nWall time: 0.0000 seconds\nProcess exited with code 2\nOutput:\n",
        f"Command: ls\nOutput: {'x' * 5000}\nError: (none)\nExit Code: 1\nSignal: (none)",
        "unsupported call: nosuch",
        "File not found: /nope/x.txt",
        'Tool "nosuch" not found in registry. Tools must use the exact names that are registered.',
        "Error executing tool write_file: no",
    ],
)
def test_the_words_of_coding_clients_for_a_failed_call(text):
    assert is_failure(ResultCanister(text, invocation_id="c"))


@pytest.mark.parametrize(
    "text",
    [
        "Chunk ID: 0c\nProcess exited with code 0\nOutput:\n",
        "Command: ls\nOutput: a.py\nError: (none)\nExit Code: 0\nSignal: (none)",
        "def error(text):\n    return 1",
        "2 errors were fixed",
        "",
    ],
)
def test_other_results_are_no_failures(text):
    assert not is_failure(ResultCanister(text, invocation_id="c"))
