"""That a server's tools are others than before.

Owns how a server is listened to, in both eras, and when it is asked again. Knows nothing of what is done about it.
Law: changes that come together are one, and a server that tells of them without end is asked no faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from callboard.mcp.connection import Connection
from callboard.mcp.connection_state import DELAYS
from callboard.mcp.events import ToolsChanged
from callboard.mcp.pagination import difference

if TYPE_CHECKING:
    from mcp_types import Tool

DEBOUNCE: Final = 0.1
"""Seconds in which changes are taken as one."""


class Changes:
    """Follows the tools of a server, from when they are first `known`.

    `ask` lists them on a connection, `told` gets what changed and the new ones.
    """

    def __init__(
        self,
        server: str,
        ask: Callable[[Connection], Awaitable[tuple[Tool, ...]]],
        told: Callable[[ToolsChanged, tuple[Tool, ...]], None],
    ) -> None:
        self._server = server
        self._ask = ask
        self._told = told
        self._known: tuple[Tool, ...] | None = None
        self._stale = False
        self._connection: Connection | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self) -> None:
        """They are being listed: what came before does not matter."""
        self._stale = False

    def known(self, tools: tuple[Tool, ...]) -> None:
        self._known = tools
        self._listen()
        if self._stale:
            self.heard()

    def began(self, connection: Connection) -> None:
        """There is a new connection."""
        self._connection = connection
        if self._known is not None:
            self._listen()
            self.heard()

    def heard(self) -> None:
        """The server says that they changed."""
        self._stale = True
        if self._known is not None and (self._refresher is None or self._refresher.done()):
            self._refresher = self._spawn(self._refresh())

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _refresh(self) -> None:
        while self._stale and (connection := self._connection) is not None and not connection.over.is_set():
            await asyncio.sleep(DEBOUNCE)
            self._stale = False
            with suppress(Exception):  # after a lost connection they are listed on the next one
                before, self._known = self._known or (), await self._ask(connection)
                if change := difference(self._server, before, self._known):
                    self._told(change, self._known)

    def _listen(self) -> None:
        connection = self._connection
        if connection is not None and connection.modern and not connection.listens:
            connection.listens = True
            self._spawn(_follow(connection, self.heard))

    def _spawn(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _follow(connection: Connection, heard: Callable[[], None]) -> None:
    """Listens as long as the connection is there."""
    listening = asyncio.create_task(_listen(connection.client, heard))
    over = asyncio.create_task(connection.over.wait())
    try:
        await asyncio.wait((listening, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        listening.cancel()
        await asyncio.gather(listening, over, return_exceptions=True)


async def _listen(client: Any, heard: Callable[[], None]) -> None:
    """Calls `heard` when the server of 2026-07-28 says so, and when the stream begins: what was before is not told.

    Returns when the server does not tell of changes. A stream that ends is opened again, later each time.
    """
    from mcp import MCPError  # noqa: PLC0415  # the SDK's, imported with it
    from mcp.client.subscriptions import SubscriptionLost  # noqa: PLC0415

    ends = 0
    while True:
        try:
            async with client.listen(tools_list_changed=True) as stream:
                if not stream.honored.tools_list_changed:
                    return
                heard()
                async for _ in stream:
                    ends = 0
                    heard()
        except MCPError:
            if not ends:
                return
        except SubscriptionLost:
            pass
        ends += 1
        await asyncio.sleep(DELAYS[min(ends, len(DELAYS) - 1)])
