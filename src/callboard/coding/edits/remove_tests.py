"""Remove tests that fail: one assertion, one row of a table, or the whole test.

Laws: what remains has no new syntax error, and a test keeps at least one assertion. The work is linear in the code for
each failure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from callboard.coding.edits.replace_definitions import HEAD, dedent_code, parse_code
from callboard.coding.outlines import find_syntax_error

_ASSERTION: Final = re.compile(r"\s*(?:(?:await\s+)?(?:assert\b|expect\()|self\.assert\w+\()")
_CLOSINGS: Final = ("", "});\n", "  });\n});\n")
"""Ends of a test after its last assertion."""
_GOES_ON: Final = ("(", "[", "{", ",", "\\", "=>")
"""Ends of a line whose statement continues on the next line."""
_BRACES: Final = re.compile(r"[{}]")


class _Test(NamedTuple):
    names: list[str]
    start: int
    """Its first row, with the comments and decorators above it."""
    end: int
    """The row after its last."""


def remove_failures(code: str, path: str, failed: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Remove what failed, and return the code and a description of each removed part.

    `failed` has the runners' names of the tests, with the line that failed, "" if unknown.
    """
    code = dedent_code(code)
    whole, removed = [], []
    for name, line in failed.items():
        if smaller := _remove_assertion(code, path, name, line.strip()):
            code = smaller
            removed.append(f"{name}: {line.strip()}")
        elif smaller := _remove_row(code, path, name):
            code = smaller
            removed.append(name)
        else:
            whole.append(name)
    return remove_tests(code, path, whole), (*removed, *whole)


def remove_tests(code: str, path: str, failed: Collection[str]) -> str:
    """Remove the tests in `failed`, which have runners' names: `test_a[1]`, `TestA.test_b`, `A > b`."""
    code = dedent_code(code)
    lines = code.split("\n")
    gone: list[tuple[int, int]] = []
    for each in parse_code(code, path).statements:
        scope = f"{each.names[0]}." if each.names else ""
        inner = [
            (member.lead, member.end)
            for member in each.members
            if _is_named([name if name.startswith("test ") else scope + name for name in member.names], failed)
        ]
        tests = [member for member in each.members if member.names and member.kind not in HEAD]
        whole = _is_named(each.names, failed) or 0 < len(inner) == len(tests)
        gone += [(each.lead, each.end)] if whole else inner
    for start, end in reversed(gone):
        del lines[start:end]
    return "\n".join(lines).rstrip() + "\n"


def cut_after_assertion(code: str, path: str) -> str:
    """Return tests up to the last whole assertion, closed, as in a reply that was cut off; "" if that does not parse."""
    lines = code.split("\n")
    rows = [
        row for row, line in enumerate(lines[:-1]) if _ASSERTION.match(line) and not line.rstrip().endswith(_GOES_ON)
    ]
    row = rows[-1] if rows else -1
    texts = ["\n".join([*lines[: row + 1], closing]) for closing in _CLOSINGS] if row >= 0 else []
    return next((text for text in texts if find_syntax_error(text, path) is None), "")


def _remove_assertion(code: str, path: str, name: str, line: str) -> str:
    """Remove an assertion from a test that has others; "" if that is not possible."""
    if not _ASSERTION.match(line):
        return ""
    lines = code.split("\n")
    for test in _list_tests(code, path):
        rows = [row for row in range(test.start, test.end) if _ASSERTION.match(lines[row])]
        failed = [row for row in rows if lines[row].strip() == line]
        if len(failed) == 1 and len(rows) > 1 and _is_named(test.names, [name]):
            smaller = "\n".join([*lines[: failed[0]], *lines[failed[0] + 1 :]])
            return "" if find_syntax_error(smaller, path) else smaller
    return ""


def _list_tests(code: str, path: str) -> Iterator[_Test]:
    for each in parse_code(code, path).statements:
        if each.members:
            for member in each.members:
                yield _Test([f"{each.names[0]}.{name}" for name in member.names], member.lead, member.end)
        else:
            yield _Test(each.names, each.lead, each.end)


def _remove_row(code: str, path: str, name: str) -> str:
    """Remove the row of a subtest such as `TestAdd/two_numbers` from a table in braces; "" if it is not found."""
    words = [re.escape(word) for word in name.partition("/")[2].split("_")]
    literal = re.search(rf"""(["'`]){"[ _]".join(words)}\1(\s*:\s*\{{)?""", code) if any(words) else None
    if literal is None:
        return ""
    start = literal.start() if literal[2] else _find_brace(code, literal.start())
    end = _find_end(code, literal.end(), 1)
    if start < 0 or end < 0:
        return ""
    after = re.match(r"\s*,?[ \t]*\n?", code[end:])
    smaller = code[:start].rstrip(" \t") + code[end + (after.end() if after else 0) :]
    return "" if find_syntax_error(smaller, path) else smaller


def _find_brace(code: str, end: int) -> int:
    """Return where the brace around a position opens, -1 if there is none."""
    depth = 0
    for match in reversed([*_BRACES.finditer(code, 0, end)]):
        depth += 1 if match[0] == "}" else -1
        if depth < 0:
            return match.start()
    return -1


def _find_end(code: str, start: int, depth: int) -> int:
    """Return where so many open braces have closed, -1 if they do not."""
    for match in _BRACES.finditer(code, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return -1


def _is_named(names: Collection[str], failed: Collection[str]) -> bool:
    """Whether a runner's name means one of these definitions: in a group or a class, with parameters or a subtest."""
    plain = {name.removeprefix("test ") for name in names}
    return any(
        each == name or each.endswith((f" {name}", f".{name}", f":{name}")) or each.startswith((f"{name}[", f"{name}/"))
        for each in (*failed, *(each.partition("[")[0] for each in failed))
        for name in plain
    )
