"""Replace functions, classes, constants and tests of a file by those of the same names in a piece of code.

A model writes only what changes, as a code block. Definitions that the file does not have are appended, and missing
imports are added. Law: what the code does not name stays as it is; code that leaves parts out ("... rest unchanged")
is refused.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from callboard.coding.edits.result import EditRefused
from callboard.coding.outlines import Symbol, find_syntax_error
from callboard.coding.outlines.languages import find_language
from callboard.coding.outlines.parser import parse

_ELIDED: Final = re.compile(
    r"^\s*(?:#|//|/\*|--)?\s*(?:\.\.\.|…|(?:the )?rest of|(?:\.\.\. ?)?(?:existing|remaining|other|previous) (?:code|functions|methods|imports|tests)"
    r"|same as (?:before|above)|unchanged|your code here)\b.{0,60}$",
    re.IGNORECASE | re.MULTILINE,
)
_START: Final = re.compile(r"[\w@/#]|\s+(?:@|def |async def )")
MAX_CUT: Final = 20
"""Places where the code is cut to see whether the part above parses."""
_CONSTANT: Final = re.compile(
    r"(?:export\s+)?(?:const\s+|let\s+|var\s+|final\s+)?([A-Za-z_]\w*)\s*(?::[^=\n]{1,80})?=[^=]"
)
_GATHERS: Final = frozenset({"__init__", "index", "mod", "lib"})
"""Stems of files that may hold nothing but imports."""
_TESTING: Final = re.compile(r"(?:test|it|describe)(?:\.\w+)?\(\s*([\"'`])(.{1,200}?)\1")


class TopLevelItem(NamedTuple):
    """A statement at the top of a text, or a method."""

    start: int
    """The first line, from 0, with the comments right above it."""
    bare: int
    """The first line without these comments."""
    end: int
    """The line behind the last."""
    names: tuple[str, ...]
    """What it defines."""
    inner: tuple[TopLevelItem, ...] = ()
    """The methods of a class."""
    is_import: bool = False


def replace_definitions(text: str, code: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Put the code's definitions into the text; return the new text and the names. Raises EditRefused."""
    code = textwrap.dedent(code).strip("\n") + "\n"
    if elided := _ELIDED.search(code):
        raise EditRefused(f"the code leaves something out: {elided[0].strip()!r}; write all of the function")
    pieces = _parse_items(code, path)
    if not text.strip():
        if pieces and all(piece.is_import for piece in pieces) and PurePosixPath(path).stem not in _GATHERS:
            raise EditRefused("the code is nothing but imports: write whole functions, or the whole file")
        return _check_syntax(code, "", path), tuple(name for piece in pieces for name in piece.names)
    if not any(piece.names for piece in pieces):
        _check_syntax(code, "", path)
        raise EditRefused("the code defines nothing: write whole functions, or the whole file")
    lines, new = text.splitlines(keepends=True), code.splitlines(keepends=True)
    old = _parse_items(text, path)
    existing = {name: piece for piece in old for name in piece.names}
    methods = {inner.names[0]: inner for piece in old for inner in piece.inner}
    edits: list[tuple[int, int, str]] = []
    added: list[str] = []
    names: list[str] = []
    for piece in pieces:
        body = "".join(new[piece.start : piece.end])
        if piece.is_import:
            if body.strip() not in text:
                at = max([each.end for each in old if each.is_import], default=_import_position(lines, old))
                edits.append((at, at, body))
            continue
        if not piece.names:
            continue
        target = next((existing[name] for name in piece.names if name in existing), None)
        if (
            target is not None
            and piece.inner
            and {each.names[0] for each in target.inner} - {each.names[0] for each in piece.inner}
        ):
            # A class of which only some methods were written: the others stay.
            for inner in piece.inner:
                _put_method(inner, new, target, lines, edits)
        elif target is not None:
            edits.append((target.bare if piece.start == piece.bare else target.start, target.end, body))
        elif len(piece.names) == 1 and (method := _find_method(methods, piece.names[0])) is not None:
            edits.append((method.start, method.end, _indent_like(body, lines[method.start])))
        else:
            added.append(body)
        names += piece.names
    if not names:
        raise EditRefused("the code defines nothing: write whole functions, or the whole file")
    last = {(start, end): body for start, end, body in edits if start < end}
    inserted = [(start, end, body) for start, end, body in edits if start == end]
    for start, end, body in sorted(
        [*inserted, *((*target, body) for target, body in last.items())], key=lambda edit: edit[:2], reverse=True
    ):
        lines[start:end] = [body if body.endswith("\n") else f"{body}\n"]
    gap = "\n\n\n" if path.endswith(".py") else "\n\n"
    changed = gap.join([each.strip("\n") for each in ("".join(lines), *added)]) + "\n"
    return _check_syntax(changed, text, path), tuple(names)


def remove_tests(code: str, path: str, failed: Collection[str]) -> str:
    """The code without the tests among `failed`, which are named as runners do: `test_a[1]`, `TestA.test_b`, `A > b`."""
    code = textwrap.dedent(code)
    lines = code.splitlines(keepends=True)
    gone: list[tuple[int, int]] = []
    for piece in _parse_items(code, path):
        inner = [(each.start, each.end) for each in piece.inner if _is_named(each.names, failed)]
        whole = _is_named(piece.names, failed) or 0 < len(inner) == len(piece.inner)
        gone += [(piece.start, piece.end)] if whole else inner
    for start, end in reversed(gone):
        del lines[start:end]
    return "".join(lines).rstrip() + "\n"


def cut_broken_end(code: str, path: str) -> str:
    """Cut the code behind its last whole definition if the rest does not parse, as in a reply that was cut off."""
    lines = code.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    for end in [len(lines), *reversed(starts[-MAX_CUT:])]:
        text = "".join(lines[:end]).rstrip()
        if find_syntax_error(f"{text}\n", path) is None:
            return f"{text}\n" if text else code
    return code


def _is_named(names: Collection[str], failed: Collection[str]) -> bool:
    """Whether a runner's name means one of these definitions: in a group or a class, with parameters or a subtest."""
    plain = {name.removeprefix("test ") for name in names}
    return any(
        each == name or each.endswith((f" {name}", f".{name}", f":{name}")) or each.startswith((f"{name}[", f"{name}/"))
        for each in (*failed, *(each.partition("[")[0] for each in failed))
        for name in plain
    )


def list_definitions(code: str, path: str) -> tuple[str, ...]:
    """The names that a piece of code defines, in the language of the path."""
    return tuple(name for piece in _parse_items(textwrap.dedent(code), path) for name in piece.names)


def _put_method(
    inner: TopLevelItem, new: list[str], place: TopLevelItem, lines: list[str], edits: list[tuple[int, int, str]]
) -> None:
    body = "".join(new[inner.start : inner.end])
    known = {each.names[0]: each for each in place.inner}
    if (old := known.get(inner.names[0])) is not None:
        edits.append((old.start, old.end, _indent_like(body, lines[old.start])))
    elif place.inner:
        last = place.inner[-1]
        edits.append((last.end, last.end, "\n" + _indent_like(body, lines[last.start])))


def _find_method(methods: dict[str, TopLevelItem], name: str) -> TopLevelItem | None:
    """The method of that name, with or without its class, if there is only one."""
    if name in methods:
        return methods[name]
    matches = [piece for path, piece in methods.items() if path.rpartition(".")[2] == name.rpartition(".")[2]]
    return matches[0] if len(matches) == 1 else None


def _indent_like(body: str, like: str) -> str:
    return textwrap.indent(textwrap.dedent(body), like[: len(like) - len(like.lstrip())])


def _check_syntax(changed: str, before: str, path: str) -> str:
    line = find_syntax_error(changed, path)
    if line is not None and find_syntax_error(before, path) is None:
        shown = changed.splitlines()[line - 1 : line + 1]
        raise EditRefused(f"with this code there would be a syntax error at line {line}: {' | '.join(shown)[:200]}")
    return changed


def _import_position(lines: list[str], pieces: tuple[TopLevelItem, ...]) -> int:
    """The index where the first import belongs: before the first definition and the blank lines above it."""
    first = min([piece.start for piece in pieces if piece.names], default=len(lines))
    while first and not lines[first - 1].strip():
        first -= 1
    return first


def _parse_items(text: str, path: str) -> tuple[TopLevelItem, ...]:
    """The statements at the top of a text; nothing where there is no grammar for it."""
    language = find_language(path)
    if language is None:
        raise EditRefused("code is put only into files of a known language; write the whole file with write_file")
    parsed = parse(text, language)
    if parsed is None:
        raise EditRefused(f"the {language.name} could not be parsed; write the whole file with write_file")
    lines = text.splitlines()
    imports = {number - 1 for number in parsed.imports}
    pieces: list[TopLevelItem] = []
    for kind, start, end in parsed.statements:
        if kind == "comment" or start >= len(lines):
            continue
        symbols = [each for each in parsed.symbols if start <= each.line - 1 < end]
        names = tuple(dict.fromkeys(each.path for each in symbols if not each.scope or language.name == "go"))
        inner = tuple(_find_methods(symbols, lines, start))
        first = "\n".join(lines[start:end])
        if not names and (testing := _TESTING.match(first)):
            names = (f"test {testing[2]}",)
        if not names and start not in imports and (constant := _CONSTANT.match(first)):
            names = (constant[1],)
        pieces.append(
            TopLevelItem(_include_comments(start, lines), start, end, names, inner, start in imports and not names)
        )
    return tuple(pieces)


def _find_methods(symbols: list[Symbol], lines: list[str], start: int) -> Iterator[TopLevelItem]:
    """The methods of a class that begins at `start`, with their decorators."""
    for symbol in symbols:
        line = symbol.line - 1
        if symbol.scope and symbol.kind in ("method", "func") and line != start and "." not in symbol.scope:
            first = line
            while first > start + 1 and lines[first - 1].lstrip().startswith("@"):
                first -= 1
            yield TopLevelItem(first, line, symbol.end, (symbol.path,))


def _include_comments(start: int, lines: list[str]) -> int:
    """Where a statement begins, with the comments right above it."""
    while start and lines[start - 1].lstrip().startswith(("#", "//")) and not lines[start - 1].startswith("#!"):
        start -= 1
    return start
