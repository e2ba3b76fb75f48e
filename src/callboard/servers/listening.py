"""The socket that a server listens on, and a uvicorn server whose process ends like a command.

Laws: answers are sent without delay: asyncio sets TCP_NODELAY only on sockets with the protocol TCP, which sockets of
`socket.create_server` lack. A server reports that it is ready when it accepts requests. SIGTERM and SIGINT end it in
good order, with status 0. An application that cannot start ends with uvicorn's own status for this case.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from callboard.errors import CallboardError, CallerError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


log: Final = logging.getLogger(__name__)


class OrderlyServer(uvicorn.Server):
    """The server. `ready` is called when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in good order, or at once on the second SIGINT. uvicorn's own handler would raise the signal again."""
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()


BACKLOG: Final = 4096
"""Connections that may wait for the server to accept them. The system allows at most net.core.somaxconn."""


def listen(host: str, port: int, *, hint: str) -> socket.socket:
    """Return a socket that already listens, so that its address can be used immediately.

    Args:
        host: A name or address of this machine.
        port: The port. 0 chooses a free one.
        hint: Advice if the port is taken.

    Raises:
        CallerError: There is no such address, or it is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CallerError(error.strerror or "cannot listen", path=f"{host}:{port}", hint=hint) from None
    return listening


def call_at_signals(notify: Callable[[], None]) -> None:
    """Call a function in this event loop when a signal ends the process, before the server's own handler runs.

    A server first waits for open responses, and only then shuts down its application.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        if not callable(before):
            continue

        def handle(
            number: int, frame: FrameType | None, before: Callable[[int, FrameType | None], Any] = before
        ) -> None:
            loop.call_soon_threadsafe(notify)
            before(number, frame)

        signal.signal(number, handle)


def report_failure(app: ASGIApp) -> ASGIApp:
    """Return the application with startup failures logged in one line, and without a traceback of a forced end.

    Starlette would give the server a traceback of each failure, and uvicorn one of each answer that outlasts its limit.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_reason(message: Message) -> None:
            match sys.exception():
                case CallboardError() as error:
                    message = {**message, "message": str(error)}
                case asyncio.CancelledError():  # the second signal
                    message = {**message, "message": ""}
            await send(message)

        if scope["type"] == "lifespan":
            await app(scope, receive, send_reason)
            return
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            log.warning("a request was cut: %s", scope["path"])

    return call
