"""What a person sees of a run: two ways to run `callboard`, in this process and in one of its own."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from callboard.agent import Transcript
from callboard.cli import main
from callboard.core import (
    ArgumentsPiece,
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ReplyEnded,
    ReplyStarted,
    ResultCanister,
)
from callboard.providers.transport import Transport
from callboard.testing import FakeBackend

LIMIT = 120  # seconds; against a test that hangs, not part of what it asserts
NOISE = ("Traceback", "Exception ignored", "was destroyed", "never retrieved", "never awaited", "Unclosed", "Fatal")
HEAD = "import asyncio, os, subprocess, sys, threading, time\nfrom callboard import Ensemble, Invoker, tool\n"
COMMAND = (sys.executable, "-c", "from callboard.cli import main; main()")


def call(name="act", arguments="{}", identifier="call_1"):
    """A reply that calls a tool with these arguments, which may be no JSON."""
    return [
        ReplyStarted(),
        InvocationStarted(0, identifier, name, True),
        ArgumentsPiece(0, arguments),
        InvocationEnded(0, identifier, name, None, arguments),
        ReplyEnded("invocations"),
    ]


class Seen:
    """What a command left: `code`, `out`, `err`, and of the transcript its `path` and `canisters`."""

    def __init__(self, code, out, err, data, backend=None):
        assert not [word for word in NOISE if word in err], err
        self.code = code
        self.out = out
        self.err = err
        self.lines = err.splitlines()
        self.backend = backend
        paths = [*data.glob("callboard/conversations/*/messages.jsonl")]
        assert len(paths) <= 1
        self.path = paths[0] if paths else None
        self.canisters = Transcript(self.path).read() if paths else []
        called = [each.identifier for each in self.canisters if isinstance(each, InvocationCanister)]
        given = [each.invocation_id for each in self.canisters if isinstance(each, ResultCanister)]
        self.paired = called == given

    @property
    def results(self):
        return [each.text for each in self.canisters if isinstance(each, ResultCanister)]

    @property
    def said(self):
        """The text of each canister that has one."""
        return [each.text for each in self.canisters if not isinstance(each, InvocationCanister)]


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    home = tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def write(tmp_path):
    """Writes a tools module and gives its path."""

    def write(source):
        path = tmp_path / "toolbox.py"
        path.write_text(HEAD + source)
        return str(path)

    return write


@pytest.fixture
def idle_timeout():
    """Seconds; what a silent backend is given."""
    return 300.0


@pytest.fixture
def naps(monkeypatch, idle_timeout):
    """What would have been slept between two attempts."""
    slept = []

    async def nap(seconds):
        slept.append(seconds)

    options = {"sleep": nap, "jitter": lambda: 0.0, "idle_timeout": idle_timeout}
    monkeypatch.setattr("callboard.providers.registry.Transport", partial(Transport, **options))
    return slept


def _main(arguments):
    """`main` with streams of its own, and what the interpreter does with its exit."""
    streams = sys.stdin, sys.stdout, sys.stderr, sys.argv
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    sys.stdin, sys.stdout, sys.stderr, sys.argv = io.StringIO(), out, err, ["callboard", *arguments]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")
            code = 1
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = streams
    for stream in (out, err):
        stream.flush()
    return code or 0, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


@pytest.fixture
def see(data):
    """Runs any command in this process."""

    def see(*arguments):
        return Seen(*_main(arguments), data)

    return see


@pytest.fixture
def ask(data, write):
    """Runs `callboard run` in this process, against a backend with these replies."""

    def ask(replies, *arguments, tools=""):
        async def scenario():
            async with FakeBackend(replies) as backend:
                given = ["run", "--model", "fake-model", "--base-url", backend.url, *arguments]
                given += ["--tools", write(tools)] if tools else []
                return await asyncio.to_thread(_main, [*given, "Go."]), backend

        outcome, backend = asyncio.run(asyncio.wait_for(scenario(), LIMIT))
        return Seen(*outcome, data, backend)

    return ask


@pytest.fixture
def spawn(data, write):
    """Runs a command in a process of its own, by default `run`, against a backend with these replies.

    `interrupts` are signs: as each is seen on standard error, ctrl-C comes, as from a terminal to the whole group
    (which heeds it, though a test that runs in the background would not). `before` is called in the process.
    """

    def spawn(replies, *arguments, tools="", interrupts=(), command=None, stdin=subprocess.DEVNULL, before=int):
        async def scenario():
            async with FakeBackend(replies) as backend:
                given = command or ["run", "--model", "fake-model", "--base-url", backend.url, *arguments, "Go."]
                given = [*given, *(["--tools", write(tools)] if tools else [])]
                child = await asyncio.create_subprocess_exec(
                    *COMMAND,
                    *given,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    limit=2**26,
                    start_new_session=True,
                    preexec_fn=lambda: (signal.signal(signal.SIGINT, signal.SIG_DFL), before()),
                )
                try:
                    async with asyncio.timeout(LIMIT):
                        seen = b""
                        for sign in interrupts:
                            seen += await child.stderr.readuntil(sign)
                            os.killpg(child.pid, signal.SIGINT)
                        out, rest = await child.communicate()
                finally:
                    left = _kill(child.pid)
                assert not left, "a process was left behind"
                # A shell says the same of a process that the last ctrl-C found at its very end.
                code = 128 + signal.SIGINT if child.returncode == -signal.SIGINT else child.returncode
                return (code, out.decode(), (seen + rest).decode()), backend

        outcome, backend = asyncio.run(scenario())
        return Seen(*outcome, data, backend)

    return spawn


def _kill(group):
    """Ends the processes of a group; whether there were any."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def script():
    """Replies that are calls."""
    return call
