"""Replace functions, classes, constants and tests of a file by definitions with the same names in a piece of code.

A model writes only what changes, as a code block. Laws: afterwards the file has every statement of the code, and every
old statement that the code does not define again. If that is impossible, the code is refused.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from callboard.coding.edits.imports import drop_self_imports
from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.outlines import find_syntax_error
from callboard.coding.outlines.languages import GUARD, Language, ParsedText, Statement, find_language
from callboard.coding.outlines.parser import parse

_START: Final = re.compile(r"[\w@/#]|\s+(?:@|def |async def )")
MAX_CUT: Final = 20
"""Places where the code is cut to see whether the part above parses."""
_GATHERS: Final = frozenset({"__init__", "index", "mod", "lib"})
"""Stems of files that may hold nothing but imports."""
_ARGUMENTS: Final = ("(", "[", "`")
HEAD: Final = ("import", "head")
_METHOD: Final = re.compile(r"@(?:static|class)method\b|\bdef \w+\(\s*(?:self|cls)\b|\bfn\b.*\(\s*&?(?:mut )?self\b")
"""Signs that a function is a method."""
_DEFINITION: Final = re.compile(
    r"\s*+(?:(?:[\w()]+\s+){0,6}?(?:def|class|func|function|fn|struct|enum|trait|type|interface|record|macro_rules!)"
    r"[\s*]+(?:\([^)]*\)\s*)?(\w+)|(?:export\s+)?(?:const|let|var)\s+(\w+)\s*="
    r"|(?!(?:return|else|elif|if|for|while|assert|yield|await)\b)(?:[\w<>\[\],.]+[\s*]+){1,6}(\w+)\s*\([^;]*$)"
)
"""The beginning of a line that looks like a definition in any language, with its name."""
_EXPORTS: Final = ("export ", "module.exports", "exports.")
_HEADER_WORD: Final = re.compile(r"[^\s,(){}:]+")


def replace_definitions(text: str, code: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Put the code's definitions into the text; return the new text and the names. Raises EditRefused."""
    code = dedent_code(code.removeprefix("\ufeff")).strip("\n") + "\n"
    old, new = parse_code(text, path), parse_code(code, path)
    known = {gap.text for gap in old.gaps}
    if gap := next((each for each in new.gaps if each.text not in known), None):
        raise EditRefused(
            f"the code leaves something out at line {gap.line}: {gap.text[:80]!r}; write the whole definition"
        )
    code = drop_self_imports(_check_syntax(code, path), path, new.statements, old.statements)
    statements = parse_code(code, path).statements
    defined = [each for each in statements if each.names and each.kind not in HEAD]
    names = tuple(dict.fromkeys(name for each in defined for name in each.names))
    if not text.strip():
        if (
            statements
            and all(each.kind == "import" for each in statements)
            and PurePosixPath(path).stem not in _GATHERS
        ):
            raise EditRefused("the code is nothing but imports: write whole functions, or the whole file")
        return code, names
    if not defined:
        raise EditRefused("the code defines nothing: write whole functions, or the whole file")
    try:
        return _check_syntax(_Merge(text, code, path).run(old.statements, statements), path), names
    except EditRefused:
        # The parser does not find the statements of a broken file. The code may be the whole file.
        if old.broken is None or not _definition_names(text) <= _definition_names(code):
            raise
        return code, names


def _definition_names(text: str) -> set[str]:
    """Return names in lines that look like definitions; rather too many, so that a broken file loses nothing."""
    matches = [_DEFINITION.match(line[:300]) for line in text.split("\n")]
    return {match[match.lastindex or 0] for match in matches if match}


class _Edit(NamedTuple):
    """Rows of a text, and the lines that take their place."""

    start: int
    end: int
    lines: list[str]


class _Merge:
    """One piece of code that is put into one text."""

    def __init__(self, text: str, code: str, path: str) -> None:
        self._old, self._new = text.split("\n"), code.split("\n")
        self._path, self._language = path, _language(path).name
        self._edits: list[_Edit] = []
        self._imported: set[str] = set()

    def run(self, old: list[Statement], new: list[Statement]) -> str:
        self._put(old, self._put_methods(old, new), len(self._old) - (not self._old[-1]))
        # Those at one row stay in their order.
        for _, edit in sorted(enumerate(self._edits), key=lambda each: (each[1][:2], each[0]), reverse=True):
            self._old[edit.start : edit.end] = self._separate(edit)
        return "\n".join(self._old) + "\n" * bool(self._old[-1])

    def _put(self, old: list[Statement], new: list[Statement], end: int, indent: str = "") -> None:
        """Put statements into a text or class. A new statement follows the statement that it follows in the code."""
        behind: Statement | None = None
        waiting: list[Statement] = []
        for piece, targets in zip(new, self._match(old, new), strict=True):
            if piece.kind in HEAD:
                self._put_head(piece, old, targets, end, indent)
            elif targets:
                self._replace(targets, piece)
                for each in waiting:
                    self._insert(targets[0].lead, each, indent, below=targets[0])
                waiting, behind = [], targets[-1] if GUARD not in piece.names else None
            elif behind is not None:
                self._insert(behind.end, piece, indent, above=behind)
            elif piece.kind != "pass_statement":
                waiting.append(piece)
        tail = _find_tail(old, is_named=bool(waiting and waiting[0].names))
        last = old[-1] if old else None
        for piece in waiting:
            if tail is not None:
                self._insert(tail.lead, piece, indent, below=tail)
            else:
                self._insert(last.end if last is not None else end, piece, indent, above=last)

    def _separate(self, edit: _Edit) -> list[str]:
        """Return the lines, with a semicolon where JavaScript would take one statement for the arguments of another."""
        lines = [*edit.lines]
        if self._language in ("javascript", "typescript", "tsx") and any(map(str.strip, lines)):
            first = next(at for at, line in enumerate(lines) if line.strip())
            last = next(at for at in reversed(range(len(lines))) if lines[at].strip())
            above = next((line.strip() for line in reversed(self._old[: edit.start]) if line.strip()), ";")
            below = next((line.strip() for line in self._old[edit.end :] if line.strip()), "")
            if lines[first].startswith(_ARGUMENTS) and not above.endswith((";", "{", "}", ",")):
                lines[first] = f";{lines[first]}"
            if below.startswith(_ARGUMENTS) and not lines[last].endswith(";"):
                lines[last] = f"{lines[last]};"
        return lines

    def _match(self, old: list[Statement], new: list[Statement]) -> list[list[Statement]]:
        """For each new statement those that it takes the place of."""
        before, after = self._index(old, self._old), self._index(new, self._new)
        matches: list[list[Statement]] = []
        for piece in new:
            targets: list[Statement] = []
            for key in [] if piece.kind == "import" else self._keys(piece, self._new):
                there, number = before[key], after[key].index(piece)
                if there and piece.names and len(there) != len(after[key]):
                    there = [each for each in there if self._text(each, self._old) == self._text(piece, self._new)]
                    number = 0
                    if not there:
                        lines = ", ".join(str(each.start + 1) for each in before[key])
                        raise EditRefused(
                            f"{key} is {len(after[key])} times in the code, but {len(before[key])} times in the file, at "
                            f"lines {lines}: write it as often as the file has it"
                        )
                targets += [each for each in there[number : number + 1] if each not in targets]
            matches.append(sorted(targets, key=lambda each: each.start))
        return matches

    def _index(self, statements: list[Statement], lines: list[str]) -> dict[str, list[Statement]]:
        index: dict[str, list[Statement]] = defaultdict(list)
        for each in statements:
            for key in [] if each.kind == "import" else self._keys(each, lines):
                index[key].append(each)
        return index

    def _keys(self, statement: Statement, lines: list[str]) -> Sequence[str]:
        return statement.names or (self._text(statement, lines),)

    def _replace(self, targets: list[Statement], piece: Statement) -> None:
        target = targets[0]
        if len(targets) == 1 and self._text(target, self._old) == self._text(piece, self._new):
            return
        where = f"{piece.names[0] if piece.names else 'it'}, at line {target.start + 1} of the file"
        if piece.is_stub and not target.is_stub:
            raise EditRefused(f"the code leaves the body of {where}, out; write the whole definition")
        missing = {name for each in targets for name in each.all_names} - {*piece.all_names}
        if len(targets) == 1 and target.inner and piece.inner:
            self._put_header(target, piece, where, is_whole=not missing)
            first = target.members[0].start if target.members else target.start
            step = "" if target.members else _indent(self._new[piece.members[0].start]) if piece.members else ""
            indent = _indent(self._old[first]) + step
            self._put(target.members, piece.members, target.inner, indent)
            return
        if missing or any((each.kind == "compound") != (piece.kind == "compound") for each in targets):
            also = f" with {', '.join(sorted(missing)[:5])}" if missing else ""
            raise EditRefused(f"{where}, is part of one statement{also}: write all of that statement")
        start = target.start if piece.lead == piece.start else target.lead
        self._edits.append(_Edit(start, target.end, self._lines(piece, _indent(self._old[target.start]))))
        self._edits += [_Edit(each.lead, each.end, []) for each in targets[1:]]

    def _put_header(self, target: Statement, piece: Statement, where: str, *, is_whole: bool) -> None:
        """Put the lines above a class's members, unless they only leave out decorators or bases."""
        old, new = self._old[target.start : target.header], self._new[piece.start : piece.header]
        if "".join("".join(old).split()) == "".join("".join(new).split()):
            return
        before, after = set(_HEADER_WORD.findall(" ".join(old))), set(_HEADER_WORD.findall(" ".join(new)))
        if is_whole or after > before:
            self._edits.append(_Edit(target.start, target.header, _reindent(new, _indent(old[0]))))
        elif not after <= before:
            raise EditRefused(f"the code begins {where}, in another way: write it as {' '.join(old).strip()[:200]!r}")

    def _put_head(
        self, piece: Statement, old: list[Statement], targets: list[Statement], end: int, indent: str
    ) -> None:
        """Put an import, or what a file or class begins with."""
        lines, names = self._lines(piece, indent), [*piece.names]
        above = takewhile(lambda each: each.kind in HEAD or not each.names or each.end - each.start == 1, old)
        section = [each for each in above if each.kind in HEAD]
        if piece.kind == "head":
            if targets and self._text(targets[0], self._old) != self._text(piece, self._new):
                if names == ["package"]:
                    raise EditRefused(f"the file has {self._text(targets[0], self._old)!r}, not {lines[-1].strip()!r}")
                self._edits.append(_Edit(targets[0].start, targets[0].end, lines))
            if targets:
                return
            section = []
        else:
            known = {name for each in old if each.kind == "import" for name in each.names} | self._imported
            missing = [name for name in names if name not in known]
            if not missing:
                return
            if len(missing) < len(names) and self._language != "python":
                lines = self._import_only(missing, lines)
            self._imported.update(missing)
            if all(name.endswith(" from __future__") for name in names):
                section = [each for each in section if each.names == ["docstring"]]
        if section:
            gap = [""] * (section[-1].kind == "head")
            self._edits.append(_Edit(section[-1].end, section[-1].end, [*gap, *lines]))
        elif old:
            # A comment that the file begins with is about the file.
            is_free = any(line.strip() and not line.startswith("#!") for line in self._old[: old[0].lead])
            row = old[0].lead if indent or is_free or old[0].lead == old[0].start else old[0].start
            self._edits.append(_Edit(row, row, [*lines, *self._gap(indent, is_large=old[0].kind not in HEAD)]))
        else:
            self._edits.append(_Edit(end, end, lines))

    def _import_only(self, missing: list[str], lines: list[str]) -> list[str]:
        """Those names of an import that are not imported yet; an import of the same name twice is an error."""
        if self._language == "go":
            return ["import (", *(f"\t{name}" for name in missing), ")"]
        names, modules = zip(*[name.rsplit(" from ", 1) for name in missing], strict=True)
        first = next(line for line in lines if re.match(r"\s*(?:import|const|let|var)\b", line)).strip()
        if any(name.startswith("default ") for name in names):
            raise EditRefused(
                f"{first[:80]!r} imports some names again: write only those that the file does not import"
            )
        if not first.startswith("import"):
            return [f"{first.split()[0]} {{ {', '.join(names)} }} = require('{modules[0]}');"]
        return [f"import {'type ' * first.startswith('import type')}{{ {', '.join(names)} }} from '{modules[0]}';"]

    def _put_methods(self, old: list[Statement], new: list[Statement]) -> list[Statement]:
        """Put the methods that the code has without their class; give the other statements."""
        top = {name for each in old for name in each.names}
        methods: dict[str, list[Statement]] = defaultdict(list)
        stack = [*old]
        while stack:
            each = stack.pop()
            stack += each.members
            for name in [name for member in each.members for name in member.names]:
                methods[name] += [member for member in each.members if name in member.names]
        others, done = [], set()
        for piece in new:
            is_java = self._language == "java" and piece.kind.startswith(("method", "constructor"))
            text = self._text(piece, self._new)
            if (
                len(piece.names) != 1
                or piece.names[0] in top
                or not (is_java or _METHOD.search(text.partition("\n\n")[0]))
            ):
                others.append(piece)
                continue
            targets = methods[piece.names[0]]
            if len(targets) != 1 and (targets or is_java):
                raise EditRefused(f"{len(targets)} classes have a method {piece.names[0]}: write it within its class")
            if not targets:
                others.append(piece)
            elif piece.names[0] in done:
                self._insert(targets[0].end, piece, _indent(self._old[targets[0].start]), above=targets[0])
            else:
                done.add(piece.names[0])
                self._replace(targets, piece)
        return others

    def _insert(
        self, row: int, piece: Statement, indent: str, *, above: Statement | None = None, below: Statement | None = None
    ) -> None:
        other = above or below
        is_large = piece.end - piece.start > 1 or (other is not None and other.end - other.start > 1)
        gap = self._gap(indent, is_large=is_large and other is not None)
        lines = self._lines(piece, indent)
        self._edits.append(_Edit(row, row, [*gap, *lines] if above is not None else [*lines, *gap]))

    def _gap(self, indent: str, *, is_large: bool) -> list[str]:
        return [""] * (is_large * (2 if self._language == "python" and not indent else 1))

    def _lines(self, piece: Statement, indent: str) -> list[str]:
        return _reindent(self._new[piece.lead : piece.end], indent)

    def _text(self, statement: Statement, lines: list[str]) -> str:
        """Return the text of a statement without its comments and indentation."""
        return "\n".join(_reindent([line.rstrip() for line in lines[statement.start : statement.end]], ""))


def _find_tail(old: list[Statement], *, is_named: bool) -> Statement | None:
    """Find the statement before which to insert: a script's guard, or code that runs or exports definitions."""
    at = next((at for at, each in enumerate(old) if GUARD in each.names), len(old))
    tail = old[at] if at < len(old) else None
    for each in reversed(old[:at]) if is_named else ():
        if each.kind in HEAD or any(not name.startswith(_EXPORTS) for name in each.names):
            break
        tail = each
    return tail


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _reindent(lines: list[str], indent: str) -> list[str]:
    """Replace the indentation of the first line in all lines; lines without that indentation stay."""
    old = _indent(next((line for line in lines if line.strip()), ""))
    return [indent + line[len(old) :] if line.strip() and line.startswith(old) else line for line in lines]


def dedent_code(code: str) -> str:
    """Return the code without the indentation that all of it has."""
    return textwrap.dedent(code) if code.lstrip("\n")[:1] in (" ", "\t") else code


def _language(path: str) -> Language:
    language = find_language(path)
    if language is None:
        raise EditRefused("code is put only into files of a known language; write the whole file with write_file")
    return language


def parse_code(text: str, path: str) -> ParsedText:
    """Return the statements of a text. Raises EditRefused if there is no grammar for it."""
    language = _language(path)
    parsed = parse(text, language)
    if parsed is None:
        raise EditRefused(f"the {language.name} could not be parsed; write the whole file with write_file")
    return parsed


def _check_syntax(code: str, path: str) -> str:
    """Return the code unchanged. Raises EditRefused for a syntax error."""
    if (line := find_syntax_error(code, path)) is not None:
        shown = code.split("\n")[line - 1 : line + 1]
        raise EditRefused(f"with this code there would be a syntax error at line {line}: {' | '.join(shown)[:200]}")
    return code


def cut_broken_end(code: str, path: str) -> str:
    """Cut the code after its last whole definition if the rest does not parse, as in a reply that was cut off."""
    lines = code.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    for end in [len(lines), *reversed(starts[-MAX_CUT:])]:
        text = "".join(lines[:end]).rstrip()
        if find_syntax_error(f"{text}\n", path) is None:
            return f"{text}\n" if text else code
    return code


def list_definitions(code: str, path: str) -> tuple[str, ...]:
    """Return the names that a piece of code defines, in the language of the path."""
    statements = parse_code(dedent_code(code), path).statements
    return tuple(name for each in statements if each.kind not in HEAD for name in each.names)
