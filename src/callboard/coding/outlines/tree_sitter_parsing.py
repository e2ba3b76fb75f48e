"""Parse a text with tree-sitter, within 2 MB and 2 seconds of the processor.

Runs in the worker process alone. tree-sitter is imported when the first text is parsed, and need not be installed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from callboard.coding.outlines.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Tree

MAX_BYTES: Final = 2 * 1024 * 1024
SECONDS: Final = 2.0
_BLOCK: Final = 1024
"""Bytes of a read: the text of each node is read anew, and a read copies all of this."""


def parse_tree(text: str, language: Language) -> Tree | None:
    """The tree of a text, None where there is no grammar or it is too large or takes too long."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        return None
    grammar = _grammar(language.module, language.function)
    if grammar is None:
        return None
    import tree_sitter  # noqa: PLC0415  # it is installed, as the grammar is

    end = process_time() + SECONDS
    try:
        return tree_sitter.Parser(grammar).parse(
            lambda at, _: data[at : at + _BLOCK], progress_callback=lambda *_: process_time() > end
        )
    except ValueError:  # it was stopped
        return None


@cache
def _grammar(module: str, function: str) -> Any:
    try:
        import tree_sitter  # noqa: PLC0415  # where something is parsed

        return tree_sitter.Language(getattr(import_module(module), function)())
    except (ImportError, AttributeError, ValueError):  # absent, or made for another version
        return None
