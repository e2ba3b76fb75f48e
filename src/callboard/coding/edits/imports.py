"""Fix the imports of code that a small model wrote: drop imports of its own file, and add forgotten imports.

Small models write `from calc import add` into calc.py, which fails as a circular import, and tests without imports.
Law: a name is imported only if it can come from one module alone.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import StringIO
from pathlib import PurePosixPath
from typing import Final

from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.outlines.languages import Statement


def drop_self_imports(code: str, path: str, statements: Sequence[Statement], existing: Iterable[Statement]) -> str:
    """Return the code without imports of its own file, `path`. `statements` belong to the code, `existing` to the file.

    Raises EditRefused if an import takes a name that the file does not define.
    """
    place = PurePosixPath(path)
    parts = [*place.parent.parts, place.stem]
    if place.suffix not in (".py", ".pyi"):
        certain, possible = {f"./{place.stem}", f"./{place.name}"}, set()
    elif place.stem == "__init__":
        certain, possible = set(), {".", place.parent.name, ".".join(parts[parts[0] == "src" : -1])}
    else:
        # Another directory may have a module of that name: it is this file if that defines what is imported.
        certain, possible = {".".join(parts), ".".join(parts[parts[0] == "src" :]), f".{place.stem}"}, {place.stem}
    defined = {name for each in (*statements, *existing) if each.kind != "import" for name in each.names}
    lines = code.split("\n")
    for each in reversed([each for each in statements if each.kind == "import"]):
        pairs = [
            (name.removeprefix("default "), module) for name, _, module in (n.rpartition(" from ") for n in each.names)
        ]
        own = [(name, module) for name, module in pairs if (module or name.partition(" ")[0]) in certain | possible]
        own += [(name, module) for name, module in pairs if module == "." and name == place.stem]
        missing = [name for name, module in own if not module or (name not in defined and name != "*")]
        if own and len(own) == len(pairs) and not missing:
            del lines[each.start : each.end]
        elif any(
            module in certain or (not module and name.partition(" ")[0] in certain) or name == place.stem
            for name, module in own
        ):
            raise EditRefused(
                f"line {each.start + 1} of the code imports {path} into itself: {lines[each.start].strip()[:80]!r}; "
                f"leave the import out, and define {', '.join(missing) or 'its names'} here"
            )
    return "\n".join(lines)


_MODULES = sys.stdlib_module_names | {"pytest"}
_STANDARD_NAMES: Final = {
    name: module
    for module, names in {
        "collections": "Counter OrderedDict defaultdict deque namedtuple",
        "dataclasses": "dataclass",
        "datetime": "timedelta timezone",
        "decimal": "Decimal InvalidOperation ROUND_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP",
        "functools": "cached_property lru_cache partial reduce wraps",
        "pathlib": "Path PurePosixPath",
        "typing": "Any Callable Iterable Iterator Optional Union",
    }.items()
    for name in names.split()
}
"""Names that mean one thing in most programs, with their modules."""


def add_imports(code: str, defined: Mapping[str, Collection[str]], text: str = "") -> str:
    """Put imports above the code for the names that it uses and does not bind.

    These are modules, well-known names of the standard library, and names that one file defines. `defined` has the
    names of each file. `text` is the file that the code is for; names that it binds are known. Code that is not Python
    is returned as it is.
    """
    try:
        tree, whole = ast.parse(code), ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    if any(alias.name == "*" for node in ast.walk(whole) if isinstance(node, ast.ImportFrom) for alias in node.names):
        return code
    bound_names = _bound_names(tree) | _bound_names(whole)
    used_names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    needed = [each for each in dict.fromkeys(used_names) if each not in bound_names and not hasattr(builtins, each)]
    imports = [line for name in needed if (line := _import_line(name, defined))]
    imports.sort(key=lambda line: (line.startswith("from"), line))
    at = next((at for at, node in enumerate(tree.body) if not _precedes_imports(node)), 0)
    row = 0
    if tree.body:
        # A statement begins with its decorators.
        row = min(each.lineno for each in (tree.body[at], *getattr(tree.body[at], "decorator_list", []))) - 1
    if not imports or (at and row < (tree.body[at - 1].end_lineno or 0)):
        # None are needed, or what precedes them shares its line with the first statement.
        return code
    # The lines that Python counts: a form feed ends none.
    lines = StringIO(code, newline="").readlines()
    gap = [] if isinstance(tree.body[at], ast.Import | ast.ImportFrom) else ["\n\n"]
    return "".join([*lines[:row], *imports, *gap, *lines[row:]])


def _import_line(name: str, defined: Mapping[str, Collection[str]]) -> str:
    """Return the line that imports a name, "" if its module is not known or not unique."""
    if name in _MODULES:
        return f"import {name}\n"
    modules = [module for path, names in defined.items() if name in names and (module := _module_name(path))]
    if not modules and name in _STANDARD_NAMES:
        modules = [_STANDARD_NAMES[name]]
    return f"from {modules[0]} import {name}\n" if len(modules) == 1 else ""


def _module_name(path: str) -> str:
    """Return the dotted name of a file's module, "" for a file that cannot be imported."""
    place = PurePosixPath(path)
    parts = [*place.parent.parts, *([] if place.stem == "__init__" else [place.stem])]
    if parts[:1] == ["src"]:
        parts = parts[1:]
    return ".".join(parts) if place.suffix == ".py" and all(part.isidentifier() for part in parts) else ""


def _bound_names(tree: ast.AST) -> set[str]:
    """Return every name that is bound anywhere; scopes are ignored, which is enough for a file of tests."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case _:
                pass
    return names


def _precedes_imports(node: ast.stmt) -> bool:
    """Return whether it comes before the imports: the docstring, and imports from `__future__`."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
