"""One connection to a server, from the handshake until it is over.

Owns how a connection is opened and closed, and the calls in flight on it. Knows nothing of the one after it.
Law: it is entered and left in one task; calls come from any. What is sent is awaited in a task of its own, so that
who gives up need not wait until the server has been told.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from callboard.errors import CallerError
from callboard.mcp.deadline import Deadline
from callboard.mcp.environment import environment_of, resolved
from callboard.mcp.errors import ServerUnreachable, cut
from callboard.mcp.http_transport import Web, client_of
from callboard.mcp.lenient_json import LenientTransport, mend_tools
from callboard.mcp.sending import SENDING, Sending
from callboard.mcp.server_process import Child
from callboard.mcp.settings import ServerSettings
from callboard.mcp.stdio_transport import Stdio

if TYPE_CHECKING:
    import httpx2

PING: Final = 5.0
"""Seconds in which a server that seems silent has to answer."""
_LOG_LEVEL: Final = "info"
_NOISE: Final = 200
_CONFIGURATION_ERRNO: Final = frozenset(
    {"FileNotFoundError", "PermissionError", "NotADirectoryError", "IsADirectoryError"}
)
T = TypeVar("T")


class Connection:
    """`over` is set when it is lost or closed; `why` then says the reason."""

    def __init__(self, path: str, ended: Callable[[Connection], None], noise: Callable[[bytes], None]) -> None:
        self.client: Any = None
        self.over = asyncio.Event()
        self.why = ""
        self.answered = False
        self.listens = False
        self.left_out: dict[str, str] = {}
        """Why tools are not in its lists, by their names."""
        self.first_noise = ""
        """The first line that was no message."""
        self._noise = noise
        self._path = path
        self._ended = ended
        self._transport: Stdio | Web | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._deadlines: set[Deadline] = set()
        self._pinged: asyncio.Task[None] | None = None

    @property
    def modern(self) -> bool:
        """Whether it is of 2026-07-28 or later: without a session."""
        return self.client is not None and self.client.session.discover_result is not None

    @property
    def heard(self) -> int:
        return self._transport.heard if self._transport is not None else 0

    def mend_tools(self, tools: list[Any]) -> list[Any]:
        """The tools of a list as the SDK takes them."""
        return mend_tools(tools, "2026-07-28" if self.modern else "2025-11-25", self.left_out)

    @property
    def ended(self) -> bool:
        """Whether it is over because a program has ended, not because we ended it."""
        return bool(self.why) and isinstance(self._transport, Stdio) and self._transport.child_ended

    @property
    def errors(self) -> str:
        """The end of what a program wrote to its standard error."""
        return self._transport.child.errors if isinstance(self._transport, Stdio) else ""

    def take_noise(self, line: bytes) -> None:
        self.first_noise = self.first_noise or cut(line.decode("utf-8", "replace"), _NOISE)
        self._noise(line)

    def begin(self) -> None:
        """It is ready for calls."""
        if isinstance(self._transport, Stdio):
            self._transport.ready = True

    def end(self, why: str) -> None:
        """It is over; the first reason counts."""
        if self.over.is_set():
            return
        self.why = why
        self.over.set()
        if isinstance(self._transport, Web):
            self._transport.over = bool(why)
        self._ended(self)

    async def run(self, send: Callable[[Any], Awaitable[T]], sending: Sending, deadline: Deadline) -> T:
        """What the server answers; cancelled, it returns at once and the server is told."""
        context = copy_context()
        context.run(SENDING.set, sending)
        task = asyncio.get_running_loop().create_task(_awaited(send, self.client), context=context)
        self._calls.add(task)
        self._deadlines.add(deadline)
        task.add_done_callback(self._done)
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
    def held(self) -> Iterator[None]:
        """Somebody is asked on behalf of the server, and its calls wait."""
        held = [*self._deadlines]
        for deadline in held:
            deadline.hold()
        try:
            yield
        finally:
            for deadline in held:
                deadline.release()

    def doubt(self, patience: float) -> None:
        """Ends it, unless the server is heard of soon."""
        if self._pinged is None or self._pinged.done():
            self._pinged = asyncio.create_task(self._ping(min(patience, PING)))

    async def _ping(self, patience: float) -> None:
        heard = self.heard
        with suppress(Exception):  # an error is an answer too
            session = self.client.session
            ask = session.send_discover(session.protocol_version) if self.modern else session.send_ping()
            task = asyncio.ensure_future(ask)
            task.add_done_callback(_retrieved)
            await asyncio.wait((task,), timeout=patience)
            task.cancel()
        if self.heard == heard:
            self.end("it does not answer any more")

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        _retrieved(task)


@asynccontextmanager
async def opened(
    connection: Connection,
    settings: ServerSettings,
    mode: str,
    callbacks: dict[str, Any],
    auth: httpx2.Auth | None,
) -> AsyncIterator[Connection]:
    """The connection, ready for calls; behind it the server is gone. Raises TimeoutError after `connect_timeout`,
    CallerError for a mistake of configuration, and whatever the SDK raises.
    """
    async with AsyncExitStack() as stack:
        transport_of = _stdio if settings.transport == "stdio" else _http
        try:
            async with asyncio.timeout(settings.connect_timeout):
                transport = await transport_of(connection, settings, auth, stack)
                connection.client = _sdk().Client(
                    LenientTransport(transport, connection.mend_tools),
                    mode=mode,
                    cache=None,
                    log_level=_LOG_LEVEL,
                    client_info=_identity(),
                    **callbacks,
                )
                await stack.enter_async_context(connection.client)
            connection.begin()
            yield connection
        finally:
            connection.end("")  # that it ends now is no reason


async def _stdio(connection: Connection, settings: ServerSettings, _: httpx2.Auth | None, stack: AsyncExitStack) -> Any:
    path = f"mcp.{settings.name}"
    if not settings.command:
        raise CallerError("it has no command", path=path, hint='command = ["program", "argument"]')
    environment = environment_of(settings, os.environ)
    stdio = Stdio(connection.end, connection.take_noise)
    try:
        stdio.child = await Child.start(settings.command, environment, settings.directory, stdio.take, stdio.ended)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and type(error).__name__ not in _CONFIGURATION_ERRNO:
            raise
        what = f"{settings.command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
        hint = "is it installed, and on the PATH that the server gets?"
        raise CallerError(what, path=f"{path}.command", hint=hint) from error
    connection._transport = stdio  # noqa: SLF001  # made with it
    stack.push_async_callback(stdio.child.stop)
    return stdio


async def _http(
    connection: Connection, settings: ServerSettings, auth: httpx2.Auth | None, stack: AsyncExitStack
) -> Any:
    path = f"mcp.{settings.name}"
    if not settings.url.startswith(("http://", "https://")):
        raise CallerError(f"no address of a server: {settings.url!r}", path=f"{path}.url", hint="https://…")
    headers = resolved(settings.headers, os.environ, f"{path}.headers")
    _sdk()
    web, transport = await stack.enter_async_context(client_of(settings, headers, auth, connection.end))
    connection._transport = web  # noqa: SLF001  # made with it
    return transport


def _sdk() -> Any:
    from callboard.extras import require_extra  # noqa: PLC0415  # with the SDK only

    require_extra("mcp")
    import mcp  # noqa: PLC0415  # 0.8 s

    return mcp


def _identity() -> Any:
    from mcp_types import Implementation  # noqa: PLC0415

    return Implementation(name="callboard", version=sys.modules["callboard"].__version__)


async def _awaited(send: Callable[[Any], Awaitable[T]], client: Any) -> T:
    return await send(client)


def _retrieved(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
