"""One connection to a server, from the handshake until it is closed.

Law: one task opens and closes a connection, as the SDK's cancel scopes require. Calls come from any task. Each call
runs in its own task, so that a cancelled caller does not wait until the server is notified.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.mcp.connection_state import SEND_STATE, SendState
from callboard.mcp.errors import ServerUnreachable, excerpt
from callboard.mcp.http_transport import HttpClient, open_http
from callboard.mcp.lenient_json import mend_tools, mend_transport
from callboard.mcp.settings import ServerSettings, build_environment, resolve_variables
from callboard.mcp.stdio_transport import ServerProcess, StdioTransport

if TYPE_CHECKING:
    import httpx2

Expired = Literal["idle", "timeout"]


class Deadline:
    """An async context that raises TimeoutError `idle` seconds after the last `extend`, or after `timeout` seconds.
    `expired` says which one. During a pause, as when a person is asked, only `timeout` counts.
    """

    __slots__ = ("_clock", "_idle", "_latest", "_open", "_pauses", "_scope", "expired")

    def __init__(self, idle: float, timeout: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._idle = idle
        self._latest = self._clock() + timeout
        self._pauses = 0
        self._open = False
        self._scope = asyncio.timeout_at(self._next())
        self.expired: Expired | None = None

    def extend(self, within: float | None = None) -> None:
        """Restart the idle timeout after a sign of life. `within` seconds until the next one are by default `idle`."""
        if self._open and not self._scope.expired():
            self._scope.reschedule(self._next(within))

    def pause(self) -> None:
        self._pauses += 1
        self.extend()

    def resume(self) -> None:
        self._pauses -= 1
        self.extend()

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if self._scope.expired():
            self.expired = "timeout" if self._clock() >= self._latest else "idle"
        await self._scope.__aexit__(kind, error, trace)

    def _next(self, within: float | None = None) -> float:
        return self._latest if self._pauses else min(self._clock() + (within or self._idle), self._latest)


PING_SECONDS: Final = 5.0
"""Seconds in which a silent server must answer a ping."""
_LOG_LEVEL: Final = "info"
_MAX_NOISE_CHARS: Final = 200
_CONFIGURATION_ERRNO: Final = frozenset(
    {"FileNotFoundError", "PermissionError", "NotADirectoryError", "IsADirectoryError"}
)
T = TypeVar("T")


class Connection:
    """`closed` is set when the connection is lost or closed. `reason` says why it was lost."""

    def __init__(self, path: str, on_end: Callable[[Connection], None], on_noise: Callable[[bytes], None]) -> None:
        self.client: Any = None
        self.closed = asyncio.Event()
        self.why = ""
        self.has_answered = False
        self.is_listening = False
        self.skipped_tools: dict[str, str] = {}
        """Reasons why tools are omitted from the lists, by tool name."""
        self.first_noise = ""
        """The first line that was not a message."""
        self._on_noise = on_noise
        self._path = path
        self._on_end = on_end
        self._transport: StdioTransport | HttpClient | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._deadlines: set[Deadline] = set()
        self._ping_task: asyncio.Task[None] | None = None

    @property
    def is_modern(self) -> bool:
        """True for protocol 2026-07-28 or later, which has no sessions."""
        return self.client is not None and self.client.session.discover_result is not None

    @property
    def received(self) -> int:
        return self._transport.received if self._transport is not None else 0

    def mend_tools(self, tools: list[Any]) -> list[Any]:
        """Return the tools of a list in the form that the SDK accepts."""
        return mend_tools(tools, "2026-07-28" if self.is_modern else "2025-11-25", self.skipped_tools)

    @property
    def program_exited(self) -> bool:
        """True if the connection was lost because the server's program ended on its own."""
        return bool(self.why) and isinstance(self._transport, StdioTransport) and self._transport.program_exited

    @property
    def stderr(self) -> str:
        """The end of the standard error of the server's program."""
        if not isinstance(self._transport, StdioTransport):
            return ""
        return self._transport.process.stderr.decode("utf-8", "replace").strip()

    def add_noise(self, line: bytes) -> None:
        self.first_noise = self.first_noise or excerpt(line.decode("utf-8", "replace"), _MAX_NOISE_CHARS)
        self._on_noise(line)

    def mark_ready(self) -> None:
        """Record the end of the handshake. The server may now send any number of messages."""
        if isinstance(self._transport, StdioTransport):
            self._transport.is_ready = True

    def end(self, reason: str) -> None:
        """Close the connection. Only the first call and its reason count. An empty reason means an intended close."""
        if self.closed.is_set():
            return
        self.why = reason
        self.closed.set()
        if isinstance(self._transport, HttpClient):
            self._transport.closed = bool(reason)
        self._on_end(self)

    async def run(self, send: Callable[[Any], Awaitable[T]], state: SendState, deadline: Deadline) -> T:
        """Send a request and return the answer. If cancelled, return at once and notify the server."""
        context = copy_context()
        context.run(SEND_STATE.set, state)
        task = asyncio.get_running_loop().create_task(_run_send(send, self.client), context=context)
        self._calls.add(task)
        self._deadlines.add(deadline)
        task.add_done_callback(self._forget_call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ServerUnreachable(self.why or "the call was dropped", path=self._path) from None
            task.cancel()
            raise
        finally:
            self._deadlines.discard(deadline)

    @contextmanager
    def pause_deadlines(self) -> Iterator[None]:
        """Pause the idle timeouts of all calls, while a user is asked for the server."""
        paused = [*self._deadlines]
        for deadline in paused:
            deadline.pause()
        try:
            yield
        finally:
            for deadline in paused:
                deadline.resume()

    def check_alive(self, patience: float) -> None:
        """Ping the server, and close the connection if nothing comes back within `patience` seconds."""
        if self._ping_task is None or self._ping_task.done():
            self._ping_task = asyncio.create_task(self._ping(min(patience, PING_SECONDS)))

    async def _ping(self, patience: float) -> None:
        received = self.received
        with suppress(Exception):  # an error is an answer too
            session = self.client.session
            ask = session.send_discover(session.protocol_version) if self.is_modern else session.send_ping()
            task = asyncio.ensure_future(ask)
            task.add_done_callback(_retrieve_exception)
            await asyncio.wait((task,), timeout=patience)
            task.cancel()
        if self.received == received:
            self.end("it does not answer any more")

    def _forget_call(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        _retrieve_exception(task)


@asynccontextmanager
async def open_connection(
    connection: Connection,
    settings: ServerSettings,
    mode: str,
    callbacks: dict[str, Any],
    auth: httpx2.Auth | None,
) -> AsyncIterator[Connection]:
    """Open a connection. On exit, the connection and a server that we started are closed.

    Raises:
        TimeoutError: After `connect_timeout`.
        CallerError: A mistake of configuration.
        Exception: Any exception of the SDK.
    """
    async with AsyncExitStack() as stack:
        transport_of = _open_stdio if settings.transport == "stdio" else _open_http
        try:
            async with asyncio.timeout(settings.connect_timeout):
                transport = await transport_of(connection, settings, auth, stack)
                sdk = _import_sdk()
                connection.client = sdk.Client(
                    mend_transport(transport, connection.mend_tools),
                    mode=mode,
                    cache=None,
                    log_level=_LOG_LEVEL,
                    client_info=sdk.Implementation(name="callboard", version=sys.modules["callboard"].__version__),
                    **callbacks,
                )
                await stack.enter_async_context(connection.client)
            connection.mark_ready()
            yield connection
        finally:
            connection.end("")


async def _open_stdio(
    connection: Connection, settings: ServerSettings, _: httpx2.Auth | None, stack: AsyncExitStack
) -> Any:
    path = f"mcp.{settings.name}"
    if not settings.command:
        raise CallerError("it has no command", path=path, hint='command = ["program", "argument"]')
    environment = build_environment(settings, os.environ)
    try:
        process = await ServerProcess.start(settings.command, environment, settings.directory)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and type(error).__name__ not in _CONFIGURATION_ERRNO:
            raise
        what = f"{settings.command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
        hint = "is it installed, and on the PATH that the server gets?"
        raise CallerError(what, path=f"{path}.command", hint=hint) from error
    stack.push_async_callback(process.stop)
    stdio = connection._transport = StdioTransport(process, connection.end, connection.add_noise)  # noqa: SLF001
    return stdio


async def _open_http(
    connection: Connection, settings: ServerSettings, auth: httpx2.Auth | None, stack: AsyncExitStack
) -> Any:
    path = f"mcp.{settings.name}"
    if not settings.url.startswith(("http://", "https://")):
        raise CallerError(f"no address of a server: {settings.url!r}", path=f"{path}.url", hint="https://…")
    headers = resolve_variables(settings.headers, os.environ, f"{path}.headers")
    _import_sdk()
    web, transport = await stack.enter_async_context(open_http(settings, headers, auth, connection.end))
    connection._transport = web  # noqa: SLF001  # created with the connection
    return transport


def _import_sdk() -> Any:
    require_extra("mcp")
    import mcp  # noqa: PLC0415  # 0.8 s

    return mcp


async def _run_send(send: Callable[[Any], Awaitable[T]], client: Any) -> T:
    return await send(client)


def _retrieve_exception(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
