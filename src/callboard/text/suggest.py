"""Did you mean: the names that are closest to a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_LISTED: Final = 20
_MAX_COMPARED: Final = 64
"""Characters of the misspelled name: somebody else wrote it, and difflib's time grows with its square."""


def find_closest(name: str, names: Iterable[str], *, most: int = 1, cutoff: float = 0.5) -> list[str]:
    """Return the names most like `name`, best first; `cutoff` is difflib's ratio, from 0 (anything) to 1 (equal)."""
    from difflib import get_close_matches  # noqa: PLC0415 - 7 ms that only a misspelled name needs

    return get_close_matches(name[:_MAX_COMPARED], list(names), most, cutoff)


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a hint for a message: up to three names like `name`, else the first 20 of all names."""
    known = list(names)
    if not known:
        return "there are no tools"
    if close := find_closest(name, known, most=3):
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(known[:MAX_LISTED])
    return f"there are {listed}" + (" ..." if len(known) > MAX_LISTED else "")
