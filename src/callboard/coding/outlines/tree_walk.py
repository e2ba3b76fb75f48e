"""Read a syntax tree: what the text defines and imports, its statements, and its first syntax error.

Runs in the worker process alone, since a grammar is C code of others. Law: no recursion, however deep the text is
nested; the inside of functions is not looked at.

A text is parsed within 2 MB and 2 seconds of the processor. tree-sitter is imported then, and need not be installed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from callboard.coding.outlines.languages import Definition, Language, ParsedText, Symbol
from callboard.coding.outlines.statements import find_gaps, list_statements, receiver

if TYPE_CHECKING:
    from tree_sitter import Node, Tree, TreeCursor

MAX_BYTES: Final = 2 * 1024 * 1024
SECONDS: Final = 2.0
_BLOCK: Final = 1024
"""Bytes of one read. Each node's text is a new read, which copies this many bytes."""


def parse_tree(text: str, language: Language) -> Tree | None:
    """Return the tree of a text; None without a grammar, or if it is too large or takes too long."""
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


_FUNCTIONS: Final = frozenset({"func", "method"})
_MODULES: Final = frozenset({"module", "namespace"})
_NAMED: Final = 4
"""Levels of scopes in a symbol's path."""
_REQUIRE: Final = b"require"


def read_tree(text: str, language: Language) -> ParsedText | None:
    """Return the parsed text, or None if it has no tree; see `parsing`."""
    tree = parse_tree(text, language)
    if tree is None:
        return None
    symbols, imports = _definition(tree, language)
    statements = list_statements(tree.root_node, language)
    return ParsedText(symbols, imports, statements, find_gaps(tree), _broken_line(tree))


def _definition(tree: Tree, language: Language) -> tuple[list[Symbol], list[int]]:
    symbols: list[Symbol] = []
    imports: list[int] = []
    scopes: list[tuple[int, Symbol]] = []
    cursor = tree.walk()
    depth = 0  # the cursor counts its own depth from 0 each time
    while True:
        node = cursor.node
        enter = True
        if node is not None and node.is_named:
            while scopes and scopes[-1][0] >= depth:
                scopes.pop()
            kind = node.type
            function = node.child_by_field_name("function") if kind == "call_expression" else None
            is_require = function is not None and function.type == "identifier" and function.text == _REQUIRE
            if kind in language.imports or is_require:
                imports.append(node.start_point.row + 1)
                enter = False
            elif (definition := language.definitions.get(kind)) is not None:
                symbol = _symbol(node, definition, language, [symbol for _, symbol in scopes[-_NAMED:]])
                if symbol is not None:
                    # An impl is where things are defined, not what is.
                    if symbol.kind != "impl":
                        symbols.append(symbol)
                    enter = symbol.kind not in _FUNCTIONS
                    if definition.scope:
                        scopes.append((depth, symbol))
        if enter and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return symbols, list(dict.fromkeys(imports))
            depth -= 1


def _symbol(node: Node, definition: Definition, language: Language, scopes: list[Symbol]) -> Symbol | None:
    named = node.child_by_field_name(definition.field)
    kind = definition.kind
    scope = ".".join([each.name for each in scopes])
    if kind == "variable":
        value = node.child_by_field_name("value")
        if value is None or value.type not in language.callables:
            return None
        kind = "func"
    elif language.name == "c":
        named = _declarations(named, kind)
        if named is None or (kind in ("struct", "union", "enum") and node.child_by_field_name("body") is None):
            return None
    elif language.name == "go":
        inner = node.child_by_field_name("type")
        kind = _GO_TYPES.get(inner.type, kind) if inner is not None else kind
        scope = receiver(node) if kind == "method" else scope
    if named is None or named.text is None:
        return None
    if kind == "func" and scopes and scopes[-1].kind not in _MODULES:
        kind = "method"
    end = node.end_point.row + (node.end_point.column > 0)
    return Symbol(node.start_point.row + 1, kind, named.text.decode("utf-8", "replace"), scope, end)


_GO_TYPES: Final = {"struct_type": "struct", "interface_type": "interface"}
_C_DECLARATORS: Final = frozenset(
    [f"{kind}_declarator" for kind in ("pointer", "function", "array", "parenthesized", "attributed")]
)


def _declarations(node: Node | None, kind: str) -> Node | None:
    """Return the name in a C declarator; a declaration counts only if it declares a function."""
    is_function = False
    while node is not None and node.type in _C_DECLARATORS:
        is_function = is_function or node.type == "function_declarator"
        node = node.child_by_field_name("declarator") or (node.named_children[0] if node.named_children else None)
    return node if is_function or kind != "declaration" else None


def _broken_line(tree: Tree) -> int | None:
    """Return the line, from 1, of the first syntax error."""
    if not tree.root_node.has_error:
        return None
    cursor = tree.walk()
    while (node := cursor.node) is not None and not (node.is_error or node.is_missing) and _to_broken_child(cursor):
        pass
    return node.start_point.row + 1 if node is not None else None


def _to_broken_child(cursor: TreeCursor) -> bool:
    """Move to the first child with an error in it."""
    if not cursor.goto_first_child():
        return False
    while (node := cursor.node) is None or not (node.has_error or node.is_missing):
        if not cursor.goto_next_sibling():
            return False
    return True
