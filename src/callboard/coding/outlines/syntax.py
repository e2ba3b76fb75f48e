"""Whether a source text can be read.

Owns the search for the first line that cannot. Says nothing where there is no grammar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.coding.outlines.languages import language_of
from callboard.coding.outlines.parsing import parsed

if TYPE_CHECKING:
    from tree_sitter import TreeCursor


def broken_line(text: str, path: str) -> int | None:
    """The line, from 1, of the first syntax error; None if there is none, or nobody can tell."""
    language = language_of(path)
    tree = parsed(text, language) if language is not None else None
    if tree is None or not tree.root_node.has_error:
        return None
    cursor = tree.walk()
    while (node := cursor.node) is not None and not (node.is_error or node.is_missing) and _to_broken_child(cursor):
        pass
    return node.start_point.row + 1 if node is not None else None


def _to_broken_child(cursor: TreeCursor) -> bool:
    """Goes to the first child that has an error in it."""
    if not cursor.goto_first_child():
        return False
    while (node := cursor.node) is None or not (node.has_error or node.is_missing):
        if not cursor.goto_next_sibling():
            return False
    return True
