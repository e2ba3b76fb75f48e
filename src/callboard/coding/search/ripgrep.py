"""Search with ripgrep.

Law: it runs without a shell, a configuration or an environment. Only the line numbers of its output are used, since it
opens files by their paths: the lines are read beneath the root afterwards.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final

from callboard.coding.search.query import Query
from callboard.coding.workspace.directory_walk import SKIPPED
from callboard.coding.workspace.text_file import MAX_BYTES
from callboard.programs import find_program

_OPTIONS: Final = (
    "--no-config", "--no-messages", "--no-ignore", "--hidden", "--no-follow", "--sort=path", f"--max-filesize={MAX_BYTES}",
    "--no-heading", "--with-filename", "--null", "--line-number", "--color=never", "--crlf",
    # Nobody needs the lines: those that are longer than this are left out.
    "--max-columns=1", "--no-max-columns-preview",
    "--glob=!.*/", *(f"--glob=!{name}/" for name in sorted(SKIPPED)),
)  # fmt: skip
_LINE: Final = re.compile(rb"([^\0]+)\0(\d+)[:-][^\n]*\n")
_BLOCK: Final = 64 * 1024
_LONGEST: Final = 1024 * 1024
"""Bytes without the end of a line, which no path is long enough for."""


class NotForRipgrep(Exception):
    """It does not take this pattern: its expressions know no look-around and no back-references."""


def find_ripgrep() -> str:
    """The path of ripgrep, "" if there is none that we may run."""
    return find_program("rg") or ""


async def run_ripgrep(
    program: str, root: Path, query: Query, start: str
) -> AsyncGenerator[tuple[str, list[int]], None]:
    """Yield the files below `start` with matching lines and these lines' numbers, by path from the root.

    Raises NotForRipgrep before the first.
    """
    case = "--ignore-case" if query.ignore_case else "--case-sensitive"
    kind = ("--fixed-strings",) if query.fixed else ()
    process = await asyncio.create_subprocess_exec(
        program, *_OPTIONS, case, *kind, "-e", query.pattern, "--", start,
        cwd=root, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={},
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101  # both are pipes
    assert process.stderr is not None  # noqa: S101
    complaint = asyncio.ensure_future(process.stderr.read(_BLOCK))
    path, numbers = "", list[int]()
    rest = b""
    try:
        while block := await process.stdout.read(_BLOCK):
            rest += block
            done = 0
            for match in _LINE.finditer(rest):
                done = match.end()
                name = _decode_path(match[1])
                if name != path:
                    if numbers:
                        yield path, numbers
                    path, numbers = name, []
                numbers.append(int(match[2]))
            rest = rest[done:]
            if len(rest) > _LONGEST:
                break
        if numbers:
            yield path, numbers
        elif not path and await process.wait() > 1 and await complaint:
            raise NotForRipgrep
    finally:
        complaint.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _decode_path(path: bytes) -> str:
    return os.fsdecode(path.removeprefix(b"./"))
