"""Fix the imports of Go code that a small model wrote: an import that is not used, or is missing, keeps it from compiling.

Laws: only packages of the standard library are added or left out; the rest of the code stays as it is; the work is
linear in the code.
"""

from __future__ import annotations

import re
from typing import Final

_STANDARD: Final = {
    path.rpartition("/")[2]: path
    for path in (
        *("bufio", "bytes", "cmp", "context", "encoding/json", "errors", "fmt", "io", "maps", "math", "math/big", "os"),
        *("path", "path/filepath", "reflect", "regexp", "slices", "sort", "strconv", "strings", "sync", "sync/atomic"),
        *("testing", "time", "unicode", "unicode/utf8"),
    )
}
_IMPORT: Final = re.compile(
    r"""^import[ \t]+(?:\([^()"`]*(?:"[^"\n]*"[^()"`]*)*\)|(?:[\w.]+[ \t]+)?"[^"\n]*")[ \t]*\n?""", re.MULTILINE
)
_SPEC: Final = re.compile(r'[ \t]*(?:([\w.]+)[ \t]+)?"([^"\n]+)"[^\n)]*\n?')
_PACKAGE: Final = re.compile(r"^package[ \t]+\w+[^\n]*\n?", re.MULTILINE)
_NOT_CODE: Final = re.compile(
    r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|`[^`]*`?|\"(?:\\\\.|[^\"\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\n])*'?"
)
_USE: Final = re.compile(r"(?<![\w.])([a-z]\w*)\.[A-Z]")
_BOUND: Final = re.compile(r"\b([a-z]\w*)(?=[ \t]*(?::=|,|=[^=])|[ \t]+[\w*\[])")


def fix_go_imports(code: str) -> str:
    """Return the code without unused imports of standard packages, and with imports of those that it uses."""
    rest = _NOT_CODE.sub(" ", _IMPORT.sub("", code))
    used = {*_USE.findall(rest)}
    imported: set[str] = set()

    def keep(match: re.Match[str]) -> str:
        name = match[1] or match[2].rpartition("/")[2]
        is_unused = match[1] is None and _STANDARD.get(name) == match[2] and name not in used
        imported.add(name)
        return "" if is_unused else match[0]

    def clean(match: re.Match[str]) -> str:
        text = _SPEC.sub(keep, match[0].removeprefix("import"))
        return f"import{text}" if _SPEC.search(text) else ""

    cleaned = _IMPORT.sub(clean, code)
    missing = sorted(_STANDARD[name] for name in used - imported - {*_BOUND.findall(rest)} if name in _STANDARD)
    if not missing:
        return cleaned
    lines = "".join([f'import "{path}"\n' for path in missing])
    package = _PACKAGE.search(cleaned)
    at = package.end() if package else 0
    return f"{cleaned[:at]}\n{lines}{cleaned[at:]}" if package else lines + cleaned
