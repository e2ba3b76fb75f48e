"""Search the files of a workspace, with ripgrep or Python.

Not searched are hidden directories, those of `directory_walk.SKIPPED`, links, and files that are binary or larger than
10 MB.

Law: ripgrep runs without a shell, a configuration or an environment. Only the line numbers of its output are used, since
it opens files by their paths: the lines are read beneath the root afterwards.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

from callboard.coding.search.globs import Glob
from callboard.coding.search.python_search import search_with_python
from callboard.coding.search.query import Query
from callboard.coding.workspace.directory_walk import SKIPPED, files_below
from callboard.coding.workspace.text_file import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import Workspace
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
                name = os.fsdecode(match[1].removeprefix(b"./"))
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


async def search_lines(
    workspace: Workspace, query: Query, start: str, glob: Glob, notify: Callable[[str], None]
) -> AsyncGenerator[tuple[str, list[tuple[int, str]]], None]:
    """Yield the files below `start`, or the file `start`, with their matching lines and line numbers, by path.

    `tell` is told what was not searched. Raises OSError where `start` is not there.
    """

    def read(path: str) -> str | None:
        try:
            return decode(workspace.files.read(path, MAX_BYTES)).text
        except (OSError, NotText):
            return None

    async with aclosing(_search_lines(workspace, query, start, glob, read=read, tell=notify)) as matches:
        async for path, numbers in matches:
            text = await asyncio.to_thread(read, path)
            lines = text.split("\n") if text else []
            if matching_lines := [(number, lines[number - 1]) for number in numbers if number <= len(lines)]:
                yield path, matching_lines


async def _search_lines(
    workspace: Workspace,
    query: Query,
    start: str,
    glob: Glob,
    *,
    read: Callable[[str], str | None],
    tell: Callable[[str], None],
) -> AsyncGenerator[tuple[str, list[int]], None]:
    begin = workspace.files.canonical(start) or "."
    if program := find_ripgrep():
        workspace.files.stat(start)
        try:
            async with aclosing(run_ripgrep(program, workspace.root, query, begin)) as matches:
                async for path, numbers in matches:
                    if glob.matches(path):
                        yield path, numbers
        except NotForRipgrep:
            pass
        else:
            return
    paths, cut = await asyncio.to_thread(_paths, workspace, begin)
    if cut:
        tell(f"only the first {len(paths)} files were searched")
    chosen = [path for path in paths if glob.matches(path)]
    async with aclosing(search_with_python(query, chosen, read, lambda path: tell(f"{path} took too long"))) as scanned:
        async for path, numbers in scanned:
            yield path, numbers


def _paths(workspace: Workspace, begin: str) -> tuple[list[str], bool]:
    if not stat.S_ISDIR(workspace.files.stat(begin).st_mode):
        return [begin], False
    return files_below(workspace.files, begin)
