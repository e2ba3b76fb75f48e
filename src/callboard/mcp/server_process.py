"""A server that is a program of ours.

Owns the process: how it is started, fed, read and ended, and that nothing of it is left. Knows nothing of messages.
Law: it ends with us, however we end, and so does what it started.

A parent-death signal reaches only the child itself, not what `npx` or `uvx` started in turn, and comes already when
the thread ends that started it. So on Linux a supervisor stands between, to which everything falls that the program
leaves behind, whatever sessions it makes; it holds one end of a pipe whose other one only we hold, and kills all when
that ends. Elsewhere no process inherits what another one leaves: there a shell stands guard with such a pipe, and
kills the program's process group, which what makes a session of its own has left.
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

KEPT_ERRORS: Final = 8 * 1024
"""Bytes of what it wrote to its standard error, the last ones."""
EOF_GRACE: Final = 2.0
TERM_GRACE: Final = 2.0
KILL_GRACE: Final = 2.0
"""Seconds after its input is closed, it is asked to end, and it is killed. The order is the specification's."""
_LAST_WORDS: Final = 0.2
"""Seconds that output and exit may come apart."""
_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py").resolve()
_SUPERVISED: Final = sys.platform == "linux"
_GUARD: Final = ("/bin/sh", "-c", 'read -r _ || kill -9 -"$1"', "callboard-guard")


class Child(asyncio.SubprocessProtocol):
    """A running program. `take` gets what it writes; `ended` is called once, when it is not there any more."""

    def __init__(self, take: Callable[[bytes], None], ended: Callable[[Child], None], lifeline: int = -1) -> None:
        self._take = take
        self._tell_ended: Callable[[Child], None] | None = ended
        self._errors = b""
        self._over = False
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
        take: Callable[[bytes], None],
        ended: Callable[[Child], None],
    ) -> Child:
        """Raises OSError and ValueError if it cannot be started."""
        loop = asyncio.get_running_loop()
        words, theirs, ours = [*command], -1, -1
        try:
            if _SUPERVISED:
                program = _program(command[0], environment, directory)
                theirs, ours = os.pipe()
                words = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(theirs), program, *command]
            _, child = await loop.subprocess_exec(
                lambda: cls(take, ended, ours),
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
    def errors(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.decode("utf-8", "replace").strip()

    def write(self, data: bytes) -> bool:
        """Whether it could be written; it goes out when the program reads."""
        if self._open:
            self._input.write(data)
        return self._open

    async def drained(self) -> None:
        """Waits while the program does not read."""
        await self._drained.wait()

    def pause(self) -> None:
        """Lets it wait with its output."""
        self._output.pause_reading()

    def resume(self) -> None:
        self._output.resume_reading()

    async def stop(self) -> None:
        """Ends it and what it started: closes its input, asks, kills."""
        try:
            self._close_input()
            self.resume()
            for how, grace in ((None, EOF_GRACE), (signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_GRACE)):
                if how is signal.SIGKILL:
                    self._cut()
                if how is not None and not (how is signal.SIGKILL and _SUPERVISED):
                    self._signal(how)
                if await _within(grace, self._exited):
                    break
        finally:
            self._cut()
            if not _SUPERVISED:
                self._signal(signal.SIGKILL)
            elif not self._exited.is_set():
                # It has what is left to kill; only where that cannot be is it killed itself.
                await _within(KILL_GRACE, self._exited)
            self._transport.close()
            self._dismiss_guard()
        await _within(KILL_GRACE, self._released)

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._output = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
        self._post_guard()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._take(data)
        else:
            self._errors = (self._errors + data)[-KEPT_ERRORS:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._open = False
            self._drained.set()
        elif fd == 1:
            self._over_soon()

    def process_exited(self) -> None:
        self._exited.set()
        self._over_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut()
        self._dismiss_guard()
        self._released.set()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    # the rest

    def _over_soon(self) -> None:
        """After its output has ended and it has exited, or a moment after the first of both: what it started may
        hold the output, and it may close the output and stay.
        """
        if self._over:
            self._end()
        else:
            self._over = True
            asyncio.get_running_loop().call_later(_LAST_WORDS, self._end)

    def _end(self) -> None:
        tell, self._tell_ended = self._tell_ended, None
        if tell is not None:
            tell(self)

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

    def _cut(self) -> None:
        """Lets the supervisor go, which kills what is left."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def _post_guard(self) -> None:
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

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()


def _program(name: str, environment: Mapping[str, str], directory: str) -> str:
    """The path of a program, as execvp(3) finds it; none in a relative directory of PATH. Raises OSError."""
    if "/" in name:
        found = Path(directory or ".", name).absolute()
        number = (
            0 if os.access(found, os.X_OK) and found.is_file() else errno.EACCES if found.exists() else errno.ENOENT
        )
        if number:
            raise OSError(number, os.strerror(number), name)
        return str(found)
    places = [each for each in environment.get("PATH", os.defpath).split(os.pathsep) if each.startswith("/")]
    path = shutil.which(name, path=os.pathsep.join(places)) if places else None
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return path


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
