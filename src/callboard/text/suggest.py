"""The names that somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LISTED = 20


def near(name: str, names: Iterable[str]) -> str:
    """A hint: the nearest of `names`, else what there is."""
    from difflib import get_close_matches  # noqa: PLC0415  # only where something was misspelled

    known = list(names)
    if not known:
        return "there are no tools"
    close = get_close_matches(name[:64], known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(known[:MAX_LISTED])
    return f"there are {listed}" + (" ..." if len(known) > MAX_LISTED else "")
