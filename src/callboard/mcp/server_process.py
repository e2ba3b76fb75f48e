"""Start, feed and end a server's program. Law: it ends with us, however we end, and so do the processes it started.

A parent-death signal would reach only the program itself, not what `npx` or `uvx` start in turn, and it is sent already when
the thread ends that started the program. So on Linux a supervisor runs the program and inherits its orphans, whatever
sessions they make; it kills them all when a pipe closes of which only we hold the other end. Other systems have no
subreaper: there a shell waits at such a pipe and kills the program's process group, which misses processes that made a
session of their own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from callboard.sandbox.supervised_run import PROGRAM as SUPERVISOR

STDERR_BYTES: Final = 8 * 1024
"""How much of the end of its standard error is kept."""
EOF_SECONDS: Final = 2.0
TERM_SECONDS: Final = 2.0
KILL_SECONDS: Final = 2.0
"""Seconds to wait after closing its input, after SIGTERM, and after SIGKILL. The order is the specification's."""
_LAST_OUTPUT_SECONDS: Final = 0.2
"""Seconds between the end of its output and its exit, in either order."""
_SUPERVISED: Final = sys.platform == "linux"
_GUARD: Final = ("/bin/sh", "-c", 'read -r _ || kill -9 -"$1"', "callboard-guard")


class ServerProcess(asyncio.SubprocessProtocol):
    """A running program. `on_output` is called with what it writes, `on_end` once, when it has ended."""

    def __init__(
        self, on_output: Callable[[bytes], None], on_end: Callable[[ServerProcess], None], lifeline: int = -1
    ) -> None:
        self._on_output = on_output
        self._on_end: Callable[[ServerProcess], None] | None = on_end
        self._stderr = b""
        self._is_ending = False
        self._open = True
        self._exited = asyncio.Event()
        self._released = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._guard: subprocess.Popen[bytes] | None = None
        self._lifeline = lifeline
        self._transport: asyncio.SubprocessTransport

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        on_output: Callable[[bytes], None],
        on_end: Callable[[ServerProcess], None],
    ) -> ServerProcess:
        """Start a program. Raises OSError or ValueError if it cannot be started."""
        loop = asyncio.get_running_loop()
        words, theirs, ours = [*command], -1, -1
        try:
            if _SUPERVISED:
                program = _find_program(command[0], environment, directory)
                theirs, ours = os.pipe()
                words = [*SUPERVISOR, str(theirs), f"server={program}", "--", *command]
            _, child = await loop.subprocess_exec(
                lambda: cls(on_output, on_end, ours),
                *words,
                env=environment,
                cwd=directory or None,
                start_new_session=True,
                pass_fds=(theirs,) if _SUPERVISED else (),
            )
        except BaseException:
            if ours >= 0:
                os.close(ours)
            raise
        finally:
            if theirs >= 0:
                os.close(theirs)
        return child

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def status(self) -> int | None:
        """Its exit status, negative that of the signal that ended it; None while it runs."""
        return self._transport.get_returncode()

    @property
    def stderr(self) -> str:
        """The end of its standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    def write(self, data: bytes) -> bool:
        """Buffer data for the program's input; return False if that is closed."""
        if self._open:
            self._input.write(data)
        return self._open

    async def drain(self) -> None:
        """Wait while the program does not read."""
        await self._drained.wait()

    def pause(self) -> None:
        """Stop reading its output."""
        self._output.pause_reading()

    def resume(self) -> None:
        self._output.resume_reading()

    async def stop(self) -> None:
        """End the program and the processes it started: close its input, then SIGTERM, then SIGKILL."""
        try:
            self._close_input()
            self.resume()
            for how, grace in ((None, EOF_SECONDS), (signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
                if how is signal.SIGKILL:
                    self._close_lifeline()
                if how is not None and not (how is signal.SIGKILL and _SUPERVISED):
                    self._signal(how)
                if await _wait(grace, self._exited):
                    break
        finally:
            self._close_lifeline()
            if not _SUPERVISED:
                self._signal(signal.SIGKILL)
            elif not self._exited.is_set():
                # The supervisor kills what is left; only if it does not end either is it killed itself.
                await _wait(KILL_SECONDS, self._exited)
            self._transport.close()
            self._stop_guard()
        await _wait(KILL_SECONDS, self._released)

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._output = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
        self._start_guard()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._on_output(data)
        else:
            self._stderr = (self._stderr + data)[-STDERR_BYTES:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._open = False
            self._drained.set()
        elif fd == 1:
            self._end_soon()

    def process_exited(self) -> None:
        self._exited.set()
        self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_lifeline()
        self._stop_guard()
        self._released.set()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    # the rest

    def _end_soon(self) -> None:
        """End once its output is closed and it has exited, or a moment after the first of the two: a process that it
        started may hold the output open, and it may close its output and go on.
        """
        if self._is_ending:
            self._end()
        else:
            self._is_ending = True
            asyncio.get_running_loop().call_later(_LAST_OUTPUT_SECONDS, self._end)

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self)

    def _close_input(self) -> None:
        if self._input.get_write_buffer_size():
            self._input.abort()
        else:
            self._input.close()

    def _signal(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._transport.kill()
            else:
                os.killpg(self.pid, how)

    def _close_lifeline(self) -> None:
        """Have the supervisor kill what is left."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def _start_guard(self) -> None:
        if sys.platform == "win32" or _SUPERVISED:
            return
        with suppress(OSError):  # without a shell there is none
            self._guard = subprocess.Popen(  # noqa: S603  # a constant and a number
                (*_GUARD, str(self.pid)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    def _stop_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()


def _find_program(name: str, environment: Mapping[str, str], directory: str) -> str:
    """Find a program as execvp(3) does, but in no relative directory of PATH. Raises OSError."""
    if "/" in name:
        file = Path(directory or ".", name).absolute()
        if not (os.access(file, os.X_OK) and file.is_file()):
            number = errno.EACCES if file.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number), name)
        return str(file)
    places = [each for each in environment.get("PATH", os.defpath).split(os.pathsep) if each.startswith("/")]
    path = shutil.which(name, path=os.pathsep.join(places)) if places else None
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return path


async def _wait(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
