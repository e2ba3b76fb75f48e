"""MCP over a program's standard input and output: a message is one line of JSON.

Laws: each byte is scanned once. A line that is not a message is reported and skipped.

The program and its child processes end with us, even if we crash. A parent-death signal would reach only the program,
not the processes that `npx` or `uvx` start, and it is already sent when the starting thread ends. A supervisor
therefore runs the program. It kills all of them when a pipe closes whose other end only we hold. On Linux
it inherits the program's orphans, whatever sessions they make. Other systems have no subreaper: there it kills the
program's process group, which misses processes in a session of their own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from callboard.mcp.connection_state import SEND_STATE
from callboard.mcp.lenient_json import reparse
from callboard.sandbox.supervised_process import PROGRAM as SUPERVISOR

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Maximum bytes of one message. A larger one ends the connection."""
MAX_EARLY_LINES: Final = 10_000
"""Maximum lines from a server before the handshake is done, which needs one line."""
STDERR_BYTES: Final = 8 * 1024
"""Bytes kept from the end of the program's standard error."""
EOF_SECONDS: Final = 2.0
TERM_SECONDS: Final = 2.0
KILL_SECONDS: Final = 2.0
"""Seconds to wait after closing the input, after SIGTERM, and after SIGKILL, as in the specification."""
_EXIT_SECONDS: Final = 0.2
"""Seconds between the end of the output and the exit of the program."""
_BLOCK: Final = 64 * 1024
"""Maximum bytes of one read."""


class LineSplitter:
    """Splits fed bytes into lines. Raises OverflowError for a line of more than `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """The bytes after the last line."""
        return b"".join(self._pieces)

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._most or any(len(line) > self._most for line in lines):
            raise OverflowError
        return lines


class ServerProcess:
    def __init__(self, process: Process, lifeline: int) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the program has no pipes")
        self.stdin, self.stdout = process.stdin, process.stdout
        self.stderr = b""
        """The end of the program's standard error."""
        self._process = process
        self._lifeline = lifeline
        self._listener = asyncio.create_task(self._read_stderr(process.stderr))

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], directory: str) -> ServerProcess:
        """Start a program. Raises OSError or ValueError if it cannot be started."""
        program = _find_program(command[0], environment, directory)
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(*SUPERVISOR, str(theirs), f"server={program}", "--", *command),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=environment,
                cwd=directory or None,
                start_new_session=True,
                pass_fds=(theirs,),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours)

    async def wait(self, seconds: float) -> int | None:
        """Return the exit status (negative for a signal), or None if the program still runs after `seconds`."""
        ended = asyncio.ensure_future(self._process.wait())
        await asyncio.wait((ended, self._listener), timeout=seconds, return_when=asyncio.ALL_COMPLETED)
        ended.cancel()
        return self._process.returncode

    async def stop(self) -> None:
        """End the program and the processes it started: close its input, then SIGTERM, then SIGKILL."""
        reader = asyncio.create_task(_discard(self.stdout))
        try:
            if self.stdin.transport.get_write_buffer_size():
                self.stdin.transport.abort()
            else:
                self.stdin.close()
            if await self.wait(EOF_SECONDS) is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGTERM)
                await self.wait(TERM_SECONDS)
        finally:
            os.close(self._lifeline)  # the supervisor kills what is left
            if await self.wait(KILL_SECONDS) is None:
                self._process.kill()
                await self.wait(KILL_SECONDS)
            for task in (reader, self._listener):
                task.cancel()

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_BLOCK):
            self.stderr = (self.stderr + data)[-STDERR_BYTES:]


class StdioTransport:
    """The SDK's transport over a ServerProcess, and its read stream.

    `on_lost` gets the reason when the connection is lost, `on_noise` each line that is not a message.
    """

    def __init__(
        self, process: ServerProcess, on_lost: Callable[[str], None], on_noise: Callable[[bytes], None]
    ) -> None:
        self.process = process
        self.received = 0
        """Number of blocks of output received."""
        self.is_ready = False
        """True if the handshake is done."""
        self.program_exited = False
        """True if the connection was lost because the program ended."""
        self._early = 0
        self._on_lost = on_lost
        self._on_noise = on_noise
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()

    async def __aenter__(self) -> tuple[StdioTransport, WriteStream]:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415  # the SDK is imported while the server starts
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        self._message: Callable[[Any], SessionMessage] = SessionMessage
        self._decode = jsonrpc_message_adapter.validate_json
        return self, WriteStream(self)

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def end(self, why: str) -> None:
        """End the connection after a pipe was closed. `why` is the reason if the program still runs."""
        status = await self.process.wait(_EXIT_SECONDS)
        self.program_exited = status is not None
        self._on_lost(why if status is None else f"it ended with status {status}")

    async def aclose(self) -> None:
        self._lines.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while not self._lines:
                await self._read_lines()
            line = self._lines.popleft()
            if not line.strip():
                continue
            if (message := self._read(line)) is not None:
                return message
            self._on_noise(line)

    async def _read_lines(self) -> None:
        """Raises StopAsyncIteration when the connection is lost."""
        data = await self.process.stdout.read(_BLOCK)
        if not data:
            await self.end("it closed its output")
            raise StopAsyncIteration
        self.received += 1
        try:
            lines = self._splitter.feed(data)
        except OverflowError:
            self._on_lost(f"it sent a message of more than {MAX_MESSAGE} bytes")
            raise StopAsyncIteration from None
        self._early += 0 if self.is_ready else len(lines)
        if self._early > MAX_EARLY_LINES:
            self._on_lost(f"it sent more than {MAX_EARLY_LINES} messages before it was connected")
            raise StopAsyncIteration
        self._lines.extend(lines)

    def _read(self, line: bytes) -> SessionMessage | None:
        """Return the message in a line, repaired if necessary, or None if the line is not a message."""
        try:
            return self._message(self._decode(line, by_name=False))
        except (ValueError, RecursionError):
            mended = reparse(line)
        try:
            return None if mended is None else self._message(self._decode(mended, by_name=False))
        except (ValueError, RecursionError):
            return None


class WriteStream:
    """The SDK's write stream. A request waits while the server does not read; a cancellation does not wait."""

    def __init__(self, transport: StdioTransport) -> None:
        from anyio import ClosedResourceError  # noqa: PLC0415

        self._transport = transport
        self._input = transport.process.stdin
        self._error = ClosedResourceError

    async def send(self, item: SessionMessage) -> None:
        message: Any = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        asks = hasattr(message, "id") and hasattr(message, "method")
        if asks:
            with suppress(ConnectionError):
                await self._input.drain()
        if self._input.is_closing():
            await self._transport.end("it closed its input")
            raise self._error
        self._input.write(data)
        if asks and (sending := SEND_STATE.get()) is not None:
            sending.sent = True

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _find_program(name: str, environment: Mapping[str, str], directory: str) -> str:
    """Find a program as execvp(3) does, but not in relative directories of PATH. Raises OSError."""
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


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(_BLOCK):
        pass
