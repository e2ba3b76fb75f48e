"""The outline of a source text.

Owns what is found in a tree. Knows nothing of files.
Law: no recursion, however deep the text is nested; the inside of functions is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from callboard.coding.outlines.languages import Definition, Language, language_of
from callboard.coding.outlines.parsing import parsed
from callboard.coding.outlines.patterns import find_imports, find_symbols

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

_FUNCTIONS: Final = frozenset({"func", "method"})
_MODULES: Final = frozenset({"module", "namespace"})
_NAMED: Final = 4
"""Scopes that a symbol's path names."""
_REQUIRE: Final = b"require"


class Symbol(msgspec.Struct, frozen=True):
    """What is defined at a line, from 1; `scope` is what it is in, with dots."""

    line: int
    kind: str
    name: str
    scope: str = ""

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


class Outline(msgspec.Struct, frozen=True):
    """What a text defines, and the numbers of the lines at which it imports."""

    symbols: list[Symbol]
    imports: list[int]


def outline_of(text: str, path: str) -> Outline | None:
    """The outline of a text, its language told by its path; None for a language that is not known."""
    language = language_of(path)
    if language is None:
        return None
    tree = parsed(text, language)
    if tree is None:
        symbols = [Symbol(line, kind, name) for line, kind, name in find_symbols(text, language.name)]
        return Outline(symbols, find_imports(text, language.name))
    return _read(tree, language)


def _read(tree: Tree, language: Language) -> Outline:
    symbols: list[Symbol] = []
    imports: list[int] = []
    scopes: list[tuple[int, Symbol]] = []
    cursor = tree.walk()
    depth = 0  # the cursor counts its own anew each time
    while True:
        node = cursor.node
        enter = True
        if node is not None and node.is_named:
            while scopes and scopes[-1][0] >= depth:
                scopes.pop()
            kind = node.type
            if kind in language.imports or _is_require(node, kind):
                imports.append(node.start_point.row + 1)
                enter = False
            elif (definition := language.definitions.get(kind)) is not None:
                found = _symbol(node, definition, language, [symbol for _, symbol in scopes[-_NAMED:]])
                if found is not None:
                    # An impl is where things are defined, not what is.
                    if found.kind != "impl":
                        symbols.append(found)
                    enter = found.kind not in _FUNCTIONS
                    if definition.scope:
                        scopes.append((depth, found))
        if enter and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return Outline(symbols, list(dict.fromkeys(imports)))
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
        named = _declared(named, kind)
        if named is None or (kind in ("struct", "union", "enum") and node.child_by_field_name("body") is None):
            return None
    elif language.name == "go":
        kind = _GO_TYPES.get(_type_of(node.child_by_field_name("type")), kind)
        scope = _receiver(node) if kind == "method" else scope
    if named is None or named.text is None:
        return None
    if kind == "func" and scopes and scopes[-1].kind not in _MODULES:
        kind = "method"
    return Symbol(node.start_point.row + 1, kind, named.text.decode("utf-8", "replace"), scope)


_GO_TYPES: Final = {"struct_type": "struct", "interface_type": "interface"}
_C_DECLARATORS: Final = frozenset(
    {
        "pointer_declarator",
        "function_declarator",
        "array_declarator",
        "parenthesized_declarator",
        "attributed_declarator",
    }
)


def _declared(node: Node | None, kind: str) -> Node | None:
    """The name in a declarator of C; of a declaration only that of a function."""
    is_function = False
    while node is not None and node.type in _C_DECLARATORS:
        is_function = is_function or node.type == "function_declarator"
        node = node.child_by_field_name("declarator") or (node.named_children[0] if node.named_children else None)
    return node if is_function or kind != "declaration" else None


def _receiver(node: Node) -> str:
    """The type that a method of Go is of."""
    receiver = node.child_by_field_name("receiver")
    text = (receiver.text or b"") if receiver is not None else b""
    return text.decode("utf-8", "replace").strip("()").partition("[")[0].rpartition(" ")[2].lstrip("*")


def _type_of(node: Node | None) -> str:
    return node.type if node is not None else ""


def _is_require(node: Node, kind: str) -> bool:
    if kind != "call_expression":
        return False
    function = node.child_by_field_name("function")
    return function is not None and function.type == "identifier" and function.text == _REQUIRE
