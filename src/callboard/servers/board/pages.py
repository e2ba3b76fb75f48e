"""The pages of the board, in the order of its navigation: a row for each.

A new page is a row here, a module with a function `routes`, and a field of `BoardParts` that says whether it has something
to show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.routing import BaseRoute

from callboard.servers.board import jobs_page, requests_page, tools_page

if TYPE_CHECKING:
    from callboard.servers.board.app import Board


class BoardPage(NamedTuple):
    """A page in the navigation: its title, its path below the board's own, its routes, and the part that it shows."""

    title: str
    path: str
    routes: Callable[[Board], Sequence[BaseRoute]]
    part: str


PAGES: Final[Sequence[BoardPage]] = (
    BoardPage("Jobs", "/jobs", jobs_page.routes, "jobs"),
    BoardPage("Requests", "/requests", requests_page.routes, "traffic"),
    BoardPage("Tools", "/tools", tools_page.routes, "tools"),
)
