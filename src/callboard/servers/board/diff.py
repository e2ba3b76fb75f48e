"""Texts as lines of a unified diff, for the eye: what was added, what was taken away, and where.

Law: nothing of a text is lost: the lines that are returned, joined, are the text without its last line end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_HUNK: Final = re.compile(r"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@", re.MULTILINE)
_BEGIN: Final = re.compile(r"^(diff --git |--- |\*\*\* Begin Patch)", re.MULTILINE)
_KINDS: Final = (
    ("diff --git ", "file"),
    ("*** ", "file"),
    ("+++ ", "file"),
    ("--- ", "file"),
    ("@@", "hunk"),
    ("+", "added"),
    ("-", "removed"),
)


class DiffLine(NamedTuple):
    """A line without its end, and what it is: file, hunk, added, removed, or "" for what stays."""

    kind: str
    text: str


def is_diff(text: str) -> bool:
    """Whether a text is, or holds, a unified diff or a patch in the form that models are taught."""
    return bool(_BEGIN.search(text[:20_000]) and ("*** Begin Patch" in text[:20_000] or _HUNK.search(text[:40_000])))


def split_diff(text: str) -> Sequence[DiffLine]:
    """The lines of a diff. Only LF ends a line."""
    lines = text.removesuffix("\n").split("\n")
    return [DiffLine(next((kind for begin, kind in _KINDS if line.startswith(begin)), ""), line) for line in lines]
