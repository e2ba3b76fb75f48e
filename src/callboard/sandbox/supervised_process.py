"""Start commands under supervisors that a fork server forks: one small Python for all commands of this process.

Starting a Python takes 10 ms, forking one takes 1 ms. The fork server starts with the first command. It has no
environment and no files, and keeps the priority, the umask and the limits that this process has then. It runs nothing
itself: restrictions apply in a child of each supervisor. See `supervisor`.

Laws: a supervisor ends, and all processes of its command with it, when we close its lifeline or die. When the fork
server ends, its supervisors end. The fork server ends with this process.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

PROGRAM: Final = [os.path.realpath(sys.executable), "-I", "-S", str(Path(__file__).with_name("supervisor.py"))]
BLOCK: Final = 64 * 1024
FIRST_DESCRIPTOR: Final = 3
"""Number of the first descriptor that a command inherits beside its standard streams."""

# In the background of a shell that ends: no child of ours, so a program that waits for its children does not meet it.
_BEHIND: Final = 'exec 3<&0; "$@" <&3 3<&- &'


def start_behind(command: Sequence[str], stdin: int, environment: Mapping[str, str] | None = None) -> None:
    """Start a process that is not our child, without output."""
    subprocess.run(  # noqa: S603  # our own scripts
        ["/bin/sh", "-c", _BEHIND, "sh", *command],
        stdin=stdin,
        stdout=DEVNULL,
        stderr=DEVNULL,
        cwd="/",
        env=environment,
        start_new_session=True,
        check=True,
    )


class _ForkServer:
    """Sends requests from any thread. A fork of this process starts its own server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._is_registered = False

    def send(self, files: Sequence[int]) -> None:
        """Start a supervisor that inherits the files. Raises OSError."""
        with self._lock:
            if self._requests:
                with suppress(ConnectionError):
                    socket.send_fds(self._requests, [b"\n"], files)
                    return
                self._requests.close()  # the server was killed
            if not self._is_registered:
                os.register_at_fork(after_in_child=self._forget)
                self._is_registered = True
            self._requests, theirs = socket.socketpair()
            with theirs:
                start_behind([*PROGRAM, "fork", str(os.getpid())], theirs.fileno(), {})
            socket.send_fds(self._requests, [b"\n"], files)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        if self._requests:
            self._requests.close()
            self._requests = None


_server: Final = _ForkServer()


class SupervisedProcess:
    """A command and its supervisor.

    `pid` is the supervisor's, 0 until it runs. `error` says why the command could not be started.
    """

    def __init__(
        self,
        lifeline: tuple[StreamReader, StreamWriter],
        stdin: StreamWriter,
        stdout: tuple[StreamReader, asyncio.BaseTransport],
    ) -> None:
        self.stdin = stdin
        self.stdout, self._output = stdout
        self.pid = 0
        self.returncode = 128 + signal.SIGKILL
        self.error = ""
        self._reader, self._lifeline = lifeline
        self._started = asyncio.Event()
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        restrictions: Sequence[str],
        *,
        descriptors: list[int],
        environment: Mapping[str, str],
    ) -> SupervisedProcess:
        """Ask the fork server for a supervisor and send it the command.

        Args:
            command: The program, by its absolute path, and its arguments.
            restrictions: Instructions for the supervisor, before the command begins; see `supervisor`.
            descriptors: Files that the command inherits, by their index from `FIRST_DESCRIPTOR`. Closed here.
            environment: The whole environment.

        Raises:
            OSError: The fork server cannot be started.
            ValueError: A text contains a null character.
        """
        try:
            request = _encode_request(command, restrictions, environment)
            ours, feeding, printed = _send(descriptors)
        finally:
            while descriptors:
                os.close(descriptors.pop())
        loop = asyncio.get_running_loop()
        reader, lifeline = await asyncio.open_connection(sock=ours)
        lifeline.write(request)
        stdout = StreamReader(BLOCK)
        # Each pipe is closed with its transport.
        output, _ = await loop.connect_read_pipe(lambda: StreamReaderProtocol(stdout), os.fdopen(printed, "rb", 0))
        transport, protocol = await loop.connect_write_pipe(
            lambda: StreamReaderProtocol(StreamReader()), os.fdopen(feeding, "wb", 0)
        )
        return cls((reader, lifeline), StreamWriter(transport, protocol, None, loop), (stdout, output))

    async def attach(self) -> None:
        """Return when the supervisor runs, or when it cannot be started."""
        await self._started.wait()

    async def wait(self) -> None:
        """Return when the command and all its processes have ended."""
        await asyncio.wait({self._following})

    def kill_all(self) -> None:
        """Make the supervisor kill all processes."""
        self._lifeline.write_eof()

    def close(self) -> None:
        """Kill what did not end."""
        if not self._following.done() and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self.stdin.transport.get_write_buffer_size():
            self.stdin.transport.abort()
        self.stdin.close()
        self._output.close()
        self._lifeline.close()

    async def _follow(self) -> None:
        with suppress(ConnectionError):
            self.pid = int(await self._reader.readline() or 0)
        self._started.set()
        with suppress(ConnectionError):
            lines = (await self._reader.read()).decode(errors="replace").splitlines()
            if lines and lines[-1].isdigit():
                self.returncode = int(lines.pop())
            else:  # the supervisor was killed, and what the command left may have the output open
                self._output.close()
            self.error = "\n".join(lines)
        if not self.pid:
            self.error = "no supervisor can be started"


def _send(descriptors: list[int]) -> tuple[socket.socket, int, int]:
    """Return our ends: of the lifeline, the input and the output. Add the supervisor's ends to `descriptors`."""
    ours, theirs = socket.socketpair()
    (reading, feeding), (printed, printing) = os.pipe(), os.pipe()
    descriptors[:] = [reading, printing, *descriptors, theirs.detach()]
    try:
        _server.send(descriptors)
    except BaseException:
        ours.close()
        descriptors += [feeding, printed]
        raise
    return ours, feeding, printed


def _encode_request(command: Sequence[str], restrictions: Sequence[str], environment: Mapping[str, str]) -> bytes:
    pairs = [each.partition("=") for each in restrictions]
    texts = [*command, *(value for _, _, value in pairs), *environment, *environment.values()]
    if any("\0" in each for each in texts):
        raise ValueError("embedded null byte")
    return marshal.dumps(
        (
            [os.fsencode(each) for each in command],
            [(kind, os.fsencode(value)) for kind, _, value in pairs],
            {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        )
    )
