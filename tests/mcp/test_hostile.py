"""Servers that do too much: what they do stays theirs, and costs others no more than a bound."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.errors import CallerError
from callboard.mcp import stdio_transport
from callboard.mcp.client import McpClient
from callboard.mcp.ensemble import MAX_LISTED, McpEnsemble
from callboard.mcp.errors import ServerFailure
from callboard.mcp.settings import ServerSettings

SERVERS = Path(__file__).parent / "servers"
FIXED = Path(__file__).parents[1] / "vectors" / "mcp" / "server.py"
PATIENCE = 30

# Forks twice, into a session of its own, as a daemon does; then it is a server.
DAEMON = """
import os, sys
journal = sys.argv[1]
for close in (True, False):
    if not os.fork():
        os.setsid()
        if not os.fork():
            with open(journal, "a") as file:
                file.write(f"{os.getpid()}\\n")
            if close:
                os.closerange(0, 64)
            while True:
                import time
                time.sleep(1000)
        os._exit(0)
    os.wait()
os.execv(sys.executable, sys.argv[2:])
"""
FLOOD = """
import sys
line = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\\n' * 1000
while True:
    sys.stdout.write(line)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux: only it says whose what is left behind is")


def daemons(journal):
    """The daemons, which are watched before they can be gone."""
    return [int(line) for line in journal.read_text().split()]


def gone(pid):
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], PATIENCE)[0])
    finally:
        os.close(watched)


@pytest.fixture
def daemon(tmp_path):
    """The command of a server that leaves daemons behind, and where their numbers are."""
    journal = tmp_path / "daemons"
    small = (sys.executable, "-S", str(SERVERS / "small.py"), "--journal", str(tmp_path / "journal"))
    (tmp_path / "journal").touch()
    return (sys.executable, "-c", DAEMON, str(journal), *small), journal


@linux
async def test_processes_of_a_server_end_with_it_in_every_session(daemon):
    command, journal = daemon

    client = McpClient(ServerSettings(name="s", command=command))
    await client.start()
    pids = daemons(journal)
    assert len(pids) == 2
    assert not any(gone_now(pid) for pid in pids)
    await client.aclose()
    assert all(gone(pid) for pid in pids)


def gone_now(pid):
    return not Path("/proc", str(pid)).exists()


@linux
def test_processes_of_a_server_end_if_we_are_killed(daemon, tmp_path):
    command, journal = daemon
    ours = """if True:
        import asyncio, sys
        from callboard.mcp.client import McpClient
        from callboard.mcp.settings import ServerSettings

        async def main():
            await McpClient(ServerSettings(name="s", command=tuple(sys.argv[1:]))).start()
            print("ready", flush=True)
            await asyncio.sleep(1000)

        asyncio.run(main())
    """
    stubborn = (*command, "--stubborn", "--child")
    with subprocess.Popen((sys.executable, "-c", ours, *stubborn), stdout=subprocess.PIPE) as us:
        assert us.stdout.readline() == b"ready\n"
        lines = [line.split() for line in (tmp_path / "journal").read_text().splitlines()]
        pids = [*daemons(journal), *[int(words[1]) for words in lines if words[0] in {"start", "child"}]]
        us.kill()
    assert len(pids) == 4
    assert all(gone(pid) for pid in pids)


@linux
@pytest.mark.parametrize(("how", "says"), [("9", "status -9"), ("15", "status -15"), ("", "status 7")])
async def test_how_a_server_ended_is_told(how, says):
    end = f"os.kill(os.getpid(), {how})" if how else "sys.exit(7)"

    client = McpClient(ServerSettings(name="s", command=(sys.executable, "-c", f"import os, sys; {end}")))
    with pytest.raises(ServerFailure, match=says):
        await client.start()
    await client.aclose()


@linux
async def test_a_server_is_asked_to_end_before_it_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(stdio_transport, "EOF_SECONDS", 0.1)
    heard = tmp_path / "heard"
    code = f"""if True:
        import signal, sys, pathlib
        def ended(*_):
            pathlib.Path({str(heard)!r}).write_text("asked")
            sys.exit(0)
        signal.signal(signal.SIGTERM, ended)
        print("up", flush=True)
        signal.pause()
    """

    made = await stdio_transport.ServerProcess.start((sys.executable, "-c", code), {}, "")
    assert await made.stdout.readline() == b"up\n"
    await made.stop()
    assert await made.wait(0) == 0
    assert heard.read_text() == "asked"


@linux
async def test_a_server_sees_no_more_of_the_environment_than_it_is_given(monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")

    made = await stdio_transport.ServerProcess.start(("/usr/bin/env",), {"A": "b"}, "/")
    assert await made.stdout.read() == b"A=b\n"
    await made.stop()


@pytest.mark.parametrize("command", ["nowhere", "./nowhere", "/", "bin/tool"])
async def test_a_program_of_a_relative_directory_of_the_path_is_not_run(tmp_path, monkeypatch, command):
    (tmp_path / "bin").mkdir()
    for name in ("tool", "nowhere"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    if command == "bin/tool":
        command = "tool"

    client = McpClient(ServerSettings(name="s", command=(command,)))
    with pytest.raises((ServerFailure, CallerError), match="cannot be started"):
        await client.start()
    await client.aclose()
    assert not (tmp_path / "ran").exists()


async def test_a_failed_connect_leaves_no_task():
    """Also where nobody closes the client."""
    before = asyncio.all_tasks()
    for command in ((sys.executable, "-c", ""), ("/nowhere",)):
        client = McpClient(ServerSettings(name="s", command=command))
        with pytest.raises((ServerFailure, CallerError)):
            await client.start()
        async with asyncio.timeout(PATIENCE):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)


async def test_a_server_that_talks_without_end_is_not_listened_to_while_it_connects():
    client = McpClient(ServerSettings(name="s", command=(sys.executable, "-c", FLOOD), connect_timeout=PATIENCE))
    with pytest.raises(ServerFailure, match="it sent more than 10000 messages before it was connected"):
        await client.start()
    await client.aclose()


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A server with a tool of each name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def made(names):
        file = tmp_path / "tools.json"
        file.write_text(json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}))
        command = (sys.executable, "-S", str(FIXED), str(file))
        return ServerSettings(name="s", command=command)

    return made


async def test_thousands_of_tools_are_reported_in_a_few_lines(many):
    told = []

    async def count(name):
        async with McpEnsemble(many([f"{name}{number}" for number in range(5000)]), warn=told.append) as ensemble:
            return len(ensemble.invokers)

    assert await count("tool") <= 513
    assert len(told) == MAX_LISTED + 1
    assert told[-1] == f"s: {5000 - 512 - MAX_LISTED} more tools are left out"

    told.clear()
    await count("other")
    assert len(told) <= 2 * MAX_LISTED + 2
    assert any("more tools are new since its first use and are not offered" in line for line in told)
