"""Run a command under a supervisor: its output, its input, its limits, and the end of all its processes.

Laws: cancelling takes effect at once, and is passed on when all processes are gone. A command never starts before its
supervisor runs: it waits at a gate, a shell that first reads a line. If we die before that, the gate never opens. The
memory for output is bounded. Commands get only listed environment variables, so they see no keys of the user.

`OutputFile` keeps the end of the output in a file while the command runs, to be read after a crash of this process.
Law: the file never has more than twice `MAX_BYTES`, and a full disk ends the writing, not the command.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path, PurePath
from time import thread_time
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from callboard.errors import CallerError, SandboxUnavailable
from callboard.sandbox.policy import CommandLimits, Confinement, Outcome, StopReason
from callboard.sandbox.process_tree import list_processes, proportional_bytes, resident_bytes
from callboard.sandbox.readable_paths import is_reachable, rustup_home
from callboard.sandbox.supervised_process import BLOCK, SupervisedProcess
from callboard.telemetry import names, open_span, switch
from callboard.telemetry.content import Clipper
from callboard.text.display import display

MAX_BYTES: Final = 16 * 1024
"""Minimum bytes from the end of the output in the file."""


class OutputFile:
    """A file that each command replaces; with None, nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._size = 0
        self._file = -1
        if path is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with suppress(OSError):
                self._file = os.open(path, flags, 0o600)

    def feed(self, data: bytes) -> None:
        """Write what the command has printed."""
        try:
            if self._file >= 0:
                self._write(data[-2 * MAX_BYTES :])
        except OSError:
            self.close(keep=True)

    def close(self, *, keep: bool) -> None:
        """Close the file. It stays where nobody learns the outcome of the command."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._path is not None and not keep:
            self._path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        if self._size + len(data) > 2 * MAX_BYTES:
            data = (os.pread(self._file, MAX_BYTES, max(0, self._size - MAX_BYTES)) + data)[-MAX_BYTES:]
            self._size = 0
            os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, self._size)
        self._size += len(data)


def read_end(path: Path, longest: int) -> str | None:
    """Return the last lines of the output of an interrupted command; None if there was none."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    if len(text) <= longest:
        return text
    end = text[-longest:]
    return f"...\n{end.partition(chr(10))[2] or end}"


_T = TypeVar("_T")

# RLIMIT_DATA, not RLIMIT_AS: node, Go and Java reserve address space that they never use. Not every shell knows every
# limit, and one that is lower already stays.
_GATE = """read -r _ || exit
for limit in "-c 0" "-n 4096" "-f {blocks}" "-d {kibibytes}"; do ulimit $limit; done 2>/dev/null
"""
_PROCESSES = "{{ ulimit -u {processes} || ulimit -p {processes}; }} 2>/dev/null\n"
_EXEC = 'exec "$@"'
# Some programs read a pipe that they were not meant to.
_NO_INPUT = " </dev/null"

MAX_OUTPUT_RATIO = 64
"""A command is ended when it has printed so many times `output_bytes`."""

_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.05, 0.25
"""Seconds between two checks of the processes: at first, and with many processes."""
_POLL_SHARE = 20
"""Between these bounds, the pause is this many times the processor time of a look."""
_END_SECONDS = 10
"""Seconds that a supervisor has to end the processes, before it is killed."""


class BoundedOutput:
    """Keeps the beginning and the end of what is fed, together at most `limit` bytes; `total` counts all bytes.

    Each byte is copied a bounded number of times.
    """

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._beginning = bytearray()
        self._end = bytearray()
        self._first = limit - limit // 2
        self._last = limit // 2

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._first - len(self._beginning)
        self._beginning += data[:room]
        self._end += data[room:]
        # Only when the end has doubled, so that the cost is amortised.
        if len(self._end) > 2 * self._last:
            del self._end[: len(self._end) - self._last]

    def value(self) -> bytes:
        """Return the collected bytes; above the limit, a line in the middle says how many are missing."""
        end = self._end[max(0, len(self._end) - self._last) :]
        missing = self.total - len(self._beginning) - len(end)
        line = b"\n[%d bytes are missing here]\n" % missing if missing else b""
        return bytes(self._beginning + line + end)


def free_bytes(place: Path) -> int:
    """Free bytes of the disk that a directory is on; 0 for a directory that is gone."""
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return 0


def gate_command(command: Sequence[str], limits: CommandLimits, *, processes: int | None, stdin: bytes) -> list[str]:
    """Wrap the command in a shell that waits for a line of input, sets its limits, and becomes the command.

    `processes` also limits threads. Without a namespace for the command, it counts all processes of the user.
    With None, only the polling limits them.
    """
    script = _GATE.format(blocks=limits.file_bytes // 512, kibibytes=limits.memory_bytes // 1024)
    if processes is not None:
        script += _PROCESSES.format(processes=processes)
    return ["/bin/sh", "-c", script + _EXEC + ("" if stdin else _NO_INPUT), "sh", *command]


async def run_guarded(
    command: Sequence[str],
    restrictions: Sequence[str],
    *,
    descriptors: list[int],
    own_processes: int,
    environment: Mapping[str, str],
    stdin: bytes,
    limits: CommandLimits,
    writable: Sequence[Path],
    output_file: Path | None,
) -> Outcome:
    """Start a gated command, and return when all its processes have ended.

    Args:
        command: The program that leads to the gate, and its arguments.
        restrictions: Instructions for the supervisor, before the command begins; see `supervisor`.
        descriptors: Files that the command inherits, by their index from `FIRST_DESCRIPTOR`. Closed here.
        own_processes: Number of processes that are not the command's.
        environment: Its whole environment.
        stdin: Its input.
        limits: Time, output, memory, processes, disk.
        writable: The directories whose free space is watched.
        output_file: Has the end of the output while the command runs; see `OutputFile`.

    Raises:
        SandboxUnavailable: The program cannot be started.
        CallerError: It is not a command.
    """
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    start = SupervisedProcess.start(command, restrictions, descriptors=descriptors, environment=environment)
    # Shielded: cancelled in between, the process would be lost.
    try:
        process, cancelled = await _finish(start)
    except OSError as error:
        raise SandboxUnavailable(f"cannot be started: {error.strerror}", path=command[0]) from None
    except ValueError as error:
        raise CallerError(f"is no command: {error}", path=repr(command)) from None
    output = BoundedOutput(limits.output_bytes)
    file = OutputFile(output_file)
    has_outcome = False
    tasks: set[asyncio.Task[Any]] = set()
    stop_reason: StopReason = ""
    try:
        if cancelled:
            raise cancelled
        work = asyncio.create_task(_run_command(process, stdin, output, limits, file=file))
        watch = asyncio.create_task(_watch(process, own_processes, limits, writable))
        tasks |= {work, watch}
        done, _ = await asyncio.wait(tasks, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        stop_reason = done.pop().result() if done else "timeout"
        has_outcome = True
    finally:
        _, cancelled = await _finish(_end(process, tasks))
        file.close(keep=bool(cancelled) or not has_outcome)
        if cancelled:
            raise cancelled
    if f"[Errno {errno.E2BIG}]" in process.error:
        raise CallerError("the command is too long for this system", hint="write it into a file, and run that")
    if process.error:
        raise SandboxUnavailable(f"this machine refuses: {process.error}")
    code = None if stop_reason else process.returncode
    return Outcome(code, output.value(), output.total, stop_reason, loop.time() - started_at)


async def _run_command(
    process: SupervisedProcess,
    stdin: bytes,
    output: BoundedOutput,
    limits: CommandLimits,
    *,
    file: OutputFile,
) -> StopReason:
    await process.attach()
    feeding = asyncio.create_task(_write_input(process, stdin))
    try:
        while block := await process.stdout.read(BLOCK):
            output.feed(block)
            file.feed(block)
            if output.total > MAX_OUTPUT_RATIO * limits.output_bytes:
                return "output"
        await process.wait()
    finally:
        feeding.cancel()
    return ""


async def _write_input(process: SupervisedProcess, stdin: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(b"\n" + stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _watch(
    process: SupervisedProcess, own_processes: int, limits: CommandLimits, writable: Sequence[Path]
) -> StopReason:
    pause = _POLL_SECONDS
    least = {place: min(limits.free_bytes, free_bytes(place) // 2) for place in writable}
    while True:
        await asyncio.sleep(pause)
        # Processor time, as the command could make the wall time of a look long.
        started_at = thread_time()
        pids = list_processes(process.pid, limits.processes + own_processes)
        if len(pids) > limits.processes + own_processes:
            return "processes"
        # The exact figure takes long, and is needed only where the rough one is too high.
        if (
            resident_bytes(pids) > limits.memory_bytes
            and await asyncio.to_thread(proportional_bytes, pids) > limits.memory_bytes
        ):
            return "memory"
        if any(free_bytes(place) < free for place, free in least.items()):
            return "disk"
        pause = min(max(_POLL_SECONDS, _POLL_SHARE * (thread_time() - started_at)), _SLOW_POLL_SECONDS)


async def _end(process: SupervisedProcess, tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    process.kill_all()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while await process.stdout.read(BLOCK):
                pass
            await process.wait()
    process.close()


async def _finish(work: Coroutine[Any, Any, _T]) -> tuple[_T, asyncio.CancelledError | None]:
    """Finish the work despite cancellation; return its result, and the cancellation for the caller to raise."""
    task = asyncio.create_task(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled


_PASSED_VARIABLES = ("PATH", "LANG", "TERM", "TZ")
_SET = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # The machine's configuration of git is not readable, which git would complain of.
    "GIT_CONFIG_NOSYSTEM": "1",
    # In the sandbox, files have a different owner than in git's index, and git would reread all of them each time.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.checkStat",
    "GIT_CONFIG_VALUE_0": "minimal",
}


def build_environment(confinement: Confinement, home: Path, **further: str) -> dict[str, str]:
    """Return the whole environment of a command; what the confinement adds comes last."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_VARIABLES or name.startswith("LC_")}
    # Found through HOME, which is another here.
    if is_reachable(rustup_home() / "toolchains"):
        passed["RUSTUP_HOME"] = str(rustup_home())
    return {**_SET, **passed, "HOME": str(home), **further, **confinement.environment}


P = ParamSpec("P")
_MAX_NAME: Final = 60


class _HasName(Protocol):
    name: str


Run: TypeAlias = Callable[Concatenate[Any, Sequence[str], P], Coroutine[Any, Any, Outcome]]


def observe_commands(run: Run[P]) -> Run[P]:
    """Make the method of a sandbox that runs a command make a span of it."""

    @wraps(run)
    async def run_in_span(sandbox: _HasName, command: Sequence[str], /, *args: P.args, **options: P.kwargs) -> Outcome:
        running = run(sandbox, command, *args, **options)
        return await running if switch.recorder is None else await _observe(sandbox.name, command, running)

    return run_in_span


async def _observe(sandbox: str, command: Sequence[str], running: Awaitable[Outcome]) -> Outcome:
    program = display(PurePath(command[0]).name, _MAX_NAME) if command else ""
    with open_span(
        f"execute_command {program}", attributes={names.PROCESS_NAME: program, names.SANDBOX: sandbox}
    ) as span:
        if span.max_content:
            clip = Clipper(span.max_content)
            span.set({names.PROCESS_ARGUMENTS: [clip.text(each) for each in command]})
        outcome = await running
        if outcome.code is not None:
            span.set({names.PROCESS_EXIT_CODE: outcome.code})
        if outcome.stop_reason:
            span.set({names.STOP_REASON: outcome.stop_reason})
            span.fail(outcome.stop_reason)
        return outcome
