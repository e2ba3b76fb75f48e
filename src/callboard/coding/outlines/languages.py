"""The table of languages: the suffixes of their files, their grammars, and the nodes that define or import something.

And the values that the parser process answers with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import msgspec

GUARD: Final = 'if __name__ == "__main__"'
"""The name of the statement that runs a script in Python."""


class Symbol(msgspec.Struct, frozen=True):
    """A definition at a line, from 1; `scope` is the dotted path of the definitions around it."""

    line: int
    kind: str
    name: str
    scope: str = ""
    end: int = 0
    """The number of its last line."""

    @property
    def path(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


class Gap(NamedTuple):
    """A comment or an ellipsis that replaces omitted code; lines count from 1."""

    line: int
    text: str


class Statement(msgspec.Struct, frozen=True, array_like=True):
    """A statement of a text or of a class; rows count from 0, and an end is the row after the last."""

    kind: str
    """The grammar's word, or `import`, `compound`, `head` (what the file has to begin with), `several` on one line."""
    lead: int
    """The first row of the comments right above it."""
    start: int
    end: int
    names: list[str]
    """Names that it defines or imports."""
    members: list[Statement] = []
    """The statements of a class, where each is on lines of its own."""
    header: int = 0
    """Row after the header, where the members begin."""
    inner: int = 0
    """Row after the members; 0 without members."""
    is_stub: bool = False
    """Whether its body does nothing."""

    @property
    def all_names(self) -> list[str]:
        """Return its names and its members' names."""
        scope = f"{self.names[0]}." if self.names else ""
        return [*self.names, *(scope + name for member in self.members for name in member.all_names)]


class ParsedText(msgspec.Struct, frozen=True):
    """The findings of a grammar in a text; `broken` is the line, from 1, of the first syntax error."""

    symbols: list[Symbol]
    """The definitions."""
    imports: list[int]
    """The numbers of the import lines."""
    statements: list[Statement]
    gaps: list[Gap] = []
    broken: int | None = None


class Definition(NamedTuple):
    """The names that a node defines."""

    kind: str
    field: str = "name"
    """The field with its name, or with the node that has the name in it."""
    scope: bool = False
    """Whether it holds other definitions."""


class Language(msgspec.Struct, frozen=True):
    name: str
    suffixes: tuple[str, ...]
    module: str
    """The Python package of its grammar."""
    definitions: Mapping[str, Definition]
    imports: frozenset[str]
    function: str = "language"
    """The package's function that returns the grammar."""
    callables: frozenset[str] = frozenset()
    """Kinds of values that make a variable a function."""


_FUNC: Final = Definition("func")
_METHOD: Final = Definition("method")
_CLASS: Final = Definition("class", scope=True)
_INTERFACE: Final = Definition("interface", scope=True)
_ENUM: Final = Definition("enum", scope=True)
_TYPE: Final = Definition("type")

_JAVASCRIPT: Final = {
    "function_declaration": _FUNC,
    "generator_function_declaration": _FUNC,
    "class_declaration": _CLASS,
    "method_definition": _METHOD,
    "variable_declarator": Definition("variable"),
}
_TYPESCRIPT: Final = {
    **_JAVASCRIPT,
    "function_signature": _FUNC,
    "abstract_class_declaration": _CLASS,
    "abstract_method_signature": _METHOD,
    "interface_declaration": _INTERFACE,
    "enum_declaration": _ENUM,
    "type_alias_declaration": _TYPE,
    "internal_module": Definition("namespace", scope=True),
    "module": Definition("namespace", scope=True),
}
_SCRIPT_IMPORTS: Final = frozenset({"import_statement", "import_require_clause"})
_SCRIPT_CALLABLES: Final = frozenset({"arrow_function", "function_expression", "generator_function"})

LANGUAGES: Final = (
    Language(
        "python",
        (".py", ".pyi"),
        "tree_sitter_python",
        {"function_definition": _FUNC, "class_definition": _CLASS},
        frozenset({"import_statement", "import_from_statement", "future_import_statement"}),
    ),
    Language(
        "go",
        (".go",),
        "tree_sitter_go",
        {"function_declaration": _FUNC, "method_declaration": _METHOD, "type_spec": _TYPE, "type_alias": _TYPE},
        frozenset({"import_spec"}),
    ),
    Language(
        "javascript",
        (".js", ".jsx", ".mjs", ".cjs"),
        "tree_sitter_javascript",
        _JAVASCRIPT,
        _SCRIPT_IMPORTS,
        callables=_SCRIPT_CALLABLES,
    ),
    Language(
        "typescript",
        (".ts", ".mts", ".cts"),
        "tree_sitter_typescript",
        _TYPESCRIPT,
        _SCRIPT_IMPORTS,
        "language_typescript",
        _SCRIPT_CALLABLES,
    ),
    Language(
        "tsx", (".tsx",), "tree_sitter_typescript", _TYPESCRIPT, _SCRIPT_IMPORTS, "language_tsx", _SCRIPT_CALLABLES
    ),
    Language(
        "rust",
        (".rs",),
        "tree_sitter_rust",
        {
            "function_item": _FUNC,
            "function_signature_item": _FUNC,
            "struct_item": Definition("struct"),
            "enum_item": Definition("enum"),
            "union_item": Definition("union"),
            "trait_item": Definition("trait", scope=True),
            "impl_item": Definition("impl", "type", scope=True),
            "mod_item": Definition("module", scope=True),
            "type_item": _TYPE,
            "macro_definition": Definition("macro"),
        },
        frozenset({"use_declaration", "extern_crate_declaration"}),
    ),
    Language(
        "java",
        (".java",),
        "tree_sitter_java",
        {
            "class_declaration": _CLASS,
            "record_declaration": Definition("record", scope=True),
            "interface_declaration": _INTERFACE,
            "annotation_type_declaration": _INTERFACE,
            "enum_declaration": _ENUM,
            "method_declaration": _METHOD,
            "constructor_declaration": _METHOD,
        },
        frozenset({"import_declaration"}),
    ),
    Language(
        "c",
        (".c", ".h"),
        "tree_sitter_c",
        {
            "function_definition": Definition("func", "declarator"),
            "declaration": Definition("declaration", "declarator"),
            "struct_specifier": Definition("struct"),
            "union_specifier": Definition("union"),
            "enum_specifier": Definition("enum"),
            "type_definition": Definition("type", "declarator"),
            "preproc_function_def": Definition("macro"),
            "preproc_def": Definition("macro"),
        },
        frozenset({"preproc_include"}),
    ),
)

_BY_SUFFIX: Final = {suffix: language for language in LANGUAGES for suffix in language.suffixes}
NAMES: Final = tuple(language.name for language in LANGUAGES)


def find_language(path: str) -> Language | None:
    """Return the language of a file by its name's end."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())
