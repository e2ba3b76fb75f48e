"""What a server offers.

Owns the pages of a listing, and the difference of two. Knows nothing of when they are asked for.
Law: a server does not decide how much is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from callboard.mcp.errors import METHOD_NOT_FOUND
from callboard.mcp.events import ToolsChanged

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000


async def every_page(
    ask: Callable[..., Awaitable[Any]], field: str, alive: Callable[[], None], tell: Callable[[str], None]
) -> tuple[Any, ...]:
    """All that is listed, empty if the server has no such list. `alive` is called with every page, `tell` when
    there is more than is read.
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
        alive()
        items += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(items[:MAX_ITEMS])
    tell(f"it lists more {field} than {len(items[:MAX_ITEMS])} on {len(seen)} pages; the rest is not read")
    return tuple(items[:MAX_ITEMS])


def difference(server: str, before: Iterable[Tool], after: Iterable[Tool]) -> ToolsChanged | None:
    """What changed, if anything did."""
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in after}
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    return ToolsChanged(server, added, removed, changed) if added or removed or changed else None
