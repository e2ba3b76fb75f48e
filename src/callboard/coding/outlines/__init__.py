"""What a source file defines and imports.

By tree-sitter where it is installed, in a process of its own, else line by line.
"""

from callboard.coding.outlines.outline import find_syntax_error, make_outline
from callboard.coding.outlines.values import Outline, Symbol

__all__ = ["Outline", "Symbol", "find_syntax_error", "make_outline"]
