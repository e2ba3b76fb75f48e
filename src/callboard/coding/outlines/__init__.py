"""What a source file defines and imports.

By tree-sitter where it is installed, else line by line.
"""

from callboard.coding.outlines.outline import Outline, Symbol, outline_of
from callboard.coding.outlines.syntax import broken_line

__all__ = ["Outline", "Symbol", "broken_line", "outline_of"]
