"""Parse patches: those between `*** Begin Patch` and `*** End Patch`, as GPT models write them, and unified diffs.

In the former files are added, updated, moved and deleted; hunks have no numbers and are found by their lines and by the line above
them (`@@ def act():`). Text around the two marks is ignored.

A unified diff is first read by the counts in its headers, as programs mean it; if these are wrong or missing, by its lines.
Line numbers may be wrong, `a/` and `b/` may be missing, and so may the lines before the first `@@` if the caller names
the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from callboard.coding.edits.hunks import NO_END, FilePatch, Hunk, parse_hunk_lines
from callboard.coding.edits.text_edits import EditRefused

_HEADER: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@.*", re.ASCII)
_LOOSE: Final = re.compile(r"@@(?:\s*-(\d{1,9}))?.*", re.ASCII)
_SIGNED: Final = "-- "
"""The line above the signature of a mail."""
_NOWHERE: Final = "/dev/null"
_GIT: Final = "diff --git "
_ESCAPED: Final = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_CHARACTERS: Final = dict(zip("abtnvfr", "\a\b\t\n\v\f\r", strict=True))


class _File(msgspec.Struct):
    """The parsed patch of one file."""

    old: str = ""
    new: str = ""
    renamed: str = ""
    target: str = ""
    begun: bool = False
    hunks: list[Hunk] = msgspec.field(default_factory=list)


class _Miscounted(Exception):
    """A hunk's counts do not fit its lines."""


def parse_unified_diff(text: str, path: str = "") -> list[FilePatch]:
    """Parse a diff; `path` is the file of hunks without one. Raises EditRefused."""
    lines = _remove_fence(text.split("\n"))
    try:
        files = _parse_files(lines, counted=True)
    except _Miscounted:
        files = _parse_files(lines, counted=False)
    patches = [_make_patch(each, path) for each in files if each.begun or each.target or each.new == _NOWHERE]
    if not patches:
        raise EditRefused("there is no hunk in the diff; a hunk begins with a line @@ -3,2 +3,4 @@")
    return patches


def _parse_files(lines: Sequence[str], *, counted: bool) -> list[_File]:
    files = [_File()]
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("@@"):
            files[-1].begun = True
            hunk, at = _parse_plain_hunk(lines, at, counted=counted)
            if hunk is not None:
                files[-1].hunks.append(hunk)
            continue
        if _is_file(lines, at):
            if files[-1].begun or files[-1].new:
                files.append(_File())
            files[-1].old, files[-1].new = _parse_name(lines[at][4:]), _parse_name(lines[at + 1][4:])
            at += 2
            continue
        if line.startswith(_GIT):
            files.append(_File())
        elif line.startswith("rename from "):
            files[-1].renamed = _parse_name(line.removeprefix("rename from "))
        elif line.startswith("rename to "):
            files[-1].target = _parse_name(line.removeprefix("rename to "))
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise EditRefused("the diff is of a binary file")
        elif counted and files[-1].hunks and line.startswith(("+", "-", " ")) and line != _SIGNED:
            raise _Miscounted
        at += 1
    return files


def _parse_plain_hunk(lines: Sequence[str], at: int, *, counted: bool) -> tuple[Hunk | None, int]:
    """Return the hunk (None if it has no lines) and the index of the line after it."""
    header = _HEADER.fullmatch(lines[at])
    if counted:
        if header is None:
            raise _Miscounted
        end = _find_counted_end(lines, at + 1, int(header[2] or 1), int(header[3] or 1))
    else:
        borders = (
            to for to in range(at + 1, len(lines)) if lines[to].startswith(("@@", _GIT, "```")) or _is_file(lines, to)
        )
        end = next(borders, len(lines))
    loose = _LOOSE.fullmatch(lines[at])
    number = int(loose[1]) if loose is not None and loose[1] else None
    body, ends = parse_hunk_lines(lines[at + 1 : end], at + 2)
    after = header is not None and header[2] == "0"
    return (Hunk(lines=body, number=number, after=after, ends=ends) if body else None), end


def _find_counted_end(lines: Sequence[str], at: int, old: int, new: int) -> int:
    """Return the index after a hunk of this many old and new lines."""
    while old or new:
        tag = lines[at][:1] if at < len(lines) else "?"
        if tag != NO_END:
            old -= tag != "+"
            new -= tag != "-"
        if tag not in ("", " ", "+", "-", NO_END) or old < 0 or new < 0:
            raise _Miscounted
        at += 1
    return at + 1 if at < len(lines) and lines[at].startswith(NO_END) else at


def _is_file(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _make_patch(read: _File, path: str) -> FilePatch:
    if read.old == _NOWHERE:
        (_, new) = _strip_prefixes("a/", read.new)
        content = "".join([line + "\n" for hunk in read.hunks for tag, line in hunk.lines if tag == "+"])
        ends = read.hunks[-1].ends[1] if read.hunks else True
        return FilePatch(kind="add", path=new or path, content=content if ends else content[:-1])
    if read.new == _NOWHERE:
        (old, _) = _strip_prefixes(read.old, "b/")
        return FilePatch(kind="delete", path=old)
    old, new = _strip_prefixes(read.old, read.new)
    if read.target:
        return FilePatch(kind="update", path=read.renamed or old, target=read.target, hunks=tuple(read.hunks))
    if old != new and not path:
        raise EditRefused(
            f"the diff names two files, {old} and {new}; to move one, write `rename from` and `rename to`"
        )
    if not (path or old):
        raise EditRefused("the diff does not say which file it is about; write --- a/PATH and +++ b/PATH above it")
    return FilePatch(kind="update", path=old if old == new and old else path, hunks=tuple(read.hunks))


def _strip_prefixes(old: str, new: str) -> tuple[str, str]:
    """Remove `a/` and `b/` if both paths have theirs, or the other path is the same without it."""
    if old.startswith("a/") and new.startswith("b/"):
        return old[2:], new[2:]
    return old.removeprefix("a/") if old == f"a/{new}" else old, new.removeprefix("b/") if new == f"b/{old}" else new


def _parse_name(text: str) -> str:
    """Return the path in a header: the text before a tab and a time, unquoted as git quotes."""
    text = text.partition("\t")[0].rstrip()
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    plain = _ESCAPED.sub(_unescape, text[1:-1])
    # Each escape is a byte; here it is the character of that number.
    return plain.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8) & 0xFF) if escaped.isdigit() else _CHARACTERS.get(escaped, escaped)


def _remove_fence(lines: list[str]) -> list[str]:
    """Blank out the code fence that a model puts around a diff; the lines keep their numbers."""
    fences = [at for at, line in enumerate(lines) if line.startswith("```")]
    if len(fences) > 1 and not any(line.strip() for line in lines[: fences[0]]):
        return ["", *[""] * fences[0], *lines[fences[0] + 1 : fences[-1]]]
    return lines


BEGIN: Final = "*** Begin Patch"
_END: Final = "*** End Patch"
_FILE: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MOVE: Final = "*** Move to: "
_LAST: Final = "*** End of File"
_NUMBERS: Final = re.compile(r"-(\d{1,9})(?:,(\d{1,9}))? \+\d+(?:,\d+)? ?@@(.*)", re.ASCII)


def parse_patch(text: str, path: str = "") -> list[FilePatch]:
    """Parse a patch in either format; `path` is for a unified diff that names no file. Raises EditRefused."""
    return parse_apply_patch(text) if BEGIN in text else parse_unified_diff(text, path)


def parse_apply_patch(text: str) -> list[FilePatch]:
    """Parse a patch. Raises EditRefused."""
    # Numbered as they are in all of the text.
    lines = [*enumerate(text.split("\n"), 1)]
    begin = next((at for at, (_, line) in enumerate(lines) if line.strip() == BEGIN), None)
    if begin is None:
        raise EditRefused(f"no line {BEGIN!r}")
    end = next((at for at, (_, line) in enumerate(lines) if at > begin and line.strip() == _END), len(lines))
    files: list[FilePatch] = []
    section: list[tuple[int, str]] = []
    header: re.Match[str] | None = None
    for number, line in lines[begin + 1 : end]:
        match = _FILE.fullmatch(line.rstrip())
        if match is not None:
            files += [_parse_file(header, section)] if header else []
            header, section = match, []
        elif header is not None:
            section.append((number, line))
        elif line.strip():
            raise EditRefused(
                f"line {number} of the patch stands in no file: {line[:80]!r}; write *** Update File: PATH"
            )
    files += [_parse_file(header, section)] if header else []
    if not files:
        raise EditRefused("the patch is about no file; write *** Update File: PATH")
    return files


def _parse_file(header: re.Match[str], section: list[tuple[int, str]]) -> FilePatch:
    path = header[2].strip()
    match header[1]:
        case "Add":
            return FilePatch(kind="add", path=path, content=_parse_content(section))
        case "Delete":
            if any(line.strip() for _, line in section):
                raise EditRefused(f"{path} is deleted, and the patch says more of it")
            return FilePatch(kind="delete", path=path)
    target = ""
    if section and section[0][1].startswith(_MOVE):
        target = section[0][1].removeprefix(_MOVE).strip()
        section = section[1:]
    return FilePatch(kind="update", path=path, target=target, hunks=tuple(_parse_hunks(section)))


def _parse_content(section: list[tuple[int, str]]) -> str:
    while section and not section[-1][1]:
        section = section[:-1]
    for number, line in section:
        if not line.startswith("+"):
            raise EditRefused(
                f"line {number} of the patch is in a new file, and does not begin with '+': {line[:80]!r}"
            )
    return "".join([line[1:] + "\n" for _, line in section])


def _parse_hunks(section: list[tuple[int, str]]) -> list[Hunk]:
    hunks: list[Hunk] = []
    heads: list[str] = []
    body: list[tuple[int, str]] = []

    def close(*, at_end: bool = False) -> None:
        if any(line for _, line in body):
            hunks.append(_parse_hunk(heads, body, at_end=at_end))
            heads.clear()
        body.clear()

    for number, line in section:
        if line.startswith("@@"):
            close()
            if head := line[2:].strip():
                heads.append(head)
        elif line.rstrip() == _LAST:
            close(at_end=True)
        else:
            body.append((number, line))
    close()
    return hunks


def _parse_hunk(heads: list[str], body: list[tuple[int, str]], *, at_end: bool) -> Hunk:
    lines, ends = parse_hunk_lines([line for _, line in body], body[0][0])
    number, after, text_heads = None, False, []
    for head in heads:
        # Some mix the formats.
        numbers = _NUMBERS.fullmatch(head)
        if numbers is None:
            text_heads.append(head.removesuffix("@@").strip())
        else:
            number, after = int(numbers[1]), numbers[2] == "0"
    return Hunk(lines=lines, number=number, after=after, heads=tuple(text_heads), at_end=at_end, ends=ends)
