"""The hunks of a patch: parse their lines, and apply them to a text.

Law: a hunk is applied only at an exact match of all its old lines. Its line number alone never decides, because models
miscount. Among several matches, the nearest to the hunk's number is used, or the first below its heads; without either
the hunk is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from callboard.coding.edits.text_edits import Change, EditRefused, Span, describe_closest_match, split_lines

_CANDIDATES: Final = 1000
"""Places that are considered for one hunk."""
_LISTED: Final = 10
NO_END: Final = "\\"
"""The first character of a line that says that the line above has no end (`\\ No newline at end of file`)."""

Tag: TypeAlias = Literal[" ", "-", "+"]
_TAGS: Final[dict[str, Tag]] = {" ": " ", "+": "+", "-": "-"}


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that are kept, removed and added."""

    lines: tuple[tuple[Tag, str], ...]
    number: int | None = None
    """The line of the old text, from 1, where the patch says that it begins."""
    after: bool = False
    """True if the added lines come after line `number`, not before it."""
    heads: tuple[str, ...] = ()
    """Lines above the hunk, each below the one before."""
    at_end: bool = False
    """Whether it ends where the text ends."""
    ends: tuple[bool, bool] = (True, True)
    """Whether the old and the new text end with a line end."""

    @property
    def old(self) -> list[str]:
        return [text for tag, text in self.lines if tag != "+"]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a patch that is about one file."""

    kind: Literal["add", "update", "delete"]
    path: str
    target: str = ""
    """The new path of a file that is moved."""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    """Content of an added file."""


def parse_hunk_lines(lines: Sequence[str], at: int) -> tuple[tuple[tuple[Tag, str], ...], tuple[bool, bool]]:
    """The tagged lines, and whether the old and the new text end with a line end; `at` is the number of the first line.

    An empty line counts as a blank one that is kept, except at the end. Raises EditRefused for a line without a tag.
    """
    body: list[tuple[Tag, str]] = []
    ends = [True, True]
    end = max((count for count, line in enumerate(lines, 1) if line), default=0)
    for number, line in enumerate(lines[:end], at):
        if not line:
            body.append((" ", ""))
        elif line[0] in _TAGS:
            body.append((_TAGS[line[0]], line[1:]))
        elif line[0] == NO_END and body:
            tag = body[-1][0]
            ends = [ends[0] and tag == "+", ends[1] and tag == "-"]
        else:
            raise EditRefused(
                f"line {number} of the patch begins with none of ' ', '+' and '-': {line[:80]!r}; "
                "a line that is kept begins with a space"
            )
    return tuple(body), (ends[0], ends[1])


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> Change:
    """Apply all hunks. Raises EditRefused for the first that does not fit."""
    lines = split_lines(text)
    old = _OldText(text, lines, "\n".join(["", *lines, ""]))
    placed: list[tuple[int, Hunk]] = []
    cursor = shift = 0
    for count, hunk in enumerate(hunks, 1):
        try:
            at = _locate(old, hunk, cursor, shift)
        except EditRefused as refused:
            raise EditRefused(f"hunk {count} of {len(hunks)}: {refused}") from None
        placed.append((at, hunk))
        cursor = at + len(hunk.old)
        if hunk.number is not None:
            shift = at + (not hunk.after) - hunk.number
    placed.sort(key=lambda pair: pair[0])
    return _join(text, lines, placed)


class _OldText(NamedTuple):
    text: str
    lines: list[str]
    haystack: str
    """The lines, with a line end before each and after the last."""


def _locate(old_text: _OldText, hunk: Hunk, cursor: int, shift: int) -> int:
    """Return the index of the line where the hunk begins."""
    old = hunk.old
    start = _find_heads(old_text.lines, hunk.heads, cursor)
    if not old:
        return _locate_insertion(old_text.lines, hunk, start, shift)
    candidates = _find_candidates(old_text.haystack, old)
    if hunk.at_end:
        candidates = [at for at in candidates if at + len(old) == len(old_text.lines)] or candidates
    # Hunks are in order, as a rule.
    candidates = [at for at in candidates if at >= start] or candidates
    if not candidates:
        raise EditRefused(f"its lines are not in the file: {describe_closest_match(old_text.text, chr(10).join(old))}")
    if len(candidates) == 1:
        return candidates[0]
    if hunk.number is not None:
        expected = hunk.number - 1 + shift
        first, second = sorted(candidates, key=lambda at: abs(at - expected))[:2]
        if abs(first - expected) < abs(second - expected):
            return first
    elif hunk.heads or hunk.at_end:
        return candidates[-1] if hunk.at_end else candidates[0]
    listed = ", ".join([str(at + 1) for at in candidates[:_LISTED]])
    raise EditRefused(
        f"its lines are {len(candidates)} times in the file, at lines {listed}; add more lines around them"
    )


def _find_heads(lines: list[str], heads: Sequence[str], start: int) -> int:
    """Return the index of the line below the heads, searched from `start` on, else from the beginning."""
    for head in heads:
        stripped = head.strip()
        matches = [at for at, line in enumerate(lines) if line.strip() == stripped]
        if not matches:
            raise EditRefused(
                f"the line {head!r} above it is not in the file: {describe_closest_match(chr(10).join(lines), head)}"
            )
        start = next((at for at in matches if at >= start), matches[0]) + 1
    return start


def _locate_insertion(lines: list[str], hunk: Hunk, start: int, shift: int) -> int:
    if hunk.number is not None:
        at = hunk.number - (not hunk.after) + shift
        if 0 <= at <= len(lines):
            return at
        raise EditRefused(f"it puts lines in at {hunk.number}, and the file has {len(lines)} lines")
    if hunk.heads:
        return start
    if hunk.at_end or not lines:
        return len(lines)
    raise EditRefused("it does not say where its lines go; add a line that is there before or behind them")


def _find_candidates(haystack: str, old: list[str]) -> list[int]:
    """Return the line indexes at which the old lines occur."""
    needle = "\n".join(["", *old, ""])
    indexes: list[int] = []
    at, number, since = haystack.find(needle), 0, 0
    while at >= 0 and len(indexes) < _CANDIDATES:
        number += haystack.count("\n", since, at)
        since = at
        indexes.append(number)
        at = haystack.find(needle, at + 1)
    return indexes


def _join(text: str, lines: list[str], placed: Sequence[tuple[int, Hunk]]) -> Change:
    new: list[str] = []
    spans: list[Span] = []
    done = 0
    ends = not text or text.endswith("\n")
    for at, hunk in placed:
        if at < done:
            raise EditRefused(f"two hunks are about line {at + 1}; make them one")
        new += lines[done:at]
        done = at
        for tag, line in hunk.lines:
            if tag == " ":
                new.append(lines[done])
                done += 1
                continue
            # Neighbouring lines are one span.
            if not spans or spans[-1].start + spans[-1].removed != done + 1:
                spans.append(Span(done + 1, 0, 0))
            start, removed, added = spans[-1]
            if tag == "-":
                done += 1
                spans[-1] = Span(start, removed + 1, added)
            else:
                new.append(line)
                spans[-1] = Span(start, removed, added + 1)
        if done == len(lines) and hunk.ends != (True, True):
            ends = hunk.ends[1]
    new += lines[done:]
    return Change("\n".join(new) + "\n" * bool(new and ends), tuple(spans))
