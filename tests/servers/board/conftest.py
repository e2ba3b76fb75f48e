"""A board of jobs in a database of the test's own, and a browser that is logged in."""

from contextlib import asynccontextmanager

import pytest
from starlette.testclient import TestClient

from callboard.servers.board.app import Board, BoardParts, board_application
from callboard.servers.board.login import Login

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

    return Board(BoardParts(jobs=open_jobs), login)


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
