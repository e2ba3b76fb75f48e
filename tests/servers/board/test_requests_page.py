"""The pages of the gateway's requests, on a gateway that runs."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager

import pytest
from tests.servers.gateway.conftest import Served, behind
from tests.servers.gateway.conftest import serve_gateway as serving

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, TextPiece, Usage
from callboard.evaluation.kept_tests import TaskFile
from callboard.evaluation.suites import load_file, recorded_path
from callboard.profiles import Prices
from callboard.servers.board.app import Board, BoardParts
from callboard.servers.gateway.traffic import Traffic
from callboard.testing import FakeBackend, StatusReply

HOSTILE = "<script>alert(1)</script>"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ASK = {"model": "gpt-5", "messages": [{"role": "user", "content": f"Hi {HOSTILE}"}], "stream": True}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'


class Visitor:
    """A browser that is logged in at the board of a gateway."""

    def __init__(self, served: Served, login):
        self._served = served
        session = login.begin_session()
        self.headers = {"cookie": f"{login.cookie}={session}", "accept": "text/html"}
        self._token = login.form_token(login.find_session(session))

    async def get(self, path):
        """The text of a page. It holds nothing that a browser would run."""
        answer = await self._served.get(f"/board{path}", **self.headers)
        assert answer.status == 200, answer
        assert "<script>alert" not in answer.text
        return answer.text

    async def post(self, path, token=None, **fields):
        """What came of a form, and where it leads."""
        answer = await self._served.client.post(
            f"{self._served.root}/board{path}",
            data={"token": self._token if token is None else token, **fields},
            headers=self.headers,
            allow_redirects=False,
        )
        return answer.status, answer.headers.get("location", "").removeprefix("/board"), await answer.text()


@pytest.fixture
def on_gateway(login):
    """A gateway with its board, and its visitor."""

    @asynccontextmanager
    async def run(*backends, **settings):
        def extend(services):
            parts = BoardParts(traffic=Traffic(services.gateway, services.keep_requests()), tests=TaskFile())
            return Board(parts, login)

        async with serving(*backends, extend=extend, **settings) as served:
            yield served, Visitor(served, login)

    return run


def links(page):
    """The requests that a page leads to, in their order."""
    return re.findall(r'href="/board(/requests/[0-9a-f]+-\d+)"', page)


async def test_the_list_and_the_backends(on_gateway):
    replies = ["Hello", StatusReply(429), f"No {HOSTILE}"]
    async with FakeBackend(replies) as backend, on_gateway(backend) as (served, visitor):
        for model in ("gpt-5", "gpt-5", "qwen"):
            await served.post("chat", {**ASK, "model": model})
        pages = [await visitor.get(f"/requests{query}") for query in ("", "?end=failed", "?model=qwen", "?end=x")]
        (every, failed, qwen, none), one = pages, await visitor.get(links(pages[2])[0])
    assert len(links(every)) == 3
    assert len(links(failed)) == len(links(qwen)) == 1
    assert "No matching requests" in none
    assert "closed" in every
    assert "Sent to the client" in one


async def test_pages_of_the_list_by_cursor(on_gateway):
    async with FakeBackend(lambda _: "Hello") as backend, on_gateway(backend) as (served, visitor):
        for _ in range(60):
            await served.post("chat", {**ASK, "stream": False})
        first = await visitor.get("/requests?model=gpt-5")
        older = re.search(r'rel="next" href="/board(/requests\?[^"]+)"', first)[1].replace("&amp;", "&")
        first, second = links(first), links(await visitor.get(older))
    assert (len(first), len(second)) == (50, 10)
    assert not set(first) & set(second)


async def test_one_request_and_what_another_dialect_would_have_read(on_gateway):
    async with (
        FakeBackend([f"{HOSTILE} {CALL}"]) as backend,
        on_gateway(behind(backend, profile={"watch": ""})) as (served, visitor),
    ):
        await served.post("chat", {**ASK, "tools": TOOLS})
        path = links(await visitor.get("/requests"))[0]
        wrong = await served.get(f"/board{path}?dialect=nothing", **visitor.headers)
        plain, replayed, asked = (
            await visitor.get(path),
            await visitor.get(f"{path}?dialect=hermes"),
            len(backend.requests),
        )
    assert "calls in text" not in plain
    found, _, others = plain.partition('<optgroup label="Find no call">')
    assert "<option>hermes</option>" in found.partition('<optgroup label="Find a call">')[2]
    assert "<option>pythonic</option>" in others
    assert "invocation_started" not in plain
    assert "As hermes reads it" in replayed
    assert "invocation_started" in replayed
    assert wrong.status == 404
    assert "no dialect" in wrong.text
    assert asked == 2  # its models, and the one request: a replay asks nobody


async def test_what_is_asked_again_counts_in_the_budget_of_all(on_gateway):
    price = Prices(input=1e6, output=1e6)
    usage = [TextPiece("Yes."), Usage(1, 1), ReplyEnded("stop")]
    async with (
        FakeBackend([usage, usage]) as backend,
        on_gateway(backend, prices={"gpt-5": price}, budget_per_day=3.0) as (served, visitor),
    ):
        await served.post("chat", ASK)
        path = links(await visitor.get("/requests"))[0]
        first, again, _ = await visitor.post(f"{path}/again")
        await visitor.get(f"{again}/live")  # which ends with the reply
        second, _, text = await visitor.post(f"{path}/again")
        client = await served.post("chat", ASK)
        client = client.status
    assert (first, second, client) == (303, 409, 429)
    assert "the budget of all keys for this day is spent: $4 of $3" in text


async def test_ask_again_in_another_mode(on_gateway):
    replies = ["I cannot.", f"Let me see. {CALL}"]
    async with FakeBackend(replies) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", {**ASK, "tools": TOOLS})
        path = links(await visitor.get("/requests"))[0]
        status, again, _ = await visitor.post(f"{path}/again", mode="validated", dialect="hermes")
        assert "event: reload" in await visitor.get(f"{again}/live")  # which ends with the reply
        page = await visitor.get(again)
        posted = [each.body for each in backend.requests if each.method == "POST"]
        before, (first, second) = await visitor.get(path), posted
    assert status == 303
    assert "Side by side" in page
    assert "mode validated, dialect hermes" in page
    assert "They differ from the first entry on." in page
    assert "Original makes no call." in page
    assert "Mode validated, dialect hermes makes 1 call: weather." in page
    assert 'href="?from' not in page  # entries of a reply have no page
    assert "invocation_ended" in page
    assert again in before
    assert "tools" in first
    assert "tools" not in second
    assert "weather" in json.dumps(second["messages"])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mode": "wrong"}, "no mode"),
        ({"dialect": "wrong"}, "no dialect"),
        ({"model": "../x"}, "model"),
        ({"backend": "wrong"}, "does not serve"),
    ],
)
async def test_what_cannot_be_asked_again_is_said(on_gateway, fields, why):
    async with FakeBackend(["Hello"]) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", ASK)
        path = links(await visitor.get("/requests"))[0]
        outcome = await visitor.post(f"{path}/again", **fields)
        (status, _, text), asked = outcome, len([each for each in backend.requests if each.method == "POST"])
    assert (status, asked) == (409, 1)
    assert why in text


async def test_a_clients_key_is_not_there_to_ask_again_with(on_gateway):
    async with FakeBackend(["Hello"]) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", ASK, {"authorization": "Bearer sk-client-0123456789abcdef"})
        path = links(await visitor.get("/requests"))[0]
        (status, _, text), page = await visitor.post(f"{path}/again"), await visitor.get(path)
    assert status == 409
    assert "which are not stored" in text
    assert "sk-client" not in page + text


async def test_forms_of_other_sessions_do_nothing(on_gateway):
    async with FakeBackend(["Hello"]) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", ASK)
        path = links(await visitor.get("/requests"))[0]
        statuses = [(await visitor.post(f"{path}/{each}", token="x"))[0] for each in ("again", "keep")]
        answer = await served.get(f"/board{path}", accept="text/html")
        asked, page = len([each for each in backend.requests if each.method == "POST"]), answer.text
    assert statuses == [403, 403]
    assert asked == 1
    assert "gpt-5" not in page  # whoever is not logged in


async def test_keep_as_a_test(on_gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    async with FakeBackend([CALL]) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", {**ASK, "tools": TOOLS})
        path = links(await visitor.get("/requests"))[0]
        form = await visitor.get(f"{path}/keep")
        fields = {"tool-0": "weather", "arguments-0": '{"city": "Rome"}', "tool-1": "", "arguments-1": "{}"}
        status, place, _ = await visitor.post(f"{path}/keep", **fields)
        second, _, text = await visitor.post(f"{path}/keep", **fields)
        page = await visitor.get("/tests")
    assert "selected>weather" in form
    assert "1 declared tool" in form
    [task] = load_file(recorded_path())
    assert (status, place) == (303, f"/tests?kept={task.identifier}")
    assert task.identifier in page
    assert [(call.name, call.arguments) for call in task.steps[0].expected] == [("weather", {"city": ("Rome",)})]
    assert task.tools[0].schema["required"] == ["city"]
    [vector] = [json.loads(line) for line in recorded_path().with_name("vectors.jsonl").read_text().splitlines()]
    assert vector["wire"] == "chat"
    assert vector["events"][-1] == {"type": "reply_ended", "reason": "stop"}
    assert second == 409
    assert "a task of this name exists" in text


async def test_the_list_follows_what_happens(on_gateway):
    async with FakeBackend(lambda _: "Hello") as backend, on_gateway(backend) as (served, visitor):
        url = f"{served.root}/board/requests/live"
        async with served.client.get(url, headers=visitor.headers) as stream:
            before = await stream.content.readuntil(b"\n\n")
            while b"event" not in before:
                before = await stream.content.readuntil(b"\n\n")
            await served.post("chat", ASK)
            after = await stream.content.readuntil(b"\n\n")
    assert b"No matching requests" in before
    assert b"/board/requests/" in after
    assert b"gpt-5" in after


async def test_a_request_that_is_not_there(on_gateway):
    async with FakeBackend([[TextPiece("x"), ReplyEnded("stop")]]) as backend, on_gateway(backend) as (_, visitor):
        answer = await visitor._served.get("/board/requests/abc-1", **visitor.headers)
    assert answer.status == 404
    assert "no longer kept" in answer.text


async def test_a_session_and_its_turns_in_order(on_gateway):
    headers = {"x-session-id": f"ses_1 {HOSTILE}", "user-agent": f"opencode/1.18 {HOSTILE}"}
    called = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: no such city"},
    ]
    replies = [[InvocationStarted(0, "c1", "weather"), InvocationEnded(0, "c1", "weather", {}, "{}")], "Hello"]
    async with FakeBackend([*replies, "Alone"]) as backend, on_gateway(backend) as (served, visitor):
        await served.post("chat", {**ASK, "tools": TOOLS}, headers)
        await served.post("chat", {**ASK, "messages": asked, "tools": TOOLS}, headers)
        await served.post("chat", ASK)
        page = await visitor.get("/requests")
        [path] = set(re.findall(r'href="/board(/requests/sessions/[0-9a-f]{20})"', page))
        session = await visitor.get(path)
        one = await visitor.get(links(session)[0])
        filtered = await visitor.get("/requests?client=opencode")
        missing = await served.get("/board/requests/sessions/nothing", **visitor.headers)
    first, second, third = links(page)[::-1]
    assert links(session) == [first, second]
    assert set(links(filtered)) == {first, second}
    assert third in links(page)
    assert "1 failed" in session
    assert f'href="/board{path}"' in one
    assert missing.status == 404
