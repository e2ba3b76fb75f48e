from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from functools import cache

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from callboard.cli import app, main
from callboard.cli.command_group import LazyCommand
from callboard.testing import FakeBackend

COMMAND = (sys.executable, "-c", "from callboard.cli import main; main()")

TOOLBOX = '''
from callboard import Ensemble, tool

@tool
def multiply(a: int, b: int = 7) -> int:
    """Multiply two whole numbers.

    Exactly.
    """
    return a * b

@tool(approval=True)
def deploy() -> str:
    """Deploy it."""
    return "deployed"

def shout(text: str) -> str:
    """Shout it."""
    return text.upper() + "\\x1b[31m\\nnext line"

def plain(text: str) -> str:
    """No tool yet."""
    return text

some = [multiply, plain]
group = Ensemble("group", [shout])
number = 3
'''


@pytest.fixture(scope="session", autouse=True)
def commands():
    """The commands are built once, not for each run in this process: that takes longer than most of them do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        patch.setattr(LazyCommand, "load", cache(LazyCommand.load))
        yield


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """Where the command line keeps what it keeps."""
    home = tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("NO_COLOR", "FORCE_COLOR", "CALLBOARD_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return home / "callboard"


@pytest.fixture
def toolbox(tmp_path):
    path = tmp_path / "toolbox.py"
    path.write_text(TOOLBOX)
    return str(path)


@pytest.fixture
def invoke():
    """Runs a command in this process."""
    return lambda *arguments, **options: CliRunner().invoke(app, arguments, **options)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config" / "callboard" / "callboard.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def ask():
    """Runs `callboard run` against a backend with these replies; gives the outcome and the backend."""

    def ask(*arguments, replies, path="/v1", **options):
        async def scenario():
            async with FakeBackend(replies) as backend:
                url = backend.url.removesuffix("/v1") + path
                given = ["run", "--model", "fake-model", "--base-url", url, *arguments]
                result = await asyncio.to_thread(CliRunner().invoke, app, given, **options)
            return result, backend

        return asyncio.run(scenario())

    return ask


@pytest.fixture
def typed(monkeypatch, capfd):
    """Runs the console script's function in this process; gives what a shell would see."""

    def typed(*arguments, cwd=None):
        monkeypatch.setattr(sys, "argv", ["callboard", *arguments])
        monkeypatch.setenv("PATH", os.environ["PATH"])  # which it sets
        if cwd is not None:
            monkeypatch.chdir(cwd)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, said.out, said.err)

    return typed


@pytest.fixture
def callboard():
    """Runs a command in a process of its own, as a person does."""

    def run(*arguments, **options):
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
        )

    run.command = COMMAND
    return run


@pytest.fixture
def terminal():
    """Runs a command on a terminal of its own; gives its exit code and what a person sees, with its colors."""

    def run(*arguments, columns=80, cwd=None, env=None, out=None):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=out or theirs,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(theirs)
        text = b""
        with suppress(OSError):  # so a terminal ends on Linux
            while piece := os.read(ours, 65536):
                text += piece
        os.close(ours)
        return process.wait(), text.decode().replace("\r\n", "\n")

    return run
