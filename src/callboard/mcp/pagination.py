"""Read all pages of a server's listing, and compare two listings. Law: the server does not decide how much is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from callboard.mcp.errors import METHOD_NOT_FOUND
from callboard.mcp.events import ToolsChanged

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
    """The tools that were added, removed or changed; None if none were."""
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in after}
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    return ToolsChanged(server, added, removed, changed) if added or removed or changed else None
