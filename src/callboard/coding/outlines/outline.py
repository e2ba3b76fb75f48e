"""The outline of a source text.

Owns the choice of who reads it: a grammar, else line by line. Knows nothing of files.
"""

from __future__ import annotations

from callboard.coding.outlines.languages import language_of
from callboard.coding.outlines.parser import parse
from callboard.coding.outlines.regex_outline import find_imports, find_symbols
from callboard.coding.outlines.values import Outline, Symbol


def outline_of(text: str, path: str) -> Outline | None:
    """The outline of a text, its language told by its path; None for a language that is not known."""
    language = language_of(path)
    if language is None:
        return None
    known = parse(text, language)
    if known is None:
        symbols = [Symbol(line, kind, name) for line, kind, name in find_symbols(text, language.name)]
        return Outline(symbols, find_imports(text, language.name))
    return Outline(known.symbols, known.imports)
