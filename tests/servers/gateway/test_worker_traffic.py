"""The workers of a gateway that ask each other for their requests."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from callboard.core import ToolDeclaration
from callboard.errors import CallerError
from callboard.servers.gateway.traffic import Traffic
from callboard.servers.gateway.traffic_values import KeptReply, RepeatOrder, RowFilter
from callboard.servers.gateway.worker_traffic import WorkerTraffic
from callboard.testing import FakeBackend

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
ASK = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "tools": TOOLS}


def with_workers(serving, logged, tmp_path, look, count=2):
    """What `look(workers)` gives, of workers that were asked once each, by one client and the same backend."""

    async def scenario():
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(FakeBackend(lambda _: CALL))
            workers = []
            for _ in range(count):
                served = await stack.enter_async_context(serving(backend, extend=logged))
                own = Traffic(served.gateway, served.request_log)
                workers.append(await stack.enter_async_context(WorkerTraffic(own, tmp_path)))
                await served.post("chat", ASK)
            return await look(workers)

    return asyncio.run(scenario())


def test_each_worker_shows_the_requests_of_all(serving, logged, tmp_path):
    async def look(workers):
        pages = [await worker.page(RowFilter()) for worker in workers]
        first, second = pages[0].rows
        page = await workers[0].page(RowFilter(), limit=1)
        older = await workers[1].page(RowFilter(), page.cursor)
        overviews = [await worker.overview() for worker in workers]
        return pages, first, second, page, older, overviews

    pages, first, second, page, older, overviews = with_workers(serving, logged, tmp_path, look)
    assert pages[0].rows == pages[1].rows
    assert first.at > second.at
    assert page.rows + older.rows == pages[0].rows
    assert [each.count for each in overviews] == [2, 2]
    assert [each.recovered for each in overviews] == [2, 2]
    assert len({each.worker for each in overviews[0].backends}) == len(overviews[0].workers) == 2
    assert overviews[0].missing_workers == 0


def test_a_request_of_another_worker_is_seen_read_asked_again_and_kept(serving, logged, tmp_path):
    async def look(workers):
        own = {each.rpartition("-")[0] for each in [(await workers[0]._own.rows())[0].identifier]}
        rows = (await workers[0].page(RowFilter())).rows
        other = next(row.identifier for row in rows if row.identifier.rpartition("-")[0] not in own)
        view = await workers[0].view(other)
        events = await workers[0].read_as(other, 0, "mistral")
        repeated = await workers[0].repeat(other, RepeatOrder(mode="validated"))
        kept = await workers[0].kept_reply(other)
        return other, view, events, repeated, kept, await workers[1].view(repeated)

    other, view, events, repeated, kept, again = with_workers(serving, logged, tmp_path, look)
    assert view.row.identifier == other
    assert not any("invocation" in line for line in events)
    assert repeated.rpartition("-")[0] == other.rpartition("-")[0]
    assert again.row.again_of == other
    assert isinstance(kept, KeptReply)
    assert kept.tools == (ToolDeclaration("weather", "", {"type": "object"}),)
    assert [type(each).__name__ for each in kept.canisters] == ["UserCanister", "InvocationCanister"]


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (("view",), "not in the log"),
        (("read_as", 0, "wrong"), "no dialect 'wrong'"),
        (("repeat", RepeatOrder(mode="wrong")), "no mode 'wrong'"),
    ],
)
def test_mistakes_cross_too(serving, logged, tmp_path, question, why):
    name, *arguments = question

    async def look(workers):
        other = (await workers[1]._own.rows())[0].identifier
        identifier = f"{other.rpartition('-')[0]}-99" if name == "view" else other
        with pytest.raises(CallerError) as caught:
            await getattr(workers[0], name)(identifier, *arguments)
        return caught.value

    error = with_workers(serving, logged, tmp_path, look)
    assert error.hint
    assert why in error.message


def test_a_name_that_is_no_worker_is_asked_here(serving, logged, tmp_path):
    async def look(workers):
        for name in ("../../etc-1", "x", "", "abc-1"):
            with pytest.raises(CallerError, match="not in the log"):
                await workers[0].view(name)

    with_workers(serving, logged, tmp_path, look, count=1)


def test_a_worker_that_died_is_forgotten_and_one_that_says_nonsense_is_missing(serving, logged, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))  # nobody listens

    async def nonsense(reader, writer):
        await reader.read(-1)
        writer.write(b"what?")
        writer.close()

    async def look(workers):
        async with await asyncio.start_unix_server(nonsense, tmp_path / "mad.sock"):
            return await workers[0].overview(), [path.name for path in tmp_path.iterdir()]

    overview, names = with_workers(serving, logged, tmp_path, look, count=1)
    assert (overview.count, overview.missing_workers) == (1, 1)
    assert "dead.sock" not in names


def test_nonsense_is_not_answered(serving, logged, tmp_path, caplog):
    async def look(workers):
        path = tmp_path / f"{workers[0]._own.name}.sock"
        answers = []
        for data in (b"", b"what?", b"\x92\xa6aclose\x90", b"\x92\xa4view\x90"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(data)
            writer.write_eof()
            answers.append(await reader.read(-1))
            writer.close()
        return answers

    assert with_workers(serving, logged, tmp_path, look, count=1) == [b""] * 4
    assert "cannot be answered" in caplog.text


def test_a_socket_goes_with_its_worker(serving, logged, tmp_path):
    async def look(_):
        return len([*tmp_path.iterdir()])

    assert with_workers(serving, logged, tmp_path, look) == 2
    assert [*tmp_path.iterdir()] == []
