"""Describe the part of a text that an edit probably meant, and what differs.

Linear in the text, except for the last resort, which compares characters of at most 2,000 lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import islice, product
from typing import Final

from callboard.coding.edits.result import format_line_range, number_lines, split_lines

_EXACT: Final = 4000
"""Characters up to which the file's exact text is quoted, for the model to copy."""
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
    """What in the text is nearest to `wanted`, which is not in it, and what differs; for a model to read."""
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
                # The only text that is left to differ is the end of the last line.
                return f"{lines_name} of the file {'are' if len(sought_lines) > 1 else 'is'} the same but for what ends the last line"
            if len(exact) <= _EXACT:
                return f"{lines_name} of the file {_differ_verb(sought_lines)} in {difference} only; this is exactly what the file has:\n{exact}"
            return f"{lines_name} of the file {_differ_verb(sought_lines)} in {difference} only"
    start = _closest_by_lines(lines, sought_lines)
    if start is None:
        start = _closest_by_characters(lines, sought_lines)
    if start is None:
        return "nothing in the file is like it; read the file again"
    # More of the file than was asked for is of no use.
    there = lines[start : start + min(len(sought_lines), _SHOWN)]
    return f"the nearest is {format_line_range(start + 1, len(there))}:\n{number_lines(there, start + 1)}{_first_difference(there, sought_lines)}"


def _differ_verb(sought: Sequence[str]) -> str:
    return "differs" if len(sought) == 1 else "differ"


def _find(lines: Sequence[str], sought: Sequence[str], *, whole: bool) -> int | None:
    """The index of the first sought line; without `whole`, the first may begin and the last end within a line."""
    if not any(sought):
        return None
    text = "\n".join(["", *lines, ""])
    at = text.find("\n".join(["", *sought, ""] if whole else sought))
    return text.count("\n", 0, at + whole) - 1 if at >= 0 else None


def _closest_by_lines(lines: Sequence[str], sought: Sequence[str]) -> int | None:
    """The index of the window, of as many lines, that shares the most lines with the sought ones."""
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
    # The first that is the same stands where it does in the sought ones.
    first = same.index(True, start)
    among = [line.strip() for line in sought].index(lines[first].strip())
    return max(0, first - among)


def _closest_by_characters(lines: Sequence[str], sought: Sequence[str]) -> int | None:
    """The index of the line that is most like the longest of the sought ones."""
    longest = max(range(len(sought)), key=lambda at: len(sought[at].strip()))
    matcher = SequenceMatcher(None, b=sought[longest].strip()[:_COMPARED], autojunk=False)
    best, start = _ALIKE, None
    for at, line in enumerate(islice(lines, _TRIED)):
        matcher.set_seq1(line.strip()[:_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, start = matcher.ratio(), max(0, at - longest)
    return start


def _first_difference(there: Sequence[str], sought: Sequence[str]) -> str:
    for one, other in zip(there, sought, strict=False):
        if one != other:
            return f"\nthe file has {one[:_COMPARED]!r} where {other[:_COMPARED]!r} was given"
    return ""
