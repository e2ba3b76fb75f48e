"""Connect a server, and reconnect it while calls wait for a connection.

Laws: all waiting calls share one attempt, and without a waiting call nothing is tried. A server that fails at the newer
protocol's first request is tried with the older protocol.

The SDK tries the newer protocol first, and falls back after an error or ten seconds without an answer. Programs of the
Rust SDK exit at that request, so they are started again with the older protocol. Servers with the older protocol are
remembered between processes, with their versions. A cache that cannot be read or written is ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallerError
from callboard.mcp.connection import Connection, open_connection
from callboard.mcp.connection_state import Backoff, ServerEvent, State, StateChanged
from callboard.mcp.errors import (
    ServerFailure,
    ServerTimeout,
    ServerUnreachable,
    is_lost,
    is_server_error,
    to_failure,
)
from callboard.mcp.settings import ServerSettings, state_file
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    import httpx2

_MAX_STDERR_CHARS: Final = 300
"""Maximum characters of standard error that fit into a line of `callboard mcp list`."""
_STACK_FRAMES: Final = re.compile(
    r'^[ \t]+File ".*\n?(?:[ \t]{4,}.*\n?)*|^[ \t]+at .*\n?|^Traceback .*\n?|^Node\.js v.*\n?', re.MULTILINE
)
"""Stack traces of Python and Node.js around the message of an exception."""
_NO_VERSION: Final = frozenset({"auto", "legacy"})


class Reconnector:
    """The connections of one server, one after another.

    Args:
        settings: How to reach the server.
        make_callbacks: Makes the SDK's callbacks for a connection.
        on_connected: Called with each connection that is ready.
        on_noise: Called with each line that is not a message.
        emit: Called with state changes.
        auth: Signs HTTP requests.
        protocols: Remembers which protocol the server speaks.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        make_callbacks: Callable[[Connection], dict[str, Any]],
        on_connected: Callable[[Connection], None],
        on_noise: Callable[[bytes], None],
        emit: Callable[[ServerEvent], None],
        auth: httpx2.Auth | None,
        protocols: ProtocolCache | None,
    ) -> None:
        self.path = f"mcp.{settings.name}"
        self.current: Connection | None = None
        self.failure: ServerFailure | None = None
        """Why the last attempt failed. None after a success."""
        self._settings = settings
        self._make_callbacks = make_callbacks
        self._on_connected = on_connected
        self._on_noise = on_noise
        self._emit = emit
        self._auth = auth
        self.state: State = "idle"
        self._backoff = Backoff()
        self._protocols = protocols if settings.protocol == "auto" else None
        remembered = self._protocols is not None and self._protocols.is_legacy(settings)
        self._known_mode = "legacy" if remembered or _is_legacy(settings.protocol) else "auto"
        self._mode = self._known_mode
        self._task: asyncio.Task[None] | None = None
        self._waiting = 0
        self._failures = 0
        self._closed = False
        self._state_changed = asyncio.Event()
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Connect now, regardless of earlier failures. Raises ServerFailure if this attempt fails."""
        failures = self._failures
        if not self._closed:
            self._backoff.skip(_now())
            self._set_state("idle" if self.state == "failed" else self.state)
        await self.wait_connected(lambda: self._failures > failures)

    async def wait_connected(self, has_failed: Callable[[], bool] = lambda: False) -> Connection:
        """Wait for a connection. Raises ServerFailure if the attempts end without one, or once `has_failed()`."""
        self._waiting += 1
        try:
            while (connection := self.current) is None or self._closed:
                if self._closed:
                    raise ServerUnreachable("it is closed", path=self.path)
                if self.failure is not None and (self.state == "failed" or has_failed()):
                    raise self.failure.copy()
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._run(), name=self.path)
                self._wake.set()
                await self._state_changed.wait()
            return connection
        finally:
            self._waiting -= 1

    def mark_answered(self, connection: Connection) -> None:
        """Record that a call was answered on this connection, which resets the backoff."""
        if not connection.has_answered and connection is self.current:
            connection.has_answered = True
            self._backoff.reset()

    async def aclose(self) -> None:
        self._closed = True
        if self.current is not None:
            self.current.end("")
        elif self._task is not None:
            self._task.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))
        self._set_state("failed" if self.state == "failed" else "idle")

    async def _run(self) -> None:
        """Open and close every connection in one task, as the SDK requires. Return when no call waits."""
        while not self._closed and await self._wait_until_due():
            self._set_state("connecting")
            if await self._connect(may_switch=True):
                await self._connect(may_switch=False)

    async def _connect(self, *, may_switch: bool) -> bool:
        """Hold one connection until it is closed. Return True if the other protocol should be tried at once."""
        connection = Connection(self.path, self._on_end, self._on_noise)
        try:
            async with open_connection(
                connection, self._settings, self._mode, self._make_callbacks(connection), self._auth
            ):
                self._use(connection)
                await connection.closed.wait()
        except Exception as error:  # noqa: BLE001  # after any exception of the SDK, the connection is lost
            switches = (
                self.state == "connecting" and not self._closed and self._may_other_protocol_help(connection, error)
            )
            if switches:
                self._switch_protocol()
            if self.state == "connecting" and not (switches and may_switch):
                self._record_failure(connection, error)
            connection.end(to_failure(error, self.path).message)
            return switches and may_switch
        return False

    async def _wait_until_due(self) -> bool:
        """Wait until the next attempt is allowed. Return False if no call waits for it anymore."""
        await asyncio.sleep(0)  # lets a `start` stop waiting after a failed attempt
        while True:
            self._wake.clear()
            if not self._waiting or self.state == "failed":
                return False
            wait = self._backoff.seconds_until_retry(_now())
            if not wait:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _use(self, connection: Connection) -> None:
        if connection.closed.is_set():
            raise ServerUnreachable(connection.why, path=self.path)
        protocol = self._settings.protocol
        if protocol not in _NO_VERSION and connection.is_modern == _is_legacy(protocol):
            message = f"it speaks {connection.client.protocol_version}, not {protocol}"
            raise CallerError(message, path=f"{self.path}.protocol", hint='protocol = "auto"')
        self._mode = self._known_mode = "auto" if connection.is_modern else "legacy"
        if self._protocols is not None:
            info = connection.client.server_info
            version = f"{info.name} {info.version}" if info else ""
            self._protocols.remember(self._settings, legacy=not connection.is_modern, version=version)
        self.current = connection
        self.failure = None
        self._set_state("ready")
        self._on_connected(connection)

    def _record_failure(self, connection: Connection, error: Exception) -> None:
        if isinstance(error, TimeoutError) and not isinstance(error, ServerFailure):
            if not connection.received:  # some servers older than 2026 ignore the newer protocol's request
                self._switch_protocol()
            text = add_stderr(connection, f"it did not answer within {self._settings.connect_timeout:g} s")
            self.failure = ServerTimeout(text, path=self.path, hint="its connect_timeout can be raised")
        else:
            self._mode = self._known_mode
            failure = to_failure(error, self.path)
            is_connection_lost = is_lost(error, closed=connection.closed.is_set())
            text = add_stderr(connection, (is_connection_lost and connection.why) or failure.message)
            self.failure = type(failure)(text, path=failure.path, hint=failure.hint, permanent=failure.permanent)
        self._failures += 1
        if self.failure.permanent:
            self._set_state("failed", self.failure.message)
        else:
            self._back_off(self.failure.message)

    def _may_other_protocol_help(self, connection: Connection, error: Exception) -> bool:
        """True if a program exited silently at the newer protocol's request, or refused the older one's."""
        if self._settings.protocol != "auto":
            return False
        if self._mode == "auto":
            return connection.program_exited and not connection.received
        return is_server_error(error)

    def _switch_protocol(self) -> None:
        """Use the other protocol for the next attempt, unless the settings choose the protocol."""
        if self._settings.protocol == "auto":
            self._mode = "legacy" if self._mode == "auto" else "auto"
            if self._protocols is not None:
                self._protocols.forget(self._settings)

    def _on_end(self, connection: Connection) -> None:
        if connection is self.current:
            self.current = None
            if not self._closed:
                self._back_off(connection.why)

    def _back_off(self, why: str) -> None:
        self._backoff.fail(_now())
        self._set_state("backoff", why)

    def _set_state(self, state: State, why: str = "") -> None:
        before, self.state = self.state, state
        if state != before:
            self._emit(StateChanged(self._settings.name, state, why))
        changed, self._state_changed = self._state_changed, asyncio.Event()
        changed.set()
        self._wake.set()


def add_stderr(connection: Connection, why: str) -> str:
    """Return the reason, with the end of the program's standard error and its first line that was not a message."""
    errors = _STACK_FRAMES.sub("", f"{connection.stderr}\n").strip() or connection.stderr
    noise = connection.first_noise
    return "; ".join(
        [
            why,
            *([f"its last words: {errors[-_MAX_STDERR_CHARS:].strip()}"] if errors else []),
            *([f"it wrote to its standard output what is no message, first: {noise}"] if noise else []),
        ]
    )


def _is_legacy(protocol: str) -> bool:
    """True for versions before 2026. Versions are dates; from 2026 on there is no session."""
    return protocol == "legacy" or protocol < "2026"


def _now() -> float:
    return asyncio.get_running_loop().time()


class ProtocolCache:
    """The servers with an older protocol, in a directory, by default in our state directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory() / "mcp" / "eras"

    def is_legacy(self, settings: ServerSettings) -> bool:
        """True if the server used an older protocol when it was last connected."""
        try:
            return state_file(self._directory, settings).exists()
        except OSError:
            return False

    def remember(self, settings: ServerSettings, *, legacy: bool, version: str) -> None:
        """Store the server's protocol. Forget a server that was updated since."""
        path = state_file(self._directory, settings)
        data = version.encode("utf-8", "replace")
        with suppress(OSError):
            if not legacy or (path.exists() and path.read_bytes() != data):
                path.unlink(missing_ok=True)
            elif not path.exists():
                write_private(path, data)

    def forget(self, settings: ServerSettings) -> None:
        with suppress(OSError):
            state_file(self._directory, settings).unlink(missing_ok=True)
