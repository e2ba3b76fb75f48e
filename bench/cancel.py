"""How long does a coding job live after it was cancelled?

usage: python -m bench.cancel

A job of `callboard debug` runs a command with a tree of ten processes that ignore every signal they can ignore. It is
cancelled from another process. Milliseconds from there until none of the processes is left, and until the job has
ended, with what it changed committed and its tree taken away: best and worst of five jobs.
"""

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from pathlib import Path
from unittest import mock

from callboard.cli.durable_store import open_store
from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted
from callboard.testing import FakeBackend

TIMES = 5
NAP = f"4719.{os.getpid()}"
TREE = f"trap '' TERM INT HUP; for i in 1 2 3 4 5 6 7 8 9; do setsid sleep {NAP} & done; sleep {NAP}"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bench"), ("EMAIL", "bench@example.org"))
}


def sleepers() -> int:
    """How many of the tree's processes there are."""
    found = 0
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += process.read_bytes() == f"sleep\0{NAP}\0".encode()
        except OSError:
            continue
    return found


def calling() -> list[object]:
    arguments = f'{{"command": "{TREE}"}}'
    return [
        ReplyStarted(),
        InvocationStarted(0, "call_1", "bash", True),
        ArgumentsPiece(0, arguments),
        InvocationEnded(0, "call_1", "bash", None, arguments),
        ReplyEnded("invocations"),
    ]


async def shell(*command: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env={**os.environ, **IDENTITY}, stdout=DEVNULL)
    if await process.wait():
        sys.exit(f"{command} failed")


async def cancelled(place: Path) -> tuple[float, float]:
    """Milliseconds until the processes are gone, and until the job has ended."""
    repository = place / "repository"
    repository.mkdir()
    (repository / "a.py").write_text("x = 1\n", "utf-8")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        await shell("git", *arguments, cwd=repository)
    async with FakeBackend([calling()]) as backend:
        places = dict.fromkeys(["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"], str(place))
        environment = {**os.environ, **IDENTITY, **places}
        options = ["--symptoms", "x", "--workflow", "phased", "--model", "fake-model", "--base-url", backend.url]
        job = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("callboard")),
            *["debug", *options],
            cwd=repository,
            env=environment,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        while sleepers() < 10:
            if job.returncode is not None:
                sys.exit("the job ended before it was cancelled")
            await asyncio.sleep(0.01)
        with mock.patch.dict(os.environ, places), open_store() as store:
            (summary,) = await store.list()
            began = time.perf_counter()
            await store.request_cancel(summary.id)
            while sleepers():  # noqa: ASYNC110  # of other processes
                await asyncio.sleep(0.001)
            gone = time.perf_counter()
            while not (ended := await store.get(summary.id)).has_ended:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.001)
            done = time.perf_counter()
        if ended.state != "cancelled":
            sys.exit(f"the job is {ended.state}")
        await job.wait()
    return (gone - began) * 1e3, (done - began) * 1e3


async def main() -> None:
    figures = []
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as place:
            figures.append(await cancelled(Path(place)))
    print(f"A cancelled job, {TIMES} of them\n")
    print(f"{'':32}{'best ms':>10}{'worst ms':>10}")
    for name, each in zip(("its ten processes are gone", "it has ended"), zip(*figures, strict=True), strict=True):
        print(f"{name:32}{min(each):10.0f}{max(each):10.0f}")


if __name__ == "__main__":
    asyncio.run(main())
