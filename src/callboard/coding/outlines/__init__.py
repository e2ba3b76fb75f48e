"""What a source file defines and imports, by tree-sitter in a process of its own."""

from callboard.coding.outlines.languages import ParsedText, Symbol
from callboard.coding.outlines.parser import find_syntax_error, make_outline

__all__ = ["ParsedText", "Symbol", "find_syntax_error", "make_outline"]
