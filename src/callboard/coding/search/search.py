"""Search the files of a workspace, with ripgrep or Python.

Not searched are hidden directories, those of `directory_walk.SKIPPED`, links, and files that are binary or larger than
10 MB.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from callboard.coding.search.globs import Glob
from callboard.coding.search.python_search import search_with_python
from callboard.coding.search.query import Query
from callboard.coding.search.ripgrep import NotForRipgrep, find_ripgrep, run_ripgrep
from callboard.coding.workspace.directory_walk import files_below
from callboard.coding.workspace.text_file import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import Workspace


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
