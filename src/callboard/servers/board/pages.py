"""The pages of the board, in the order of its navigation: a row for each.

A new page is a row here, a module with a function `routes`, and a field of `BoardParts` that says whether it has something
to show. A page's module is imported only where its part is there: that of the jobs needs the extra `jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from callboard.servers.board.app import Board


class BoardPage(NamedTuple):
    """A page in the navigation: its title, its path below the board's own, its module, and the part that it shows."""

    title: str
    path: str
    module: str
    part: str

    def routes(self, board: Board) -> Sequence[BaseRoute]:
        """The addresses of the page and of what it leads to."""
        routes: Sequence[BaseRoute] = import_module(f"callboard.servers.board.{self.module}").routes(board)
        return routes


PAGES: Final[Sequence[BoardPage]] = (
    BoardPage("Jobs", "/jobs", "jobs_page", "jobs"),
    BoardPage("Runs", "/runs", "runs_page", "runs"),
    BoardPage("Requests", "/requests", "requests_page", "traffic"),
    BoardPage("Tools", "/tools", "tools_page", "tools"),
)
