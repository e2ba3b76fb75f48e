"""The lines of a hunk, as models write them.

Owns what both formats of patches have in common: the lines with their tags. Knows nothing of the lines between hunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callboard.coding.edits.hunks import Tag
from callboard.coding.edits.result import EditRefused

NO_END: Final = "\\"
"""What a line begins with that says that the one above has no end (`\\ No newline at end of file`)."""

_TAGS: Final[dict[str, Tag]] = {" ": " ", "+": "+", "-": "-"}


def read_body(lines: Sequence[str], at: int) -> tuple[tuple[tuple[Tag, str], ...], tuple[bool, bool]]:
    """The tagged lines, and whether the old and the new text end with a line end; `at` is the first one's number.

    A line with nothing in it is a blank one that is kept, but at the end. Raises EditRefused for one without a tag.
    """
    body: list[tuple[Tag, str]] = []
    ends = [True, True]
    for number, line in enumerate(_without_blank_end(lines), at):
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


def _without_blank_end(lines: Sequence[str]) -> Sequence[str]:
    end = len(lines)
    while end and not lines[end - 1]:
        end -= 1
    return lines[:end]
