"""Shorten a text that is too long to be shown whole."""

from __future__ import annotations

from typing import Final

_MIN_KEPT: Final = 40


def truncate(text: str, longest: int, mark: str = "...") -> str:
    """Return the beginning of the text: at most `longest` characters, `mark` included, which says that it was cut."""
    return text if len(text) <= longest else f"{text[: max(0, longest - len(mark))]}{mark}"[:longest]


def truncate_line(text: str, longest: int, mark: str = "...") -> str:
    """Return the text on one line, each run of whitespace as one space; of a long one `longest` characters and `mark`.

    Only the first `4 * longest` characters are read, so that the cost does not depend on the text.
    """
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[:longest]}{mark}"


def truncate_middle(text: str, longest: int) -> str:
    """Return the beginning (two thirds) and the end of the text, with a notice of its length between them.

    If `longest` has hardly room for more than the notice, return only the notice.
    """
    if len(text) <= longest:
        return text
    notice = f"\n[... {len(text)} characters, not all are shown ...]\n"
    room = longest - len(notice)
    if room < _MIN_KEPT:
        return notice.strip()
    end = room // 3
    return f"{text[: room - end]}{notice}{text[-end:]}"
