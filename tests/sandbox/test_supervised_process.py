"""The fork server that starts the commands of all sandboxes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from callboard.errors import CallerError
from callboard.sandbox import Confinement
from callboard.sandbox.bubblewrap import Bubblewrap

if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)


def find_processes(*words):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().decode(errors="replace").split("\0")[-len(words) - 1 : -1] == [*words]:
                found.append(int(path.parent.name))
    return found


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def shell(sandbox, script, workspace):
    return asyncio.run(sandbox.run(["sh", "-c", script], Confinement(workspace=workspace)))


def test_a_command_ignores_and_blocks_no_signals(sandbox, workspace):
    lines = shell(sandbox, "grep -E 'Sig(Ign|Blk)' /proc/self/status", workspace).output.split()
    # Above are the real-time signals, which nothing sends and which may be ignored here already.
    assert [int(each, 16) & 0x7FFFFFFF for each in lines[1::2]] == [0, 0]


def test_the_fork_server_has_no_environment_and_no_files(sandbox, workspace, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    shell(sandbox, "true", workspace)
    # Supervisors have the same name.
    wait_until(lambda: len(find_processes("fork", str(os.getpid()))) == 1)
    (server,) = find_processes("fork", str(os.getpid()))
    assert Path(f"/proc/{server}/environ").read_bytes() in {b"", b"PWD=/\0"}  # some shells set it
    assert Path(f"/proc/{server}/cwd").readlink() == Path("/")
    wait_until(lambda: sorted(path.name for path in Path(f"/proc/{server}/fd").iterdir()) == ["0", "1", "2"])


def test_commands_of_many_threads_and_event_loops(sandbox, workspace):
    async def run_some(thread):
        confinement = Confinement(workspace=workspace)
        commands = [["sh", "-c", f"cat; exit {thread}"] for _ in range(4)]
        return await asyncio.gather(
            *(sandbox.run(each, confinement, stdin=b"%d %d" % (thread, n)) for n, each in enumerate(commands))
        )

    with ThreadPoolExecutor(4) as pool:
        for thread, outcomes in enumerate(pool.map(lambda thread: asyncio.run(run_some(thread)), range(4))):
            assert [outcome.output for outcome in outcomes] == [b"%d %d" % (thread, n) for n in range(4)]
            assert {outcome.code for outcome in outcomes} == {thread}


def test_no_descriptor_stays_open(sandbox, workspace):
    shell(sandbox, "true", workspace)
    before = sorted(Path("/proc/self/fd").iterdir())
    shell(sandbox, "cat", workspace)
    for script in ("a\0b", "x" * 5_000_000):
        with pytest.raises(CallerError):
            shell(sandbox, script, workspace)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("is_server", [True, False])
def test_a_fork_server_or_supervisor_that_is_killed_ends_its_commands(sandbox, workspace, is_server):
    seconds = f"{200000 + os.getpid()}"
    killed = []

    async def scenario():
        run = asyncio.create_task(sandbox.run(["sleep", seconds], Confinement(workspace=workspace)))
        await asyncio.to_thread(wait_until, lambda: find_processes("sleep", seconds))
        killed.extend(find_processes("sleep", seconds))
        forks = find_processes("fork", str(os.getpid()))
        # The others are supervisors.
        [process] = [each for each in forks if (parent_of(each) not in forks) == is_server]
        os.kill(process, signal.SIGKILL)
        return await run

    assert asyncio.run(scenario()).code == 128 + signal.SIGKILL
    if is_server or not isinstance(sandbox, Bubblewrap):  # which ends with its supervisor only once it is set up
        wait_until(lambda: find_processes("sleep", seconds) == [])
    for each in killed:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    assert shell(sandbox, "echo again", workspace).output == b"again\n"


FORKS = """
import asyncio, os, signal, sys
from pathlib import Path
from callboard.sandbox import Confinement, find_sandbox
confinement = Confinement(workspace=Path(sys.argv[1]))
async def run(*command):
    return await (await find_sandbox(prefer="none")).run(command, confinement)
print(asyncio.run(run("echo", "before")).output, flush=True)
async def main():
    task = asyncio.create_task(run("sh", "-c", f"touch started; exec sleep {sys.argv[2]}"))
    while not Path(sys.argv[1], "started").exists():
        await asyncio.sleep(0.01)
    if not os.fork():
        signal.pause()
    await task
if os.fork():
    os.wait()
    asyncio.run(main())
else:
    print(asyncio.run(run("echo", "in the fork")).output, flush=True)
"""


def test_a_process_that_forks(workspace):
    """The fork has its own server. A fork that keeps our files open does not keep the commands of a killed owner."""
    seconds = f"{300000 + os.getpid()}"
    command = [sys.executable, "-c", FORKS, str(workspace), seconds]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert [owner.stdout.readline() for _ in range(2)] == [b"b'before\\n'\n", b"b'in the fork\\n'\n"]
        wait_until(lambda: find_processes("sleep", seconds))
        wait_until(lambda: len(find_processes(*command[1:])) > 1)
        owner.kill()
        owner.wait()
        wait_until(lambda: not find_processes("sleep", seconds) and not find_processes("fork", str(owner.pid)))
        assert len(find_processes(*command[1:])) == 1
    finally:
        owner.stdout.close()
        os.killpg(owner.pid, signal.SIGKILL)


def test_the_fork_server_ends_with_its_owner(workspace):
    program = FORKS.partition("async def main")[0]
    owner = subprocess.Popen([sys.executable, "-c", program, str(workspace)], stdout=subprocess.PIPE)
    assert owner.communicate()[0] == b"b'before\\n'\n"
    wait_until(lambda: not find_processes("fork", str(owner.pid)))
