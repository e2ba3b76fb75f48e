"""A gateway on a free port of the loopback interface, for as long as an `async with` lasts.

For commands that ask a model as a client of the gateway would: over a socket, and seeing only what a client sees.
Law: signals stay the caller's, so Ctrl-C cancels the command and the gateway ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from socket import socket

import uvicorn

from callboard.errors import ProviderError
from callboard.servers.gateway.app import application
from callboard.servers.gateway.server import uvicorn_config
from callboard.servers.gateway.settings import GatewaySettings
from callboard.servers.listening import listen


@asynccontextmanager
async def serve_on_loopback(settings: GatewaySettings) -> AsyncGenerator[str]:
    """The base URL of a gateway with these settings, such as `http://127.0.0.1:40123/v1`."""
    ready = asyncio.Event()
    with listen("127.0.0.1", 0, hint="") as listening:
        server = _Server(uvicorn_config(application(settings), settings), ready.set)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        starting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.is_set():
                raise ProviderError("the gateway did not start", path="gateway")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            starting.cancel()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()
