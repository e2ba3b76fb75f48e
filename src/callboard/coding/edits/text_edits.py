"""Edit a text by line numbers, which count from 1, or by a text that is in it exactly. The end of the last line is kept.

A refusal describes the part of the text that the edit probably meant, and what differs. That is linear in the text,
except for the last resort, which compares characters of at most 2,000 lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import islice, product
from typing import Final, NamedTuple

import msgspec

_LISTED: Final = 10
"""Line numbers that an error lists."""


def replace_text(text: str, old: str, new: str, *, every: bool = False) -> Change:
    """Replace `old`, which must occur once, by `new`; with `every`, replace each occurrence from left to right.

    Raises EditRefused, which lists the occurrences if there are several, or shows the nearest text.
    """
    if not old:
        raise EditRefused("old is empty; to add lines, insert them at a line, or append them")
    if old == new:
        raise EditRefused("old and new are the same: nothing would change")
    places = [match.start() for match in re.finditer(re.escape(old), text)]
    if not places:
        raise EditRefused(f"old is not in the file: {describe_closest_match(text, old)}")
    if len(places) > 1 and not every:
        numbers = _line_numbers(text, places)
        listed = ", ".join(map(str, numbers[:_LISTED])) + (" ..." if len(numbers) > _LISTED else "")
        raise EditRefused(
            f"old is {len(places)} times in the file, at lines {listed}; "
            "give more of the lines around the one that is meant, or all=true to replace each"
        )
    return Change(text.replace(old, new), tuple(_changed_spans(text, places, old, new)))


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers: list[int] = []
    number, since = 1, 0
    for place in places:
        number += text.count("\n", since, place)
        since = place
        numbers.append(number)
    return numbers


def _changed_spans(text: str, places: list[int], old: str, new: str) -> list[Span]:
    """Return the spans of changed lines; replacements in the same line are one span."""
    spans: list[Span] = []
    lines, more = old.count("\n"), new.count("\n")
    ends = old.endswith("\n") and (not new or new.endswith("\n"))
    for place, start in zip(places, _line_numbers(text, places), strict=True):
        if spans and start < spans[-1].start + spans[-1].removed:
            last = spans.pop()
            spans.append(Span(last.start, last.removed + lines, last.added + more))
            continue
        # Whole lines do not touch the next line.
        touched = not (ends and text[place - 1 : place] in ("", "\n"))
        spans.append(Span(start, lines + touched, more + touched))
    return spans


_RANGE: Final = re.compile(r"\s*(\d{1,9})\s*(?:[:,-]\s*(\d{1,9})?\s*)?", re.ASCII)


def parse_range(text: str) -> tuple[int, int | None]:
    """Return the first and the last line of `3:9`, `3-9` or `3`; of `3:` the last is None. Raises EditRefused."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise EditRefused(f"{text[:40]!r} is no range of lines; write 3:9, or 3 for one line")
    first = int(match[1])
    if match[2] is not None:
        return first, int(match[2])
    return first, None if text.strip()[-1] in ":,-" else first


def replace_lines(text: str, start: int, end: int, content: str) -> Change:
    """Replace the lines from `start` to `end`; an empty content deletes them. Raises EditRefused."""
    lines = split_lines(text)
    check_range(lines, start, end)
    new = split_lines(content)
    lines[start - 1 : end] = new
    return Change(join_lines(lines, text), (Span(start, end - start + 1, len(new)),))


def insert_lines(text: str, line: int, content: str) -> Change:
    """Insert the content before `line`. Raises EditRefused."""
    lines = split_lines(text)
    if not 1 <= line <= len(lines) + 1:
        raise EditRefused(f"the file has {_count(lines)}; content can be put at 1 to {len(lines) + 1}")
    # A blank line is a line.
    new = split_lines(content) or [""]
    lines[line - 1 : line - 1] = new
    return Change(join_lines(lines, text), (Span(line, 0, len(new)),))


def check_range(lines: list[str], start: int, end: int) -> None:
    """Raise EditRefused for a range that is not in these lines."""
    if start < 1 or end < start or end > len(lines):
        raise EditRefused(f"the file has {_count(lines)}; {start}:{end} is no range of them")


def _count(lines: list[str]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"


_LONGEST: Final = 1000
"""Characters of a line that are shown."""


class EditRefused(ValueError):
    """An edit that does not fit. Its text says why, and shows what would."""


class Span(NamedTuple):
    """`removed` lines of the old text, from line `start` (from 1), became `added` lines."""

    start: int
    removed: int
    added: int


class Change(msgspec.Struct, frozen=True):
    """The new text, and where it differs from the old: spans in order, none in another."""

    text: str
    spans: tuple[Span, ...]


def split_lines(text: str) -> list[str]:
    """Split a text into lines without their ends. Text after the last line end is a line, unless it is empty."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def join_lines(lines: Sequence[str], like: str) -> str:
    """Join lines to a text that ends as `like` does, with a line end if `like` is empty."""
    return "\n".join(lines) + "\n" * bool(lines and (not like or like.endswith("\n")))


def number_lines(lines: Sequence[str], start: int) -> str:
    """Format lines with their numbers, the first with `start`."""
    return "\n".join([f"{number}| {_shorten_line(line)}" for number, line in enumerate(lines, start)])


def format_line_range(start: int, count: int) -> str:
    """Such as `line 3` or `lines 3 to 5`."""
    return f"line {start}" if count == 1 else f"lines {start} to {start + count - 1}"


def _shorten_line(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}... ({len(line) - _LONGEST} more characters)"


_EXACT: Final = 4000
"""Maximum characters of the file's exact text that is quoted so that the model can copy it."""
_SHOWN: Final = 12
"""Lines of the closest match that are shown."""
_TRIED: Final = 2000
"""Lines that are compared by their characters."""
_COMPARED: Final = 200
"""Characters of a line that are compared."""
_ALIKE: Final = 0.6

_QUOTES: Final = str.maketrans(dict.fromkeys("'`\u2018\u2019\u201c\u201d", '"'))

_DIFFERENCES: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("white space at the end of lines", str.rstrip),
    ("indentation", str.strip),
    ("white space", lambda line: "".join(line.split())),
    ("quotes and white space", lambda line: "".join(line.translate(_QUOTES).split())),
    ("upper and lower case, quotes and white space", lambda line: "".join(line.translate(_QUOTES).split()).casefold()),
)


def describe_closest_match(text: str, text_sought: str) -> str:
    """Describe for a model the nearest match in a text that does not contain `text_sought`, and the difference."""
    lines, sought_lines = split_lines(text), split_lines(text_sought)
    if not lines:
        return "the file is empty"
    if not text_sought.strip():
        return "it is white space only; write the lines around it too"
    for whole, (difference, normalize) in product((True, False), _DIFFERENCES):
        index = _find([*map(normalize, lines)], [*map(normalize, sought_lines)], whole=whole)
        if index is not None:
            exact = "\n".join(lines[index : index + len(sought_lines)])
            lines_name = format_line_range(index + 1, len(sought_lines))
            if exact == "\n".join(sought_lines):
                # Only the end of the last line can still differ.
                return f"{lines_name} of the file {'are' if len(sought_lines) > 1 else 'is'} the same but for what ends the last line"
            verb = "differs" if len(sought_lines) == 1 else "differ"
            quoted = f"; this is exactly what the file has:\n{exact}" if len(exact) <= _EXACT else ""
            return f"{lines_name} of the file {verb} in {difference} only{quoted}"
    if (start := _closest_by_lines(lines, sought_lines)) is None:
        start = _closest_by_characters(lines, sought_lines)
    if start is None:
        return "nothing in the file is like it; read the file again"
    # More of the file than was asked for is of no use.
    there = lines[start : start + min(len(sought_lines), _SHOWN)]
    pairs = [pair for pair in zip(there, sought_lines, strict=False) if pair[0] != pair[1]]
    differs = f"\nthe file has {pairs[0][0][:_COMPARED]!r} where {pairs[0][1][:_COMPARED]!r} was given" if pairs else ""
    return f"the nearest is {format_line_range(start + 1, len(there))}:\n{number_lines(there, start + 1)}{differs}"


def _find(lines: Sequence[str], sought: Sequence[str], *, whole: bool) -> int | None:
    """Return the index of the first sought line; without `whole`, a match may begin and end within a line."""
    if not any(sought):
        return None
    text = "\n".join(["", *lines, ""])
    at = text.find("\n".join(["", *sought, ""] if whole else sought))
    return text.count("\n", 0, at + whole) - 1 if at >= 0 else None


def _closest_by_lines(lines: Sequence[str], sought: Sequence[str]) -> int | None:
    """Return the index of the window, of as many lines, that shares the most lines with the sought ones."""
    telling = {line.strip() for line in sought if re.search(r"\w", line)}
    same = [line.strip() in telling for line in lines]
    size = min(len(sought), len(lines))
    best = score = sum(same[:size])
    start = 0
    for at in range(1, len(lines) - size + 1):
        score += same[at + size - 1] - same[at - 1]
        if score > best:
            best, start = score, at
    if not best:
        return None
    # The first equal line has the same position in the sought lines.
    first = same.index(True, start)
    among = [line.strip() for line in sought].index(lines[first].strip())
    return max(0, first - among)


def _closest_by_characters(lines: Sequence[str], sought: Sequence[str]) -> int | None:
    """Return the index of the line that is most like the longest of the sought ones."""
    longest = max(range(len(sought)), key=lambda at: len(sought[at].strip()))
    matcher = SequenceMatcher(None, b=sought[longest].strip()[:_COMPARED], autojunk=False)
    best, start = _ALIKE, None
    for at, line in enumerate(islice(lines, _TRIED)):
        matcher.set_seq1(line.strip()[:_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, start = matcher.ratio(), max(0, at - longest)
    return start
