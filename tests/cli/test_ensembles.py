"""`--ensembles`, as a person uses it."""

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest

from callboard.agent import Transcript
from callboard.errors import DescriptorError, ToolExecutionFailure
from callboard.testing import FakeBackend

MODULE = '''
import os, sys

def tell(what):
    print(what, file=sys.stderr, flush=True)

class Connection:
    async def connect(self):
        print("connected", flush=True)

    async def disconnect(self):
        print("disconnected", flush=True)
        if os.environ.get("STUCK"):
            raise OSError("stuck")

def connection():
    return Connection()

async def greet(context, arguments):
    return f"Hello, {arguments['name']}!"

async def wait() -> None:
    """Wait for ever."""
    import asyncio
    tell("waiting")
    await asyncio.Event().wait()
'''
ENSEMBLE = """
[ensemble]
name = "greeter"
module = "greeter_of_test"

[[invokers]]
name = "greet"
arguments.properties.name = { type = "string", default = "world" }

[[invokers]]
name = "wait"
"""


@pytest.fixture
def greeter(tmp_path, monkeypatch):
    """A directory with an ensemble, and its module in the current directory."""
    (tmp_path / "greeter_of_test.py").write_text(MODULE)
    (tmp_path / "ensembles").mkdir()
    (tmp_path / "ensembles" / "greeter.toml").write_text(ENSEMBLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "greeter_of_test", raising=False)
    return "ensembles"


def call(tool, **arguments):
    return f"```json\n{json.dumps({'name': tool, 'arguments': arguments})}\n```"


def test_a_run_with_an_ensemble(ask, greeter):
    result, backend = ask("Greet Ada.", "--ensembles", greeter, replies=[call("greet", name="Ada"), "Done."])
    assert (result.exit_code, result.stdout) == (0, "Done.\n")
    assert result.stderr == 'connected\n-> greet(name="Ada")\n<- Hello, Ada!\ndisconnected\n'
    backend.assert_complete()


def test_the_built_in_ensemble(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("Buy milk.")
    replies = [call("read_file", path="notes.txt"), call("write_file", path="x", content="y"), "Done."]
    result, _ = ask("What shall I buy?", "--ensembles", "io", replies=replies)
    lines = result.stderr.splitlines()
    assert lines.pop(6).startswith("write_file: Denied by nobody (terminal) at ")
    assert lines == [
        '-> read_file(path="notes.txt")',
        "<- Buy milk.",
        '-> write_file(path="x", content="y")',
        "write_file always needs approval",
        'Run write_file? {"path": "x", "content": "y"}',
        "No terminal to confirm in: denied",
        "<- Error: write_file may not run: the answer was no",
    ]
    assert not (tmp_path / "x").exists()


def test_several_and_tools_beside_them(invoke, greeter, toolbox):
    result = invoke("tools", "list", "--json", "--ensembles", greeter, "--tools", toolbox, "--ensembles", "io")
    names = [each["name"] for each in json.loads(result.stdout)]
    assert names == ["multiply", "deploy", "shout", "greet", "wait", "read_file", "write_file", "list_directory"]


def test_one_call(invoke, greeter):
    result = invoke("tools", "call", "greet", '{"name": "Ada"}', "--ensembles", greeter)
    assert (result.exit_code, result.stdout) == (0, "Hello, Ada!\n")
    assert result.stderr == "connected\ndisconnected\n"
    assert invoke("tools", "call", "greet", "--ensembles", greeter).stdout == "Hello, world!\n"


def test_a_failing_disconnect_is_told_and_takes_nothing_away(ask, greeter, monkeypatch):
    monkeypatch.setenv("STUCK", "1")
    result, _ = ask("Hi", "--ensembles", greeter, replies=["Hello."])
    assert (result.exit_code, result.stdout) == (0, "Hello.\n")
    assert result.stderr == "connected\ndisconnected\nensemble greeter: cannot disconnect: stuck\n"


def test_an_ensemble_that_cannot_be_connected(ask, tmp_path):
    text = "[ensemble]\nname = 'io'\nroot = '/nowhere/at/all'\n[[invokers]]\nname = 'read_file'\n"
    (tmp_path / "io.toml").write_text(text)
    result, backend = ask("Hi", "--ensembles", str(tmp_path), replies=["Hello."])
    assert type(result.exception) is ToolExecutionFailure
    assert str(result.exception) == "ensemble io: cannot connect: /nowhere/at/all: No such file or directory"
    assert backend.requests == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "x.toml: not TOML: Invalid value (at end of document)"),
        ("[ensemble]\nnam = 'x'", "x.toml:1: ensemble: no name; write name in [ensemble]"),
        ("[ensemble]\nname = 'x'\n[[invokers]]\nname = 'y'\ntimout = 1", "x.toml:5: invokers[0].timout: unknown key;"),
        ("[ensemble]\nname = 'x'\n[[invokers]]\nname = 'y'", "x.toml:3: invokers[0]: no function is named for 'y'"),
        (
            "[ensemble]\nname = 'io'\n[[invokers]]\nname = 'read'",
            "x.toml:3: invokers[0]: callboard.configuration.io_tools",
        ),
    ],
)
@pytest.mark.parametrize("command", [("run", "Hi"), ("tools", "list"), ("tools", "call", "y")])
def test_what_a_person_gets_wrong(invoke, tmp_path, command, text, told):
    (tmp_path / "x.toml").write_text(text)
    more = ("--model", "m", "--base-url", "http://127.0.0.1:1") if command[0] == "run" else ()
    result = invoke(*command, *more, "--ensembles", str(tmp_path))
    assert type(result.exception) is DescriptorError
    assert str(result.exception).startswith(f"{tmp_path}/{told}")
    assert result.stdout == ""


def test_modules_are_found_here_only_where_they_are_named(invoke, greeter, tmp_path):
    path = sys.path.copy()
    invoke("tools", "list", "--ensembles", "io")
    assert sys.path == path
    invoke("tools", "list", "--ensembles", greeter)
    # Behind all others: no file here is taken for an installed module.
    assert sys.path == [*path, str(tmp_path)]


async def test_ctrl_c_disconnects(callboard, greeter, tmp_path):
    async with FakeBackend([call("wait")]) as backend:
        child = await asyncio.create_subprocess_exec(
            *callboard.command,
            *("run", "--ensembles", greeter, "--model", "fake-model", "--base-url", backend.url, "Go."),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said = await child.stderr.readuntil(b"waiting\n")
        child.send_signal(signal.SIGINT)
        _, err = await child.communicate()
    code, told = child.returncode, (said + err).decode().splitlines()
    assert (code, told) == (130, ["connected", "-> wait()", "waiting", "disconnected", told[-1]])
    kept = re.fullmatch(r"cancelled; the transcript is kept in (.*)", told[-1])[1]
    assert Transcript(Path(kept)).read()[-1].text == "Error: the run was cancelled"


def test_ctrl_c_while_connecting_disconnects_the_others(callboard, greeter, tmp_path):
    slow = "import asyncio\n\nclass Slow:\n    async def connect(self):\n        print('slow', flush=True)\n"
    slow += "        await asyncio.Event().wait()\n\ndef connection():\n    return Slow()\n"
    (tmp_path / "slow_of_test.py").write_text(slow)
    (tmp_path / "ensembles" / "slow.toml").write_text("[ensemble]\nname = 'slow'\nmodule = 'slow_of_test'\n")

    async def scenario():
        child = await asyncio.create_subprocess_exec(
            *callboard.command,
            *("run", "--ensembles", greeter, "--model", "m", "--base-url", "http://127.0.0.1:1", "Go."),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said = await child.stderr.readuntil(b"slow\n")
        child.send_signal(signal.SIGINT)
        out, err = await child.communicate()
        return child.returncode, out, (said + err).decode()

    notice = "slow has no tools: none is enabled in [[invokers]]"
    err = f"{notice}\nconnected\nslow\ndisconnected\ncancelled\n"
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == (130, b"", err)
