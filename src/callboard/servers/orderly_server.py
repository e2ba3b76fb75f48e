"""A uvicorn server whose process ends as a command should.

Laws: it says that it is ready when it takes requests, and not before; SIGTERM and SIGINT are an orderly end, with status
0; an application that cannot start is none, with uvicorn's own status for that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import socket

import uvicorn
from uvicorn.config import STARTUP_FAILURE


class OrderlyServer(uvicorn.Server):
    """The server; `ready` is called when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()  # uvicorn would raise them again

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()
        elif not self._captured_signals:  # the application has said why in the log
            sys.exit(STARTUP_FAILURE)
