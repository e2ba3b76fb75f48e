"""A browser, a board and a worker, on a database of the test's own.

The browser is Debian's chromium, or the one that CALLBOARD_CHROMIUM names. `make test-board` runs these tests.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from axe_playwright_python.sync_playwright import Axe
from bench.board import FLAGS, find_chromium
from playwright.sync_api import expect, sync_playwright

from callboard.jobs.client import JobClient
from callboard.servers.board.login import Login

HERE = Path(__file__).parent
PICTURES = HERE.parents[1] / "docs/pictures"
CREW = f"{HERE / 'crew.py'}:clerk"
PATIENCE = 60_000
"""Milliseconds that a test waits for what it expects to see."""

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium():
    path = find_chromium()
    assert path, "there is no chromium: apt-get install chromium, or name another one in CALLBOARD_CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Program:
    """A command of callboard that runs in the background."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "callboard", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


class ServerProgram(Program):
    """A command that serves a board at `url`."""

    url = ""

    def new_link(self):
        """Another one, as `callboard board --link` prints it."""
        return f"{self.url}login?token={Login().make_link_token()}"


class BoardProgram(ServerProgram):
    """A board; on its port another one can be started behind it."""

    def __init__(self, port=0, *options):
        super().__init__("board", "--port", str(port), "--json", *options)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        answer = json.loads(line)
        self.url, self.first_link = answer["url"], answer["link"]
        self.agui_key = answer.get("agui_key", "")
        self.port = int(self.url.split(":")[2].split("/")[0])


class GatewayProgram(ServerProgram):
    """A gateway with a board, in front of the backend at a URL."""

    def __init__(self, backend, *options):
        super().__init__("serve", "--backend", backend, "--port", "0", "--board", *options)
        while not self.url:
            line = self.process.stderr.readline()
            assert line, "the gateway has ended"
            if match := re.search(r"its board: (http\S+)login\?", line):
                self.url = match[1]


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory):
    """The tests of a module share a database: to start its programs takes longer than most of them do."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.delenv("CALLBOARD_DATABASE_URL", raising=False)
        yield


@pytest.fixture(scope="module")
def board():
    program = BoardProgram()
    yield program
    program.stop()


@pytest.fixture(scope="module")
def worker():
    program = Program("worker", "--agents", CREW)
    assert "callboard works on" in program.process.stderr.readline()
    yield program
    program.stop()


class Jobs:
    """What a test does with jobs beside the board, in the event loop of a thread: Playwright has that of this one."""

    def __init__(self, portal):
        self.portal = portal
        self.client = JobClient(embedded=False)
        self.run(self.client.__aenter__())

    def run(self, coroutine):
        return self.portal.call(lambda: coroutine)

    def submit(self, prompt):
        return self.run(self.client.submit(CREW, prompt)).id

    def get(self, identifier):
        return self.run(self.client.store.get(identifier))

    def begin(self, title, items=(), **fields):
        """A job that nobody runs but the test, and its claim."""

        async def begin():
            job = await self.client.store.create("agent", description=title, items=items, queue="nobody", **fields)
            return await self.client.store.claim(job.id, 1, "the test")

        return self.run(begin())

    def close(self):
        self.run(self.client.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def jobs():
    with start_blocking_portal() as portal:
        made = Jobs(portal)
        yield made
        made.close()


class Visitor:
    """A person at a browser. What their pages report as an error fails the test."""

    def __init__(self, browser, board, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        self.context.set_default_timeout(PATIENCE)
        self.board = board
        self.errors = []
        page = self.open()
        page.goto(board.new_link())
        page.wait_for_url("**/board/jobs")

    def open(self, path=""):
        page = self.context.new_page()
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if path:
            page.goto(self.board.url + path)
        return page


@pytest.fixture
def visit(chromium):
    """A person who is logged in to a board: `visit(board)`."""
    visitors = []

    def make(board, **options):
        visitors.append(Visitor(chromium, board, **options))
        return visitors[-1]

    yield make
    for each in visitors:
        each.context.close()
    assert [
        error for each in visitors for error in each.errors if "ERR_" not in error and "status of 4" not in error
    ] == []


@pytest.fixture
def look():
    """Fails for what axe-core finds on a page. Where PICTURES is set, the picture `name` is taken for docs/board.md."""

    def look(page, name=""):
        results = Axe().run(page)
        assert results.violations_count == 0, results.generate_report()
        if name and "PICTURES" in os.environ:
            page.screenshot(path=PICTURES / f"{name}.png")

    return look
