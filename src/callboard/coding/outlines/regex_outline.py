"""Find definitions and imports line by line, where there is no grammar.

Law: each expression is tried at the beginning of a line, and sees at most 300 characters of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LONGEST: Final = 300


def _expressions(*pairs: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(rf"\s*+{expression}")) for kind, expression in pairs)


_SCRIPT: Final = _expressions(
    ("func", r"(?:export\s+)?(?:default\s+)?(?:async\s+)?function\s*\*?\s*(\w+)"),
    ("class", r"(?:export\s+)?(?:default\s+)?(?:abstract\s+)?class\s+(\w+)"),
    (
        "func",
        r"(?:export\s+)?(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*(?::[^=]*)?=>|\w+\s*=>)",
    ),
    ("interface", r"(?:export\s+)?interface\s+(\w+)"),
    ("enum", r"(?:export\s+)?(?:const\s+)?enum\s+(\w+)"),
    ("type", r"(?:export\s+)?type\s+(\w+)[^=]*="),
)
_SYMBOLS: Final = {
    "python": _expressions(("func", r"(?:async\s+)?def\s+(\w+)"), ("class", r"class\s+(\w+)")),
    "go": _expressions(
        ("method", r"func\s*\([^)]*\)\s*(\w+)"),
        ("func", r"func\s+(\w+)"),
        ("struct", r"type\s+(\w+)\s+struct\b"),
        ("interface", r"type\s+(\w+)\s+interface\b"),
        ("type", r"type\s+(\w+)"),
    ),
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "tsx": _SCRIPT,
    "rust": _expressions(
        ("func", r"(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)"),
        ("struct", r"(?:pub(?:\([^)]*\))?\s+)?struct\s+(\w+)"),
        ("enum", r"(?:pub(?:\([^)]*\))?\s+)?enum\s+(\w+)"),
        ("trait", r"(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?trait\s+(\w+)"),
        ("type", r"(?:pub(?:\([^)]*\))?\s+)?type\s+(\w+)"),
        ("macro", r"macro_rules!\s*(\w+)"),
    ),
    "java": _expressions(
        ("class", r"(?:(?:public|protected|private|static|final|abstract|sealed)\s+)*class\s+(\w+)"),
        ("interface", r"(?:(?:public|protected|private|static|sealed)\s+)*@?interface\s+(\w+)"),
        ("enum", r"(?:(?:public|protected|private|static)\s+)*enum\s+(\w+)"),
        ("record", r"(?:(?:public|protected|private|static|final)\s+)*record\s+(\w+)\s*\("),
        ("method", r"(?:(?:public|protected|private|static|final|abstract|synchronized)\s+)+[\w<>\[\],.]+\s+(\w+)\s*\("),
    ),
    "c": _expressions(
        ("macro", r"#\s*define\s+(\w+)"),
        ("struct", r"(?:typedef\s+)?struct\s+(\w+)\s*\{"),
        ("enum", r"(?:typedef\s+)?enum\s+(\w+)\s*\{"),
        ("func", r"(?!return\b|else\b)(?:\w+[\s*]+){1,6}(\w+)\s*\([^;]*$"),
    ),
}  # fmt: skip
_IMPORTS: Final = {
    "python": re.compile(r"\s*+(?:import|from)\s"),
    "go": re.compile(r'\s*+(?:import\s+)?(?:[\w.]+\s+)?"[\w./~-]+"\s*$'),
    "rust": re.compile(r"\s*+(?:pub\s+)?(?:use|extern\s+crate)\s"),
    "java": re.compile(r"\s*+import\s"),
    "c": re.compile(r"\s*+#\s*include\b"),
    **dict.fromkeys(
        ("javascript", "typescript", "tsx"),
        re.compile(r"\s*+(?:import\b|export\b[^'\"]*\bfrom\b|(?:const|let|var)\b[^=]*=\s*require\()"),
    ),
}


def find_symbols(text: str, language: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind and name of each line that looks like a definition."""
    for number, line in enumerate(text.split("\n"), 1):
        for kind, expression in _SYMBOLS[language]:
            if match := expression.match(line[:_LONGEST]):
                yield number, kind, match[1]
                break


def find_imports(text: str, language: str) -> list[int]:
    """The numbers of lines that look like imports."""
    expression = _IMPORTS[language]
    return [number for number, line in enumerate(text.split("\n"), 1) if expression.match(line[:_LONGEST])]
