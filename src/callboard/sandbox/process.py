"""A started command, followed to its end.

Owns its output, its input, its time, the gate that it waits at, and that nothing of it is left. How it is confined
is its leash's business.
Law: cancelling is heard at once, and passed on when all processes are gone. A command never begins before its
leash holds it: if we die before that, its gate never opens.
"""

from __future__ import annotations

import asyncio
import errno
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import thread_time
from typing import Any, Protocol, TypeVar

from callboard.errors import CallerError, SandboxUnavailable
from callboard.sandbox.bounded_output import Kept
from callboard.sandbox.policy import CommandLimits, Outcome, Stopped
from callboard.sandbox.process_tree import processes, proportional, resident
from callboard.sandbox.room import free_bytes

_T = TypeVar("_T")

# RLIMIT_DATA, not RLIMIT_AS: node, Go and Java reserve address space that they never use. The kinds of limits are
# not the same for every shell, and one that is lower already stays.
_GATE = """read -r _ || exit
for limit in "-c 0" "-n 4096" "-f {blocks}" "-d {kibibytes}"; do ulimit $limit; done 2>/dev/null
"""
_PROCESSES = "{{ ulimit -u {processes} || ulimit -p {processes}; }} 2>/dev/null\n"
_BECOME = 'exec "$@"'
# Some programs read a pipe that they were not meant to.
_NO_INPUT = " </dev/null"

TOO_MUCH = 64
"""How many times what is kept a command may print before it is ended."""

_BLOCK = 64 * 1024
_PAUSE, _LONG_PAUSE = 0.05, 0.25
"""Seconds between two looks at the processes, where that is easy and where there are many."""
_SHARE = 20
"""Between the two it is this many times what a look takes of the processor."""
_PATIENCE = 10
"""Seconds for whoever ends the processes, before it is ended itself."""


class Leash(Protocol):
    """What holds a command's processes. `descriptors` are those that the first of them inherits; `own` is how many
    of them are ours.
    """

    @property
    def descriptors(self) -> Sequence[int]: ...

    @property
    def own(self) -> int: ...

    async def hold(self, process: Process) -> None:
        """Called once, when the first process is there; the command begins when this returns."""
        ...

    async def end(self, process: Process) -> None:
        """Ends what is left of them, and returns when nothing is; the first may still be there to be waited for."""
        ...


def at_the_gate(command: Sequence[str], limits: CommandLimits, *, processes: int | None, stdin: bytes) -> list[str]:
    """The command behind a shell that waits for a line of input, limits itself, and becomes the command.

    `processes` counts threads too, and those that are not the command's where it has no namespace of its own; None
    leaves that to the watch.
    """
    script = _GATE.format(blocks=limits.file // 512, kibibytes=limits.memory // 1024)
    if processes is not None:
        script += _PROCESSES.format(processes=processes)
    return ["/bin/sh", "-c", script + _BECOME + ("" if stdin else _NO_INPUT), "sh", *command]


async def follow(
    command: Sequence[str],
    leash: Leash,
    *,
    directory: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    limits: CommandLimits,
    writable: Sequence[Path],
) -> Outcome:
    """Starts what leads to a command at the gate, and comes back when nothing of it is left.

    `writable` are the directories that it may fill.

    Raises SandboxUnavailable where it cannot be started, and CallerError for what is no command.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    start = asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=directory,
        env=environment,
        pass_fds=leash.descriptors,
        start_new_session=True,
        limit=_BLOCK,
    )
    # Cancelled in between, it would be a process that nobody knows.
    try:
        process, cancelled = await _finish(start)
    except OSError as error:
        if error.errno == errno.E2BIG:
            hint = "write it into a file, and run that"
            raise CallerError("the command is too long for this system", hint=hint) from None
        raise SandboxUnavailable(f"cannot be started: {error.strerror}", path=command[0]) from None
    except ValueError as error:
        raise CallerError(f"is no command: {error}", path=repr(command)) from None
    kept = Kept(limits.output)
    tasks: set[asyncio.Task[Any]] = set()
    stopped: Stopped = ""
    try:
        if cancelled:
            raise cancelled
        work = asyncio.create_task(_work(process, leash, stdin, kept, limits))
        watch = asyncio.create_task(_watch(process.pid, leash.own, limits, writable))
        tasks |= {work, watch}
        done, _ = await asyncio.wait(tasks, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        stopped = done.pop().result() if done else "timeout"
    finally:
        _, cancelled = await _finish(_end(process, leash, tasks))
        if cancelled:
            raise cancelled
    code = None if stopped or process.returncode is None else _status(process.returncode)
    return Outcome(code, kept.value(), kept.total, stopped, loop.time() - began)


async def _work(process: Process, leash: Leash, stdin: bytes, kept: Kept, limits: CommandLimits) -> Stopped:
    """Until the command is over, or has printed too much."""
    await leash.hold(process)
    feeding = asyncio.create_task(_feed(process, stdin))
    try:
        assert process.stdout  # noqa: S101  # a pipe
        while block := await process.stdout.read(_BLOCK):
            kept.feed(block)
            if kept.total > TOO_MUCH * limits.output:
                return "output"
        await process.wait()
    finally:
        feeding.cancel()
    return ""


async def _feed(process: Process, stdin: bytes) -> None:
    assert process.stdin  # noqa: S101  # a pipe
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(b"\n" + stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _watch(root: int, own: int, limits: CommandLimits, writable: Sequence[Path]) -> Stopped:
    """Until there are too many processes, or they use too much memory, or disk."""
    pause = _PAUSE
    least = {place: min(limits.spare, free_bytes(place) // 2) for place in writable}
    while True:
        await asyncio.sleep(pause)
        # Not the time on the wall, which they could make long.
        began = thread_time()
        found = processes(root, limits.processes + own)
        if len(found) > limits.processes + own:
            return "processes"
        # The exact figure takes long, and is needed only where the other one says that it may be too much.
        if resident(found) > limits.memory and await asyncio.to_thread(proportional, found) > limits.memory:
            return "memory"
        if any(free_bytes(place) < free for place, free in least.items()):
            return "disk"
        pause = min(max(_PAUSE, _SHARE * (thread_time() - began)), _LONG_PAUSE)


async def _end(process: Process, leash: Leash, tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    try:
        async with asyncio.timeout(_PATIENCE):
            await leash.end(process)
            assert process.stdout  # noqa: S101  # a pipe
            while await process.stdout.read(_BLOCK):
                pass
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _finish(work: Coroutine[Any, Any, _T]) -> tuple[_T, asyncio.CancelledError | None]:
    """What comes of the work, whoever cancels meanwhile; and the cancelling, for the caller to raise."""
    task = asyncio.create_task(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled


def _status(returncode: int) -> int:
    """As a shell has it."""
    return returncode if returncode >= 0 else 128 - returncode
