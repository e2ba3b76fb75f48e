"""Fix the imports of Go code that a small model wrote: an import that is not used, or is missing, keeps it from compiling.

Laws: only packages of the standard library are added or left out; the rest of the code stays as it is; the work is
linear in the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from callboard.coding.edits.replace_definitions import parse_code
from callboard.coding.edits.text_edits import EditRefused

_STANDARD: Final = {
    path.rpartition("/")[2]: path
    for path in (
        *("bufio", "bytes", "cmp", "context", "encoding/json", "errors", "fmt", "io", "maps", "math", "math/big", "os"),
        *("path", "path/filepath", "reflect", "regexp", "slices", "sort", "strconv", "strings", "sync", "sync/atomic"),
        *("testing", "time", "unicode", "unicode/utf8"),
    )
}
_SPEC: Final = re.compile(r'\s*("[^"]+")\s*;?\s*(?://.*)?')
"""A line with one import in a list of imports."""
_VERSION: Final = re.compile(r"/v\d+$")
_NOT_CODE: Final = re.compile(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|`[^`]*`?|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?")
_USE: Final = re.compile(r"(?<![\w.])([a-z]\w*)\.\s*[A-Z]")
_BOUND: Final = re.compile(r"\b([a-z]\w*)(?=[ \t]*(?::=|,|=[^=])|[ \t]+[\w*\[])")


def fix_go_imports(code: str, text: str = "") -> str:
    """Return the code without unused imports of standard packages, and with imports of those that it uses.

    `text` is the file that the code is for: a name that it imports is known. Code that does not parse stays as it is.
    """
    try:
        parsed, known = parse_code(code, "code.go"), parse_code(text, "code.go")
    except EditRefused:
        return code
    if parsed.broken is not None:
        return code
    lines = code.split("\n")
    imports = [each for each in parsed.statements if each.kind == "import"]
    rows = {row for each in imports for row in range(each.start, each.end)}
    rest = _NOT_CODE.sub(" ", "\n".join([line for row, line in enumerate(lines) if row not in rows]))
    used = {*_USE.findall(rest)}
    imported = _package_names(name for each in (*parsed.statements, *known.statements) for name in each.names)
    missing = sorted(_STANDARD[name] for name in used - imported - {*_BOUND.findall(rest)} if name in _STANDARD)
    unused = {f'"{path}"' for name, path in _STANDARD.items() if name not in used}
    gone = {
        row
        for each in imports
        for row in range(each.start, each.end)
        if unused.issuperset(each.names) or ((spec := _SPEC.fullmatch(lines[row])) and spec[1] in unused)
    }
    added = [f'import "{path}"' for path in missing]
    head = next((each.end for each in parsed.statements if "package" in each.names), 0)
    above = [line for row, line in enumerate(lines[:head]) if row not in gone]
    below = [line for row, line in enumerate(lines[head:], head) if row not in gone]
    return "\n".join([*above, *([""] if head and added else []), *added, *below])


def _package_names(names: Iterable[str]) -> set[str]:
    """Return the names that imports such as `f "fmt"` bind; other names of statements bind none."""
    specs = [name.rpartition(" ") for name in names if name.endswith(('"', "`"))]
    return {alias or _VERSION.sub("", path.strip('"`')).rpartition("/")[2] for alias, _, path in specs}
