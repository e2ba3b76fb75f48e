"""`callboard mcp serve --agents` in a process of its own: jobs over the official SDK's client, and servers that are killed."""

import asyncio
import os
import re
import signal
from contextlib import asynccontextmanager

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult
from tests.cli.test_background import stopped_worker
from tests.coding import conftest as coding

from callboard.errors import CallerError
from callboard.testing import FakeBackend
from callboard.testing.fake_backend import Silence

repository, faulty, calling = coding.repository, coding.faulty, coding.calling
LIMIT = 300  # seconds; against a test that hangs, not part of what it asserts
ANSWER = "calc.py, line 2: it subtracts. High. First mend the sign."
REPORT = {"description": "add in calc.py is wrong"}


class Script:
    """The replies of a model, in their order; None is one that never comes."""

    def __init__(self, *replies):
        self._replies = iter(replies)
        self.is_silent = asyncio.Event()

    def __call__(self, _):
        reply = next(self._replies)
        if reply is None:
            self.is_silent.set()
            return Silence()
        return reply


@pytest.fixture
def write_settings(tmp_path, monkeypatch):
    """A user whose model is at an address."""
    config = tmp_path / "config" / "callboard"
    config.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def write(url, more=""):
        model = f'model = "fake-model"\nbase_url = "{url}"\n{more}\n[profiles.fake-model]\ncoding = "short"\n'
        (config / "callboard.toml").write_text(model)

    return write


@pytest.fixture
def place(tmp_path):
    """Where the jobs are."""
    return tmp_path / "state" / "callboard" / "jobs"


def stop_worker(place, how):
    os.kill(int((place / "jobs.db-coding-worker.lock").read_text()), how)


@pytest.fixture
def command(callboard, repository):
    return [*callboard.command, "mcp", "serve", "--agents", "--directory", str(repository.root)]


@asynccontextmanager
async def over_http(command, *, kill):
    """A server over HTTP; its URL. In the end it is killed, or asked to end."""
    arguments = [*command, "--transport", "http", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*arguments, stderr=asyncio.subprocess.PIPE)
    try:
        yield re.search(r"http://\S+", (await process.stderr.readline()).decode())[0]
    finally:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        await process.stderr.read()
        assert await process.wait() == (-signal.SIGKILL if kill else 0)


async def wait_for(client, job, state):
    while True:
        seen = (await client.call_tool("get_job", {"job": job, "wait_seconds": 60})).structured_content
        if seen["state"] == state:
            return seen


def test_a_job_goes_on_after_its_server_and_its_worker_were_killed(command, write_settings, place):
    script = Script(None, ANSWER)

    async def scenario():
        async with asyncio.timeout(LIMIT), FakeBackend(script) as backend:
            write_settings(backend.url)
            async with over_http(command, kill=True) as url, Client(url) as client:
                begun = (await client.call_tool("triage", REPORT)).structured_content
                await script.is_silent.wait()
                stop_worker(place, signal.SIGKILL)
            async with over_http(command, kill=False) as url, Client(url) as client:
                return begun, await wait_for(client, begun["job"], "completed")

    with stopped_worker(place):
        begun, ended = asyncio.run(scenario())
    assert begun["state"] == "pending"
    assert ended["result"]["summary"] == ANSWER


def test_a_client_gets_the_job_and_answers_it_over_stdio(command, write_settings, place, calling):
    """The second server answers what the first one's job asked."""
    asked = []

    async def allow(_, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"allow": True})

    def connect():
        server = StdioServerParameters(command=command[0], args=command[1:], env={**os.environ})
        return Client(server, mode="legacy", elicitation_callback=allow)

    async def scenario():
        script = Script(calling(("read_file", {"path": "calc.py"})), ANSWER)
        async with asyncio.timeout(LIMIT), FakeBackend(script) as backend:
            write_settings(backend.url, '[permissions]\nask = ["read_file"]')
            async with connect() as client:
                begun = (await client.call_tool("triage", REPORT)).structured_content
                waits = await wait_for(client, begun["job"], "waiting")
            async with connect() as client:
                arguments = {"job": begun["job"], **{name: waits["asks"][0][name] for name in ("call", "digest")}}
                answered = await client.call_tool("answer_job", arguments)
                assert not answered.is_error, answered.content
                return waits, await wait_for(client, begun["job"], "completed")

    with stopped_worker(place):
        waits, ended = asyncio.run(scenario())
    assert waits["asks"][0]["tool"] == "read_file"
    assert len(asked) == 1
    assert 'read_file {"path": "calc.py"}' in asked[0]
    assert ended["result"]["summary"] == ANSWER


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--agents"], "the agents have no directory"),
        (["--agents", "--directory", "nowhere"], "no such directory"),
        (["--directory", "."], "there are no agents"),
    ],
)
def test_mistakes_of_who_starts_it(invoke, arguments, why):
    ran = invoke("mcp", "serve", *arguments)
    assert isinstance(ran.exception, CallerError)
    assert why in str(ran.exception)


def test_without_the_extra_it_says_what_to_install(invoke, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "croniter", None)
    ran = invoke("mcp", "serve", "--agents", "--directory", str(tmp_path))
    assert isinstance(ran.exception, CallerError)
    assert "pip install 'callboard[jobs]'" in str(ran.exception)
