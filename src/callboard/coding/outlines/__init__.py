"""What a source file defines and imports, by tree-sitter in a process of its own."""

from callboard.coding.outlines.languages import Outline, Symbol
from callboard.coding.outlines.parser import find_syntax_error, make_outline

__all__ = ["Outline", "Symbol", "find_syntax_error", "make_outline"]
