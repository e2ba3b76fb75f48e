"""Watch a server for changes of its tools: by notifications (until 2025), or by a subscription (from 2026 on).

Laws: notifications are debounced, so that frequent notifications cause no extra requests. The client limits how much of
a listing is read, not the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from callboard.mcp.connection import Connection
from callboard.mcp.connection_state import RETRY_SECONDS, ToolsChanged
from callboard.mcp.errors import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000


async def list_all(
    ask: Callable[..., Awaitable[Any]], field: str, on_page: Callable[[], None], warn: Callable[[str], None]
) -> tuple[Any, ...]:
    """Read a listing; it is empty if the server has no such list.

    Args:
        ask: Requests one page.
        field: The page's attribute that holds the items.
        on_page: Called after every page.
        warn: Called when the server lists more than is read.
    """
    items: list[Any] = []
    seen: set[str | None] = set()
    cursor: str | None = None
    while len(seen) < MAX_PAGES and len(items) < MAX_ITEMS and cursor not in seen:
        seen.add(cursor)
        try:
            page = await ask(cursor=cursor)
        except Exception as error:
            if getattr(error, "code", None) == METHOD_NOT_FOUND and not items:
                return ()
            raise
        on_page()
        items += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(items[:MAX_ITEMS])
    warn(f"it lists more {field} than {len(items[:MAX_ITEMS])} on {len(seen)} pages; the rest is not read")
    return tuple(items[:MAX_ITEMS])


def diff_tools(server: str, before: Iterable[Tool], after: Iterable[Tool]) -> ToolsChanged | None:
    """Return the tools that were added, removed or changed, or None if there are none."""
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in after}
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    return ToolsChanged(server, added, removed, changed) if added or removed or changed else None


DEBOUNCE_SECONDS: Final = 0.1
"""Seconds within which notifications count as one."""


class ToolListWatcher:
    """Watches the tools of a server, after the first `set_tools`.

    `list_tools` lists the tools on a connection. `on_change` is called with the difference and the new tools.
    """

    def __init__(
        self,
        server: str,
        list_tools: Callable[[Connection], Awaitable[tuple[Tool, ...]]],
        on_change: Callable[[ToolsChanged, tuple[Tool, ...]], None],
    ) -> None:
        self._server = server
        self._list_tools = list_tools
        self._on_change = on_change
        self._known: tuple[Tool, ...] | None = None
        self._stale = False
        self._connection: Connection | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def mark_current(self) -> None:
        """Ignore earlier notifications, because the tools are being listed now."""
        self._stale = False

    def set_tools(self, tools: tuple[Tool, ...]) -> None:
        self._known = tools
        self._listen()
        if self._stale:
            self.mark_stale()

    def set_connection(self, connection: Connection) -> None:
        self._connection = connection
        if self._known is not None:
            self._listen()
            self.mark_stale()

    def mark_stale(self) -> None:
        self._stale = True
        if self._known is not None and (self._refresher is None or self._refresher.done()):
            self._refresher = self._spawn(self._refresh())

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _refresh(self) -> None:
        while self._stale and (connection := self._connection) is not None and not connection.closed.is_set():
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._stale = False
            with suppress(Exception):  # after a lost connection, the next one lists the tools
                before, self._known = self._known or (), await self._list_tools(connection)
                if change := diff_tools(self._server, before, self._known):
                    self._on_change(change, self._known)

    def _listen(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_modern and not connection.is_listening:
            connection.is_listening = True
            self._spawn(_listen_until_closed(connection, self.mark_stale))

    def _spawn(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _listen_until_closed(connection: Connection, on_change: Callable[[], None]) -> None:
    listening = asyncio.create_task(_listen(connection.client, on_change))
    closed = asyncio.create_task(connection.closed.wait())
    try:
        await asyncio.wait((listening, closed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        closed.cancel()
        listening.cancel()
        await asyncio.gather(listening, closed, return_exceptions=True)


async def _listen(client: Any, on_change: Callable[[], None]) -> None:
    """Call `on_change` for each notification, and when a stream begins, because earlier notifications are lost.

    Return if the server sends no notifications. A stream that ends is opened again, with backoff.
    """
    from mcp import MCPError  # noqa: PLC0415  # the SDK's, imported with it
    from mcp.client.subscriptions import SubscriptionLost  # noqa: PLC0415

    ends = 0
    while True:
        try:
            async with client.listen(tools_list_changed=True) as stream:
                if not stream.honored.tools_list_changed:
                    return
                on_change()
                async for _ in stream:
                    ends = 0
                    on_change()
        except MCPError:
            if not ends:
                return
        except SubscriptionLost:
            pass
        ends += 1
        await asyncio.sleep(RETRY_SECONDS[min(ends, len(RETRY_SECONDS) - 1)])
