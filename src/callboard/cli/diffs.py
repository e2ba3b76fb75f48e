"""Show diffs: colored on a terminal, and escaped, because they hold what a model wrote."""

from __future__ import annotations

from typing import Final, Protocol

from callboard.coding.job import FileEdited
from callboard.text.display import escape, make_visible

MAX_LINES: Final = 120
"""Maximum lines of a diff to show before the person asks for the rest."""
MAX_WIDTH: Final = 400

_COLORS: Final = (("+++", "1"), ("---", "1"), ("@@", "36"), ("+", "32"), ("-", "31"))


class HasTell(Protocol):
    def tell(self, line: str, color: str = "") -> None: ...


def show_edit(display: HasTell, edit: FileEdited, *, with_hunks: bool = True) -> None:
    """Show what a call did to a file: one line, and the hunks."""
    header, _, hunks = edit.diff.partition("\n@@")
    verb = "Created" if edit.diff.startswith("--- /dev/null") else "Edited"
    verb = "Deleted" if header.endswith("+++ /dev/null") else verb
    display.tell(f"{verb} {escape(edit.path)} {count_lines(edit.added, edit.removed)}", "1")
    if hunks and with_hunks and verb != "Deleted":
        show_diff(display, f"@@{hunks}")


def count_lines(added: int, removed: int) -> str:
    """Return the numbers of added and removed lines."""
    return f"+{added} \N{MINUS SIGN}{removed}"


def show_diff(display: HasTell, diff: str, *, whole: bool = False) -> bool:
    """Show a diff, colored and escaped. Return True if some of it was cut."""
    # Only LF ends a line.
    lines = diff.removesuffix("\n").split("\n")
    more = not whole and len(lines) > MAX_LINES
    for line in lines[:MAX_LINES] if more else lines:
        cut = line if whole or len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}... ({len(line)} characters)"
        display.tell(
            make_visible(cut, keep="\t"), next((color for begin, color in _COLORS if line.startswith(begin)), "")
        )
    if more:
        display.tell(f"... {len(lines) - MAX_LINES} more lines", "33")
    return more or (not whole and any(len(line) > MAX_WIDTH for line in lines))
