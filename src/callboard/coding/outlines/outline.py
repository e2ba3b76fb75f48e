"""The outline of a source text, and its first syntax error: by a grammar, else line by line."""

from __future__ import annotations

from callboard.coding.outlines.languages import find_language
from callboard.coding.outlines.parser import parse
from callboard.coding.outlines.regex_outline import find_imports, find_symbols
from callboard.coding.outlines.values import Outline, Symbol


def make_outline(text: str, path: str) -> Outline | None:
    """The outline of a text, None for an unknown language; the path says which it is in."""
    language = find_language(path)
    if language is None:
        return None
    known = parse(text, language)
    if known is None:
        symbols = [Symbol(line, kind, name) for line, kind, name in find_symbols(text, language.name)]
        return Outline(symbols, find_imports(text, language.name))
    return Outline(known.symbols, known.imports)


def find_syntax_error(text: str, path: str) -> int | None:
    """The line, from 1, of the first syntax error; None if there is none, no grammar, or the text cannot be parsed."""
    language = find_language(path)
    known = parse(text, language) if language is not None else None
    return known.broken if known is not None else None
