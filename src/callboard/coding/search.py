"""Search the files of a workspace for lines that match a regular expression.

The search skips hidden directories, directories in `directory_walk.SKIPPED`, links, binary files and files larger than
10 MB.

Python's expressions can take exponential time, so a separate process searches and can be killed. Law: a file that
takes too long is skipped and reported.

In shell patterns of paths, `*` stays within a name, `**` crosses directories, and `{a,b}` matches either. A pattern
without a slash is matched against the last name.
"""

from __future__ import annotations

import asyncio
import json
import re
import stat
import sys
import warnings
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from callboard.coding import search_worker
from callboard.coding.workspace.directory_walk import files_below
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import Workspace

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_EXPANDED: Final = 64
"""Patterns that one pattern with braces expands to, at most."""


class Glob:
    """A pattern, to be matched with paths from the root."""

    def __init__(self, pattern: str) -> None:
        self._patterns = [each.removeprefix("./").split("/") for each in _expand_braces(pattern)]

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches a path."""
        names = path.split("/")
        return any(
            fnmatchcase(names[-1], steps[0]) if len(steps) == 1 else _match_steps(steps, names)
            for steps in self._patterns
        )


def _expand_braces(pattern: str) -> list[str]:
    waiting = [pattern]
    done: list[str] = []
    while waiting and len(waiting) + len(done) < _EXPANDED:
        each = waiting.pop()
        braces = _BRACES.search(each)
        if braces is None:
            done.append(each)
        else:
            waiting += [each[: braces.start()] + choice + each[braces.end() :] for choice in braces[1].split(",")]
    return [*done, *waiting]


def _match_steps(steps: list[str], names: list[str]) -> bool:
    """Return whether the steps match the names; `reached` holds how many names the steps so far can match."""
    reached = {0}
    for step in steps:
        if step == "**":
            reached = {*range(min(reached), len(names) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], step)}
        if not reached:
            return False
    return len(names) in reached


class Query(msgspec.Struct, frozen=True):
    """`fixed`: the pattern is a text, not an expression."""

    pattern: str
    ignore_case: bool = False
    fixed: bool = False

    @property
    def source(self) -> str:
        """The pattern as an expression of Python."""
        return re.escape(self.pattern) if self.fixed else self.pattern

    @property
    def text(self) -> str:
        """A text that every matching line contains, "" if none is known."""
        plain = self.fixed or not re.search(r"[^\w\s\"'`:;,=<>/%&!@~-]", self.pattern)
        return self.pattern if plain and not self.ignore_case and self.pattern.isprintable() else ""


def parse_query(pattern: str, *, ignore_case: bool = False) -> Query:
    """Parse a pattern; search for it as text if it is not a regular expression, such as `foo(`."""
    with warnings.catch_warnings():
        # Warnings about expressions whose meaning will change.
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return Query(pattern, ignore_case, fixed=True)
    return Query(pattern, ignore_case)


SECONDS: Final = 3.0
"""Seconds that the search of one file may take."""
_FILES: Final = 64
_TEXT: Final = 4 * 1024 * 1024
"""Files, or characters, that are read at once."""
_ANSWER: Final = 64 * 1024
"""Bytes of one answer at most; numbers of 1000 lines have fewer."""

Text: TypeAlias = tuple[str, str]
"""A path, and the file's text."""


async def search_lines(
    workspace: Workspace, query: Query, start: str, glob: Glob, notify: Callable[[str], None]
) -> AsyncGenerator[tuple[str, list[tuple[int, str]]], None]:
    """Yield the files below `start`, or the file `start`, with their matching lines and line numbers, by path.

    `notify` gets a text about files that were not searched. Raises OSError if `start` does not exist.
    """
    paths, cut = await asyncio.to_thread(_list_files, workspace, workspace.files.canonical(start) or ".")
    if cut:
        notify(f"only the first {len(paths)} files were searched")
    rest = iter([path for path in paths if glob.matches(path)])
    process: Process | None = None
    try:
        while (texts := await asyncio.to_thread(_read_batch, workspace, rest)) is not None:
            batch = [(path, text) for path, text in texts if query.text in text]
            while batch:
                process = process or await _start_worker(query)
                _send(process, batch)
                while batch:
                    path, text = batch.pop(0)
                    try:
                        async with asyncio.timeout(SECONDS):
                            numbers = await _read_numbers(process)
                    except TimeoutError:
                        notify(f"{path} took too long")
                        await _end_worker(process)
                        process = None
                        break
                    if numbers:
                        lines = text.split("\n")
                        yield path, [(number, lines[number - 1]) for number in numbers]
    finally:
        if process is not None:
            await _end_worker(process)


def _list_files(workspace: Workspace, start: str) -> tuple[list[str], bool]:
    if stat.S_ISDIR(workspace.files.stat(start).st_mode):
        return files_below(workspace.files, start)
    return [start], False


def _read_batch(workspace: Workspace, paths: Iterator[str]) -> list[Text] | None:
    """Return the next texts, None when there are no more files."""
    texts: list[Text] = []
    room = _TEXT
    tried = False
    for path in islice(paths, _FILES):
        tried = True
        with suppress(OSError, NotText):
            text = decode(workspace.files.read(path, MAX_BYTES)).text
            texts.append((path, text))
            room -= len(text)
        if room < 0:
            break
    return texts if tried else None


async def _start_worker(query: Query) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(Path(search_worker.__file__)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={},
        limit=_ANSWER,
        start_new_session=True,  # Ctrl-C is for us
    )
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    process.stdin.write(json.dumps([query.source, query.ignore_case]).encode() + b"\n")
    return process


def _send(process: Process, texts: Sequence[Text]) -> None:
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    for _, text in texts:
        data = text.encode("utf-8", "surrogatepass")
        process.stdin.write(len(data).to_bytes(8, "big") + data)


async def _read_numbers(process: Process) -> list[int]:
    """Return the numbers of the lines that match in the next text."""
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    answer = await process.stdout.readline()
    if not answer:
        raise RuntimeError("the process that searches has ended")
    numbers: list[int] = json.loads(answer)
    return numbers


async def _end_worker(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
