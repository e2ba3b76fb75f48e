"""A board of jobs in a database of the test's own, and a browser that is logged in."""

import asyncio
import json
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient

from callboard.jobs.streams import JobStreams
from callboard.servers.board.app import Board, BoardParts, board_application
from callboard.servers.board.login import Login
from callboard.text.sse import SSEDecoder

ORIGIN = "http://127.0.0.1:8283"


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def login(tmp_path, clock):
    return Login(tmp_path / "board", clock)


class StoreOnly:
    """What the pages use of a JobClient, without the queue's engine, which takes half a second to open."""

    def __init__(self, store):
        self.store = store
        self.streams = JobStreams()


@pytest.fixture
def job_store(tmp_path):
    """A store without a queue: nobody runs what is made in it but the test."""
    from callboard.jobs.database import Database
    from callboard.jobs.store import DurableStore

    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        yield DurableStore(database)


@pytest.fixture
def board(login, job_store):
    @asynccontextmanager
    async def open_jobs():
        yield StoreOnly(job_store)

    return Board(BoardParts(jobs=Mock(side_effect=open_jobs)), login)


@pytest.fixture
def visitor(board):
    """A browser that has not logged in."""
    with TestClient(board_application(board), base_url=ORIGIN, headers={"accept": "text/html"}) as client:
        yield client


@pytest.fixture
def browser(visitor, login):
    """A browser that is logged in."""
    visitor.cookies.set(login.cookie, login.begin_session(), path="/board")
    return visitor


@pytest.fixture
def token(browser, login):
    """What the forms of the browser's session carry."""
    return login.form_token(login.find_session(browser.cookies[login.cookie]))


@pytest.fixture
def run(visitor):
    """Runs a coroutine function in the loop of the board."""
    return lambda function, *arguments, **fields: visitor.portal.call(lambda: function(*arguments, **fields))


@pytest.fixture
def follow(visitor, browser, run):
    """Reads a stream until something holds of what came: `follow(path, holds, during)` gives its messages.

    `during` is a coroutine function that is called when the first message is there.
    """

    def read(path, holds, during=None, **headers):
        return run(_follow, visitor.app, browser.cookies, path, holds, during, headers)

    return read


async def _follow(app, cookies, path, holds, during, headers):  # noqa: PLR0917  # one caller
    messages, left = [], asyncio.Event()
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    fields = {"host": ORIGIN.removeprefix("http://"), "cookie": cookie, **headers}
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()],
        "state": {},
    }
    decoder = SSEDecoder()

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        assert message.get("status", 200) == 200, message
        for frame in decoder.feed(message.get("body", b"")):
            messages.append((frame.event, json.loads(frame.data), frame.id))
            if during is not None and len(messages) == 1:
                tasks.append(asyncio.ensure_future(during()))
        if left.is_set() or (messages and holds(messages)):
            left.set()
            raise OSError  # as of a connection that is gone

    tasks = []
    serving = asyncio.ensure_future(app(scope, receive, send))
    try:
        async with asyncio.timeout(120):
            await asyncio.wait({serving})
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    await asyncio.gather(*tasks)
    if not left.is_set():
        serving.result()
    return messages
