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
from callboard.sandbox.bounded_output import BoundedOutput
from callboard.sandbox.policy import CommandLimits, Outcome, StopReason
from callboard.sandbox.process_tree import list_processes, proportional_bytes, resident_bytes
from callboard.sandbox.room import free_bytes

_T = TypeVar("_T")

# RLIMIT_DATA, not RLIMIT_AS: node, Go and Java reserve address space that they never use. The kinds of limits are
# not the same for every shell, and one that is lower already stays.
_GATE = """read -r _ || exit
for limit in "-c 0" "-n 4096" "-f {blocks}" "-d {kibibytes}"; do ulimit $limit; done 2>/dev/null
"""
_PROCESSES = "{{ ulimit -u {processes} || ulimit -p {processes}; }} 2>/dev/null\n"
_EXEC = 'exec "$@"'
# Some programs read a pipe that they were not meant to.
_NO_INPUT = " </dev/null"

MAX_OUTPUT_RATIO = 64
"""How many times what is kept a command may print before it is ended."""

_BLOCK = 64 * 1024
_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.05, 0.25
"""Seconds between two looks at the processes, where that is easy and where there are many."""
_POLL_SHARE = 20
"""Between the two it is this many times what a look takes of the processor."""
_END_SECONDS = 10
"""Seconds for whoever ends the processes, before it is ended itself."""


class ProcessGuard(Protocol):
    """What holds a command's processes. `descriptors` are those that the first of them inherits; `own` is how many
    of them are ours.
    """

    @property
    def descriptors(self) -> Sequence[int]: ...

    @property
    def own_processes(self) -> int: ...

    async def attach(self, process: Process) -> None:
        """Called once, when the first process is there; the command begins when this returns."""
        ...

    async def kill_all(self, process: Process) -> None:
        """Ends what is left of them, and returns when nothing is; the first may still be there to be waited for."""
        ...


def gate_command(command: Sequence[str], limits: CommandLimits, *, processes: int | None, stdin: bytes) -> list[str]:
    """The command behind a shell that waits for a line of input, limits itself, and becomes the command.

    `processes` counts threads too, and those that are not the command's where it has no namespace of its own; None
    leaves that to the watch.
    """
    script = _GATE.format(blocks=limits.file_bytes // 512, kibibytes=limits.memory_bytes // 1024)
    if processes is not None:
        script += _PROCESSES.format(processes=processes)
    return ["/bin/sh", "-c", script + _EXEC + ("" if stdin else _NO_INPUT), "sh", *command]


async def run_guarded(
    command: Sequence[str],
    guard: ProcessGuard,
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
    started_at = loop.time()
    start = asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=directory,
        env=environment,
        pass_fds=guard.descriptors,
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
    output = BoundedOutput(limits.output_bytes)
    tasks: set[asyncio.Task[Any]] = set()
    stop_reason: StopReason = ""
    try:
        if cancelled:
            raise cancelled
        work = asyncio.create_task(_run_command(process, guard, stdin, output, limits))
        watch = asyncio.create_task(_watch(process.pid, guard.own_processes, limits, writable))
        tasks |= {work, watch}
        done, _ = await asyncio.wait(tasks, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        stop_reason = done.pop().result() if done else "timeout"
    finally:
        _, cancelled = await _finish(_end(process, guard, tasks))
        if cancelled:
            raise cancelled
    code = None if stop_reason or process.returncode is None else _status(process.returncode)
    return Outcome(code, output.value(), output.total, stop_reason, loop.time() - started_at)


async def _run_command(
    process: Process, guard: ProcessGuard, stdin: bytes, output: BoundedOutput, limits: CommandLimits
) -> StopReason:
    """Until the command is over, or has printed too much."""
    await guard.attach(process)
    feeding = asyncio.create_task(_write_input(process, stdin))
    try:
        assert process.stdout  # noqa: S101  # a pipe
        while block := await process.stdout.read(_BLOCK):
            output.feed(block)
            if output.total > MAX_OUTPUT_RATIO * limits.output_bytes:
                return "output"
        await process.wait()
    finally:
        feeding.cancel()
    return ""


async def _write_input(process: Process, stdin: bytes) -> None:
    assert process.stdin  # noqa: S101  # a pipe
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(b"\n" + stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _watch(root: int, own_processes: int, limits: CommandLimits, writable: Sequence[Path]) -> StopReason:
    """Until there are too many processes, or they use too much memory, or disk."""
    pause = _POLL_SECONDS
    least = {place: min(limits.free_bytes, free_bytes(place) // 2) for place in writable}
    while True:
        await asyncio.sleep(pause)
        # Not the time on the wall, which they could make long.
        started_at = thread_time()
        pids = list_processes(root, limits.processes + own_processes)
        if len(pids) > limits.processes + own_processes:
            return "processes"
        # The exact figure takes long, and is needed only where the other one says that it may be too much.
        if (
            resident_bytes(pids) > limits.memory_bytes
            and await asyncio.to_thread(proportional_bytes, pids) > limits.memory_bytes
        ):
            return "memory"
        if any(free_bytes(place) < free for place, free in least.items()):
            return "disk"
        pause = min(max(_POLL_SECONDS, _POLL_SHARE * (thread_time() - started_at)), _SLOW_POLL_SECONDS)


async def _end(process: Process, guard: ProcessGuard, tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    try:
        async with asyncio.timeout(_END_SECONDS):
            await guard.kill_all(process)
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
