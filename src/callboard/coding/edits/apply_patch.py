"""Parse patches between `*** Begin Patch` and `*** End Patch`, as GPT models write them.

Files are added, updated, moved and deleted; hunks have no numbers and are found by their lines and by the line above
them (`@@ def act():`). Text around the two marks is ignored.
"""

from __future__ import annotations

import re
from typing import Final

from callboard.coding.edits.hunks import FilePatch, Hunk, parse_hunk_lines
from callboard.coding.edits.result import EditRefused
from callboard.coding.edits.unified_diff import parse_unified_diff

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
