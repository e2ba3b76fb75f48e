"""Parts of a patch, put where they belong.

Owns the way from a hunk to its place: by its own lines, never by its number alone. Knows nothing of formats.
Law: a hunk's old lines stand where it is applied, all of them, exactly. Where they stand in several places, the
nearest to the hunk's number is meant, or the first behind its heads; without either the hunk is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from callboard.coding.edits.closest_match import nearest
from callboard.coding.edits.result import Change, EditRefused, Span, lines_of

_CANDIDATES: Final = 1000
"""Places that are looked at for one hunk."""
_LISTED: Final = 10

Tag: TypeAlias = Literal[" ", "-", "+"]


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that are kept, taken out and put in.

    `number` is the old text's line that it says it begins at, from 1, None where it does not say; with `after`,
    what it puts in comes behind that line. `heads` are lines that stand above, each below the one before;
    `at_end` that it ends where the text ends. `ends` says how the old and the new text end where the patch says
    so: whether with a line end.
    """

    lines: tuple[tuple[Tag, str], ...]
    number: int | None = None
    after: bool = False
    heads: tuple[str, ...] = ()
    at_end: bool = False
    ends: tuple[bool, bool] = (True, True)

    @property
    def old(self) -> list[str]:
        return [text for tag, text in self.lines if tag != "+"]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of one file. `target` is its new path where it moves; `content` that of a new one."""

    kind: Literal["add", "update", "delete"]
    path: str
    target: str = ""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> Change:
    """The text with all of the hunks. Raises EditRefused for the first that has no place."""
    lines = lines_of(text)
    old = _Old(text, lines, "\n".join(["", *lines, ""]))
    placed: list[tuple[int, Hunk]] = []
    cursor = shift = 0
    for count, hunk in enumerate(hunks, 1):
        try:
            at = _place(old, hunk, cursor, shift)
        except EditRefused as refused:
            raise EditRefused(f"hunk {count} of {len(hunks)}: {refused}") from None
        placed.append((at, hunk))
        cursor = at + len(hunk.old)
        if hunk.number is not None:
            shift = at + (not hunk.after) - hunk.number
    placed.sort(key=lambda pair: pair[0])
    return _joined(text, lines, placed)


class _Old(NamedTuple):
    """The old text, its lines, and these with a line end before each and behind the last."""

    text: str
    lines: list[str]
    haystack: str


def _place(there: _Old, hunk: Hunk, cursor: int, shift: int) -> int:
    """The index of the line that the hunk begins at."""
    old = hunk.old
    start = _below(there.lines, hunk.heads, cursor)
    if not old:
        return _place_of_new(there.lines, hunk, start, shift)
    candidates = _candidates(there.haystack, old)
    if hunk.at_end:
        candidates = [at for at in candidates if at + len(old) == len(there.lines)] or candidates
    # Hunks are in order, as a rule.
    candidates = [at for at in candidates if at >= start] or candidates
    if not candidates:
        raise EditRefused(f"its lines are not in the file: {nearest(there.text, chr(10).join(old))}")
    if len(candidates) == 1:
        return candidates[0]
    if hunk.number is not None:
        meant = hunk.number - 1 + shift
        first, second = sorted(candidates, key=lambda at: abs(at - meant))[:2]
        if abs(first - meant) < abs(second - meant):
            return first
    elif hunk.heads or hunk.at_end:
        return candidates[-1] if hunk.at_end else candidates[0]
    told = ", ".join([str(at + 1) for at in candidates[:_LISTED]])
    raise EditRefused(f"its lines are {len(candidates)} times in the file, at lines {told}; add more lines around them")


def _below(lines: list[str], heads: Sequence[str], start: int) -> int:
    """The index of the line below the heads, searched from `start` on, else from the beginning."""
    for head in heads:
        wanted = head.strip()
        found = [at for at, line in enumerate(lines) if line.strip() == wanted]
        if not found:
            raise EditRefused(f"the line {head!r} above it is not in the file: {nearest(chr(10).join(lines), head)}")
        start = next((at for at in found if at >= start), found[0]) + 1
    return start


def _place_of_new(lines: list[str], hunk: Hunk, start: int, shift: int) -> int:
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


def _candidates(haystack: str, old: list[str]) -> list[int]:
    """The indexes of the lines where the old lines stand."""
    needle = "\n".join(["", *old, ""])
    found: list[int] = []
    at, number, since = haystack.find(needle), 0, 0
    while at >= 0 and len(found) < _CANDIDATES:
        number += haystack.count("\n", since, at)
        since = at
        found.append(number)
        at = haystack.find(needle, at + 1)
    return found


def _joined(text: str, lines: list[str], placed: Sequence[tuple[int, Hunk]]) -> Change:
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
            last = spans[-1] if spans and spans[-1].start + spans[-1].removed == done + 1 else Span(done + 1, 0, 0)
            if spans and last is spans[-1]:
                spans.pop()
            if tag == "-":
                done += 1
                spans.append(last._replace(removed=last.removed + 1))
            else:
                new.append(line)
                spans.append(last._replace(added=last.added + 1))
        if done == len(lines) and hunk.ends != (True, True):
            ends = hunk.ends[1]
    new += lines[done:]
    return Change("\n".join(new) + "\n" * bool(new and ends), tuple(spans))
