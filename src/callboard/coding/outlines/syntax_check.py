"""Whether a source text can be read.

Says nothing where there is no grammar, nor of a text that could not be parsed.
"""

from __future__ import annotations

from callboard.coding.outlines.languages import language_of
from callboard.coding.outlines.parser import parse


def broken_line(text: str, path: str) -> int | None:
    """The line, from 1, of the first syntax error; None if there is none, or nobody can tell."""
    language = language_of(path)
    known = parse(text, language) if language is not None else None
    return known.broken if known is not None else None
