"""The definitions and imports of a source file, by tree-sitter in a separate process."""

from callboard.coding.outlines.languages import ParsedText, Symbol
from callboard.coding.outlines.parser import find_syntax_error, make_outline

__all__ = ["ParsedText", "Symbol", "find_syntax_error", "make_outline"]
