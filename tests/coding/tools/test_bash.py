import asyncio
import os
import signal
from contextlib import suppress

import pytest

from callboard.coding.tools.commands import bash
from callboard.coding.workspace import run_command
from callboard.coding.workspace.workspace import Workspace
from callboard.execution import run_invoker
from callboard.sandbox import CommandLimits, Confinement, SandboxUnavailable, find_sandbox
from callboard.tools import Ensemble


@pytest.fixture
def run(tmp_path):
    """Runs a command, by default without confinement: what is told of it is the same."""

    def call(command, *, limits=None, without=True, sandbox=None, **given):
        async def running():
            found = sandbox or await find_sandbox(unconfined=without)
            confinement = Confinement(workspace=tmp_path, limits=limits or CommandLimits())
            workspace = Workspace(tmp_path, sandbox=found, confinement=confinement)
            ensemble = Ensemble("coding", [bash], {}, workspace)
            await ensemble.connect()
            try:
                return await execute_one(ensemble, {"command": command, **given})
            finally:
                await ensemble.disconnect()

        return asyncio.run(running())

    return call


async def execute_one(ensemble, arguments):
    return await run_invoker(ensemble.access_invoker("bash"), arguments, on_error="feedback")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo one; echo two >&2", "one\ntwo"),
        ("exit 3", "(exit code 3)"),
        ("echo no; false", "no\n(exit code 1)"),
        ("true", "(no output)"),
        ("kill -9 $$", "(exit code 137)"),
        ("nonsense-of-a-command 2>/dev/null", "(exit code 127)"),
        ("printf '\\xff\\n'", "\ufffd"),
        ("[[ a == a ]] && echo bash", "bash"),
        ("cat", "(no output)"),
    ],
)
def test_what_is_told(run, command, told):
    assert run(command).text == told


@pytest.mark.parametrize(
    ("command", "seconds", "exit_code"),
    [("exit 3", 60, 3), ("echo exit code 1", 60, 0), ("read -r _ < <(sleep 60)", 1, None)],
)
def test_the_exit_code_is_a_field_of_the_result(run, command, seconds, exit_code):
    assert run(command, timeout=seconds).exit_code == exit_code


def test_a_command_that_runs_too_long(run):
    # Long enough for the command to begin on a busy machine.
    assert run("echo begun; mkfifo fifo; read -r _ < fifo", timeout=4).text == "begun\n(stopped: it had 4 s)"


def test_a_command_that_prints_too_much(run):
    text = run("yes 0123456789", limits=CommandLimits(output_bytes=1000)).text
    assert "(stopped: it printed" in text
    assert len(text) < 2000


@pytest.mark.parametrize("command", ["", " \n", "a\0b"])
def test_no_command(run, command):
    assert "there is no command" in run(command).error.message


def test_in_the_sandbox_of_this_machine(run, tmp_path):
    try:
        result = run("echo x > y; cat y; ls /nothing", without=False)
    except SandboxUnavailable:
        pytest.skip("no sandbox: this machine has none")
    assert result.text.startswith("x\n")
    assert result.text.endswith("(exit code 2)")
    assert (tmp_path / "y").read_text() == "x\n"


def test_where_there_is_no_sandbox(tmp_path):
    async def running():
        workspace = Workspace(tmp_path, sandbox=object())
        ensemble = Ensemble("coding", [bash], {}, workspace)
        await ensemble.connect()
        workspace.sandbox, workspace.sandbox_error = None, "there is none here"
        try:
            return await execute_one(ensemble, {"command": "true"})
        finally:
            await ensemble.disconnect()

    message = asyncio.run(running()).error.message
    assert "there is none here" in message
    assert "--no-sandbox" in message


async def test_it_tells_that_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(run_command, "EVERY", 0.01)
    heard = []

    workspace = Workspace(tmp_path, sandbox=await find_sandbox(unconfined=True))
    await workspace.connect()
    try:
        await run_command.run_command(
            workspace,
            ["/bin/sh", "-c", "while [ ! -e heard ]; do :; done"],
            seconds=60,
            progress=lambda *told: (heard.append(told), (tmp_path / "heard").touch() if len(heard) > 3 else None),
            label="waiting",
        )
    finally:
        await workspace.disconnect()
    assert heard[0] == (0.0, 60, "waiting")
    assert heard[3][0] > heard[1][0]


def _text(path):
    return path.read_text() if path.exists() else ""


async def test_cancelling_ends_the_command(tmp_path):
    workspace = Workspace(tmp_path, sandbox=await find_sandbox(unconfined=True))
    ensemble = Ensemble("coding", [bash], {}, workspace)
    await ensemble.connect()
    task = asyncio.create_task(execute_one(ensemble, {"command": "mkfifo fifo; echo $$ > pid; read -r _ < fifo"}))
    while not task.done() and not _text(tmp_path / "pid").endswith("\n"):  # noqa: ASYNC110  # for another process
        await asyncio.sleep(0.01)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ensemble.disconnect()
    with suppress(ProcessLookupError):
        while True:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIG_DFL)
