"""Responses that nobody waits for: asked for, polled, streamed, cancelled, gone on from."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx2
import openai
import psycopg
import pytest

from callboard.core import (
    InvocationEnded,
    InvocationStarted,
    ReasoningPiece,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.sandbox.process_tree import list_processes
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.background_jobs import clean
from callboard.servers.gateway.conversation_state import StoredResponse
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_view import view_row
from callboard.servers.gateway.response_store import ResponseStore
from callboard.testing import FakeBackend, StatusReply

COMMAND = (sys.executable, "-P", "-c", "from callboard.cli import main; main()")
ANN, BOB = "key-of-ann-12345678", "key-of-bob-12345678"
KEYS = {"ann": digest(ANN), "bob": digest(BOB)}
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
PATIENCE = 60
USER = [{"role": "user", "content": "Count."}]
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def reply_of(*events, end="stop"):
    return [ReplyStarted(), *events, Usage(3, 4), ReplyEnded(end)]


@asynccontextmanager
async def sdk(served, key=ANN):
    async with openai.AsyncOpenAI(base_url=served.url, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
def story(serving, database):
    """Runs a story with a FakeBackend's replies: `story(replies, tell, **settings)`."""

    def run(replies, tell, **settings):
        async def whole():
            settings.setdefault("keys", KEYS)
            settings.setdefault("store", database)
            async with FakeBackend(replies) as backend, serving(backend, **settings) as served, sdk(served) as client:
                await tell(SimpleNamespace(client=client, backend=backend, served=served))

        asyncio.run(whole())

    return run


async def end_of(client, identifier):
    """The response when it has ended."""
    stream = await client.responses.retrieve(identifier, stream=True)
    async for _ in stream:
        pass
    return await client.responses.retrieve(identifier)


def test_it_is_queued_made_and_gone_on_from(story, judge_response):
    async def tell(at):
        body = {"model": "m", "input": "My name is Ann.", "background": True}
        answer = await at.served.post("responses", body, {"authorization": f"Bearer {ANN}"})
        judge_response(answer.body)
        assert (answer.body["status"], answer.body["background"], answer.body["output"]) == ("queued", True, [])
        ended = await end_of(at.client, answer.body["id"])
        judge_response(ended.to_dict())
        assert (ended.id, ended.status, ended.output_text) == (answer.body["id"], "completed", "Hello Ann")
        again = await at.client.responses.create(model="m", input="And?", previous_response_id=ended.id)
        assert again.output_text == "so"
        roles = [each["role"] for each in at.backend.requests[-1].body["messages"]]
        assert roles == ["user", "assistant", "user"]
        items = await at.client.responses.input_items.list(ended.id)
        assert items.data[0].content[0].text == "My name is Ann."
        await at.client.responses.delete(ended.id)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(ended.id)

    story(["Hello Ann", "so"], tell)


def test_a_stream_goes_on_behind_any_event(story, judge):
    reply = reply_of(
        ReasoningPiece("hm", opaque="seal", origin="m"),
        TextPiece("Look, "),
        TextPiece("there."),
        InvocationStarted(0, "call_1", "look"),
        InvocationEnded(0, "call_1", "look", {}, "{}"),
        end="invocations",
    )

    async def tell(at):
        stream = await at.client.responses.create(model="m", input="Look!", tools=[TOOL], background=True, stream=True)
        events = [judge(event.to_dict()) async for event in stream]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[:3]] == [
            "response.created",
            "response.queued",
            "response.in_progress",
        ]
        last = events[-1]["response"]
        assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call"]
        identifier = last["id"]
        assert (await at.client.responses.retrieve(identifier)).to_dict() == last
        for number in range(len(events) + 1):
            rest = await at.client.responses.retrieve(identifier, stream=True, starting_after=number)
            assert [event.to_dict() async for event in rest] == events[number + 1 :]
        async with at.client.responses.stream(response_id=identifier, starting_after=4) as replay:
            assert [event.sequence_number async for event in replay] == list(range(5, len(events)))
            assert (await replay.get_final_response()).output_text == "Look, there."

    story([reply], tell)


def test_cancel_stops_the_model_within_a_second(serving, by_hand, database):
    async def whole():
        async with (
            by_hand() as backend,
            serving(BackendSettings(url=backend.url), keys=KEYS, store=database) as served,
            sdk(served) as client,
        ):
            stream = await client.responses.create(model="m", input="On!", background=True, stream=True)
            request = await backend.asked.get()
            await request.say("One, ")
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
            first = await client.responses.retrieve(stream.response.headers["x-request-id"])
            assert first.status == "in_progress"
            async with asyncio.timeout(60):
                ended = await client.responses.cancel(first.id)
                await request.left.wait()
            assert (ended.status, ended.output) == ("cancelled", [])
            assert [event.type async for event in stream][-1] == "response.failed"
            assert (await client.responses.cancel(first.id)).status == "cancelled"
            assert (await client.responses.retrieve(first.id)).status == "cancelled"

    asyncio.run(whole())


def test_who_else_asks_finds_nothing(story):
    async def tell(at):
        ended = await end_of(at.client, (await at.client.responses.create(model="m", input="Hi", background=True)).id)
        assert (await at.client.responses.cancel(ended.id)).status == "completed"
        guess = ended.id[:-1] + ("0" if ended.id[-1] != "0" else "1")
        async with sdk(at.served, BOB) as bob:
            for ask in (
                lambda: bob.responses.retrieve(ended.id),
                lambda: bob.responses.retrieve(ended.id, stream=True),
                lambda: bob.responses.cancel(ended.id),
                lambda: bob.responses.delete(ended.id),
                lambda: at.client.responses.retrieve(guess),
            ):
                with pytest.raises(openai.NotFoundError):
                    await ask()
            with pytest.raises(openai.BadRequestError, match="not found"):
                await bob.responses.create(model="m", input="And?", previous_response_id=ended.id, background=True)

    story(["Hello"], tell)


def test_a_failure_is_told_as_a_response(story, logged):
    """And those who look at the gateway's requests see it."""

    async def tell(at):
        ended = await end_of(at.client, (await at.client.responses.create(model="m", input="Hi", background=True)).id)
        assert (ended.status, ended.error.code) == ("failed", "server_error")
        again = await at.client.responses.retrieve(ended.id, stream=True)
        assert [event.type async for event in again][-1] == "response.failed"
        row, asked = [view_row(entry) for entry in at.served.request_log.newest()][:2]
        assert (row.client, row.end, row.why) == ("in the background", "failed", "server_error: no such thing")
        assert row.key == asked.key == "ann"

    story([StatusReply(400, {"error": {"message": "no such thing", "code": "server_error"}})], tell, extend=logged)


def test_what_the_gateway_refuses_when_its_turn_comes_is_a_refusal_in_the_log(story, logged):
    async def tell(at):
        verdicts = iter([None, HttpError("insufficient_quota", "the budget is spent")])

        async def check(_):
            if error := next(verdicts):
                raise error

        at.served.gateway.spending.check = check
        ended = await end_of(at.client, (await at.client.responses.create(model="m", input="Hi", background=True)).id)
        assert ended.status == "failed"
        row = view_row(next(at.served.request_log.newest()))
        assert (row.client, row.key) == ("in the background", "ann")
        assert (row.end, row.why) == ("refused", "insufficient_quota")

    story([], tell, extend=logged)


@pytest.mark.parametrize(
    ("body", "settings", "words"),
    [
        ({}, {"store": ""}, "no store"),
        ({"store": False}, {}, "is stored"),
        ({"tools": [{"type": "mcp", "server_label": "x", "authorization": "secret"}]}, {}, "keeps no secrets"),
        ({}, {"keys": {}}, "key_variable"),
        ({"input": []}, {}, "nothing is said"),
    ],
)
def test_what_cannot_be_is_refused_at_once(serving, tmp_path, body, settings, words):
    async def whole():
        settings.setdefault("store", f"sqlite:///{tmp_path / 'replies.db'}")
        settings.setdefault("keys", KEYS)
        async with FakeBackend([]) as backend, serving(backend, **settings) as served:
            body_ = {"model": "m", "input": "Hi", "background": True, **body}
            answer = await served.post("responses", body_, {"authorization": f"Bearer {ANN}"})
            assert answer.status == 400
            assert words in answer.body["error"]["message"]
            assert all(each.method == "GET" for each in backend.requests)

    asyncio.run(whole())


def test_without_the_extra_the_answer_names_it(serving, tmp_path, monkeypatch):
    async def whole():
        monkeypatch.setitem(sys.modules, "dbos", None)
        store = f"sqlite:///{tmp_path / 'replies.db'}"
        async with FakeBackend([]) as backend, serving(backend, store=store) as served:
            answer = await served.post("responses", {"model": "m", "input": "Hi", "background": True})
            assert answer.status == 400
            assert "pip install 'callboard[jobs]'" in answer.body["error"]["message"]

    asyncio.run(whole())


def test_jobs_go_with_what_is_stored_of_them(database):
    """By age, and when the store deleted the response because of its size."""
    hours = [0]

    async def whole():
        replies = ResponseStore(database, age=1e9, size=300, clock=lambda: NOON.timestamp() + 3600 * hours[0])
        await replies.start()
        with Database.open(database) as opened:
            store = DurableStore(opened, clock=lambda: NOON + timedelta(hours=hours[0]))

            async def list_titles():
                return {job.title for job in await store.list()}

            for name, kind, state in (
                ("response 1", "response", "completed"),
                ("response 2", "response", "failed"),
                ("agent 3", "agent", "completed"),
                ("response 4", "response", "completed"),
            ):
                hours[0] += 1
                job = await store.create(kind, description=name)
                claim = await store.claim(job.id, 1, "here")
                if name.startswith("response") and state == "completed":
                    await replies.save(StoredResponse(f"resp_{name}", "", "", b"x" * 200, b""))
                await claim.end(state)
            await clean(store, replies, 1e9)
            assert await list_titles() == {"response 2", "agent 3", "response 4"}
            hours[0] += 1
            await clean(store, replies, 1.5 * 3600)
            assert await list_titles() == {"agent 3", "response 4"}
            await clean(store, replies, 1.5 * 3600, ["agent"])
            assert await list_titles() == {"response 4"}
        await replies.aclose()

    asyncio.run(whole())


def test_no_key_and_no_header_is_in_the_database(serving, tmp_path):
    file = tmp_path / "replies.db"

    async def whole():
        async with (
            FakeBackend(["Hello"]) as backend,
            serving(backend, keys=KEYS, store=f"sqlite:///{file}") as served,
            sdk(served) as client,
        ):
            headers = {"x-secret": "header-of-ann"}
            asking = client.responses.create(model="m", input="Hi", background=True, extra_headers=headers)
            await end_of(client, (await asking).id)
        for path in tmp_path.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert ANN.encode() not in data
            assert b"header-of-ann" not in data

    asyncio.run(whole())


class Process:
    """A gateway as a process of its own, which can be killed."""

    def __init__(self, store, backend, directory, *options):
        self._command = (*COMMAND, "serve", "--backend", backend.url, "--port", "0", "--key", f"ann={ANN}")
        self._command = (*self._command, "--store", store, *options)
        self._directory = directory

    async def __aenter__(self):
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=self._directory, stderr=asyncio.subprocess.PIPE
        )
        self.process = self._process.pid
        self.url = ""
        while not self.url:
            line = (await self._process.stderr.readline()).decode()
            assert line
            self.url = line.partition(" at ")[2].split(" ")[0]
        return self

    async def __aexit__(self, *_):
        await self.kill()

    async def wait(self):
        """Wait until it has died by itself."""
        await self._process.wait()

    async def kill(self):
        """Kill it, and the processes that it has started."""
        if self._process.returncode is None:
            for each in list_processes(self._process.pid, 100):
                os.kill(each, signal.SIGKILL)
        await self._process.communicate()


def test_a_stream_goes_on_when_its_gateway_was_killed(by_hand, database, tmp_path):
    async def whole():
        async with by_hand() as backend:
            seen = []
            async with Process(database, backend, tmp_path) as gateway, sdk(gateway) as client:
                stream = await client.responses.create(model="m", input="Hi", background=True, stream=True)
                request = await backend.asked.get()
                await request.say("Hello wor")
                async for event in stream:
                    seen.append(event)
                    if event.type == "response.output_text.delta":
                        break
                identifier = seen[0].response.id
                await gateway.kill()
                request.over.set()
            async with Process(database, backend, tmp_path) as gateway, sdk(gateway) as client:
                request = await backend.asked.get()
                assert (await client.responses.retrieve(identifier)).status == "in_progress"
                await request.say("Hello world")
                await request.end()
                number = seen[-1].sequence_number
                rest = await client.responses.retrieve(identifier, stream=True, starting_after=number)
                events = [event async for event in rest]
                assert [each.sequence_number for each in events] == list(range(number + 1, number + 1 + len(events)))
                assert events[-1].response.output_text == "Hello world"
                assert [each.status for each in events[-1].response.output] == ["completed"]
                incomplete = next(each for each in events if each.type == "response.output_item.done")
                assert incomplete.item.status == "incomplete"
                whole = [event async for event in await client.responses.retrieve(identifier, stream=True)]
                assert whole == [*seen, *events]
                assert (await client.responses.retrieve(identifier)).output_text == "Hello world"
                assert backend.asked.empty()

    asyncio.run(whole())


def end_leases(url):
    """End the sessions that hold leases, as a server or a network does that fails. How many there were."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query, ["callboard lease", url.rpartition("/")[2]]).fetchone()[0]


def test_a_gateway_that_lost_its_lease_goes_on(serving, by_hand, empty_postgresql):
    """Replies to clients that wait do not notice; background responses are made anew."""

    async def whole():
        async with (
            by_hand() as backend,
            serving(BackendSettings(url=backend.url), keys=KEYS, store=empty_postgresql) as served,
            sdk(served) as client,
        ):
            kept = await client.responses.create(model="m", input="Hi", background=True)
            lost = await backend.asked.get()
            stream = asyncio.create_task(client.chat.completions.create(model="m", messages=USER, stream=True))
            waited = await backend.asked.get()
            await waited.say("One, ")
            chunks = await stream
            assert await asyncio.to_thread(end_leases, empty_postgresql) == 1
            async with asyncio.timeout(PATIENCE):
                await lost.left.wait()
                again = await backend.asked.get()
            await waited.say("two.")
            await waited.end()
            said = [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]
            assert "".join(said) == "One, two."
            await again.say("Hello")
            await again.end()
            assert (await end_of(client, kept.id)).output_text == "Hello"
            assert await asyncio.to_thread(end_leases, empty_postgresql) == 1

    asyncio.run(whole())


TOOLS = """
import os
import signal


def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    with open("calls.log", "a") as file:
        file.write(f"{a}+{b}\\n")
    if a == 13 and os.path.exists("deadly"):
        os.unlink("deadly")
        os.kill(os.getpid(), signal.SIGKILL)
    return a + b
"""
ENSEMBLE = """
[ensemble]
name = "sums"
module = "sums_of_test"

[[invokers]]
name = "add"
description = "Add two numbers."
"""


@pytest.mark.parametrize("is_streamed", [False, True])
def test_rounds_of_tools_are_neither_paid_nor_run_twice(tmp_path, is_streamed):
    """The gateway dies in the second of three rounds, in a tool that is not idempotent."""
    (tmp_path / "sums_of_test.py").write_text(TOOLS)
    (tmp_path / "deadly").touch()
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "ensemble.toml").write_text(ENSEMBLE)
    store = f"sqlite:///{tmp_path / 'replies.db'}"
    options = ("--ensembles", str(tmp_path / "sums"))

    def call(text, a, b):
        raw = f'{{"a":{a},"b":{b}}}'
        return reply_of(
            TextPiece(text),
            InvocationStarted(0, f"call_{a}", "add"),
            InvocationEnded(0, f"call_{a}", "add", {"a": a, "b": b}, raw),
            end="invocations",
        )

    async def whole():
        async with FakeBackend([call("First.", 1, 2), call("Second.", 13, 4), "Done."]) as backend:
            async with Process(store, backend, tmp_path, *options) as gateway, sdk(gateway) as client:
                body = {"model": "m", "input": "Hi", "background": True}
                if is_streamed:
                    with suppress(openai.APIError, httpx2.HTTPError):
                        stream = await client.responses.create(**body, stream=True)
                        identifier = stream.response.headers["x-request-id"]
                        async for _ in stream:
                            pass
                else:
                    identifier = (await client.responses.create(**body)).id
                await gateway.wait()
            async with Process(store, backend, tmp_path, *options) as gateway, sdk(gateway) as client:
                ended = await end_of(client, identifier)
                assert ended.status == "completed"
                stream = await client.responses.retrieve(identifier, stream=True)
                assert [event.sequence_number async for event in stream][-1] > 10
        assert len([each for each in backend.requests if each.method == "POST"]) == 3
        results = [each["content"] for each in backend.requests[-1].body["messages"] if each["role"] == "tool"]
        assert results[0] == "3"
        assert "interrupted, outcome unknown" in results[1]
        assert (tmp_path / "calls.log").read_text() == "1+2\n13+4\n"
        texts = [item.content[0].text for item in ended.output if item.type == "message"]
        assert texts == ["First.", "Second.", "Done."]
        assert [item.status for item in ended.output if item.type == "message"] == ["completed"] * 3
        assert ended.usage.output_tokens == 4 + 4 + 2

    asyncio.run(whole())


def test_the_database_holds_a_reply_about_twice(serving, tmp_path):
    file = tmp_path / "replies.db"
    question, answer = "Why? " * 20_000, "So. " * 20_000

    async def whole():
        async with (
            FakeBackend([answer]) as backend,
            serving(backend, keys=KEYS, store=f"sqlite:///{file}") as served,
            sdk(served) as client,
        ):
            stream = await client.responses.create(model="m", input=question, background=True, stream=True)
            assert [event async for event in stream][-1].response.output_text == answer

    asyncio.run(whole())
    parts = {
        "callboard_replies": "length(body) + length(input)",
        "callboard_documents": "length(description) + length(input) + length(memory) + coalesce(length(output), 0)",
        "callboard_entries": "length(line) + 20",
        "workflow_status": "length(inputs) + coalesce(length(output), 0)",
    }
    with closing(sqlite3.connect(file)) as connection:
        sizes = [
            connection.execute(f"SELECT coalesce(sum({size}), 0) FROM {table}").fetchone()[0]
            for table, size in parts.items()
        ]
    assert sum(sizes) < 2.05 * (len(question) + len(answer))
