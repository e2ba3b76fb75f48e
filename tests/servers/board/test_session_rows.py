"""Sessions of the gateway in the list of jobs."""

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.servers.board.conftest import StoreOnly
from tests.servers.board.test_requests_page import ASK, HOSTILE, Visitor
from tests.servers.gateway.conftest import serve_gateway

from callboard.jobs.job import JobSummary
from callboard.jobs.queries import JobFilter
from callboard.servers.board.app import Board, BoardParts
from callboard.servers.board.session_rows import list_with_sessions
from callboard.servers.gateway.traffic import Traffic
from callboard.testing import FakeBackend

BEGIN = datetime(2026, 11, 29, tzinfo=UTC)


def row(kind, place, number):
    made = BEGIN + timedelta(seconds=place)
    return JobSummary(id=f"{kind}-{number}", kind=kind, created_at=made, updated_at=made)


class Jobs:
    """Jobs as a store lists them."""

    def __init__(self, jobs):
        self._jobs = jobs

    async def list(self, _chosen, *, order, offset, limit):
        assert order == "newest"
        return self._jobs[offset : offset + limit]


@given(st.lists(st.integers(0, 20), max_size=20), st.lists(st.integers(0, 20), max_size=20), st.integers(1, 7))
def test_each_job_and_each_session_is_on_one_page(jobs, sessions, size):
    stored = [row("agent", place, number) for number, place in enumerate(sorted(jobs, reverse=True))]
    known = [row("session", place, number) for number, place in enumerate(sessions)]

    async def read(page):
        fields = {"order": "newest", "offset": page * size, "limit": size}
        return await list_with_sessions(Jobs(stored), JobFilter(), known, **fields)

    pages = [asyncio.run(read(page)) for page in range(len(stored + known) // size + 1)]
    listed = [each for page in pages for each in page]
    assert sorted(each.id for each in listed) == sorted(each.id for each in stored + known)
    assert [each.created_at for each in listed] == sorted([each.created_at for each in listed], reverse=True)


async def test_sessions_are_in_the_list_of_jobs(login, job_store):
    @asynccontextmanager
    async def open_jobs():
        yield StoreOnly(job_store)

    def extend(services):
        traffic = Traffic(services.gateway, services.keep_requests())
        return Board(BoardParts(jobs=open_jobs, traffic=traffic), login)

    named = {"x-session-id": "ses_1", "user-agent": "opencode/1.18"}
    async with FakeBackend(lambda _: "Hello") as backend, serve_gateway(backend, extend=extend) as served:
        visitor = Visitor(served, login)
        empty = await visitor.get("/jobs")
        job = await job_store.create("agent", description="Mend it", model="gpt-4o")
        before = await visitor.get("/jobs")
        for _ in range(2):
            await served.post("chat", ASK, named)
        page, requests = await visitor.get("/jobs"), await visitor.get("/requests")
        [path] = set(re.findall(r'href="/board(/requests/sessions/[0-9a-f]{20})"', page))
        session = await visitor.get(path)
        queries = ("kind=session", "model=gpt-5", "text=HI&kind=session", "day=2001-01-01", "cost=1", "state=pending")
        found = {
            each: re.findall(r'class="title"><a href="/board([^"]+)"', await visitor.get(f"/jobs?{each}"))
            for each in queries
        }
    assert "session" not in empty
    assert "/sessions/" not in before
    assert page.index(path) < page.index(f"/jobs/{job.id}")  # the newest is first
    assert '<span class="why">2 requests</span>' in page
    assert "opencode: Hi &lt;script&gt;" in page
    assert HOSTILE not in page
    assert 'href="/board/jobs?kind=session"' in requests
    assert "Turns" in session
    assert found == {
        "kind=session": [path],
        "model=gpt-5": [path],
        "text=HI&kind=session": [path],
        "day=2001-01-01": [],
        "cost=1": [],
        "state=pending": [f"/jobs/{job.id}"],
    }
