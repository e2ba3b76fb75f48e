"""Search the files of a workspace, with ripgrep or Python.

Not searched are hidden directories, those of `directory_walk.SKIPPED`, links, and files that are binary or larger than
10 MB.

Law: ripgrep runs without a shell, a configuration or an environment. Only the line numbers of its output are used, since
it opens files by their paths: the lines are read beneath the root afterwards.

Python's expressions are used if there is no ripgrep, and for look-around and back-references, which ripgrep lacks. They
can take exponential time, so a process of its own searches, which can be ended. Law: a file that takes too long is
skipped and reported.

In the shell patterns of paths `*` stays in a name, `**` goes through directories, `{a,b}` is either. A pattern without
a slash is matched with the last name.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
import warnings
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from callboard.coding.search import python_worker
from callboard.coding.workspace.directory_walk import SKIPPED, files_below
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import Workspace
from callboard.programs import find_program

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_EXPANDED: Final = 64
"""Patterns that one pattern with braces expands to, at most."""


class Glob:
    """A pattern, to be matched with paths from the root."""

    def __init__(self, pattern: str) -> None:
        self._patterns = [each.removeprefix("./").split("/") for each in _expand_braces(pattern)]

    def matches(self, path: str) -> bool:
        """Whether the pattern matches a path."""
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
    """Whether the steps match the names; `reached` holds how many names the steps so far can match."""
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
    """Parse a pattern; one that is no regular expression, as `foo(`, is searched for as a text."""
    with warnings.catch_warnings():
        # Of expressions that will mean something else one day.
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


async def search_with_python(
    query: Query, paths: Sequence[str], read: Callable[[str], str | None], given_up: Callable[[str], None]
) -> AsyncGenerator[tuple[str, list[int]], None]:
    """Yield the files with matching lines and these lines' numbers, in the order of the paths.

    `read` gives a file's text, None for what is none; it runs in a thread. `given_up` is told of files that took
    longer than 3 seconds.
    """
    process: Process | None = None
    rest = iter(paths)
    try:
        while (texts := await asyncio.to_thread(_read_batch, rest, read)) is not None:
            batch = [(path, text) for path, text in texts if query.text in text]
            while batch:
                process = process or await _start_worker(query)
                _send(process, batch)
                while batch:
                    path, _ = batch.pop(0)
                    try:
                        async with asyncio.timeout(SECONDS):
                            numbers = await _read_numbers(process)
                    except TimeoutError:
                        given_up(path)
                        await _end_worker(process)
                        process = None
                        break
                    if numbers:
                        yield path, numbers
    finally:
        if process is not None:
            await _end_worker(process)


def _read_batch(paths: Iterator[str], read: Callable[[str], str | None]) -> list[Text] | None:
    """The next texts, None when there are no more files."""
    texts: list[Text] = []
    room = _TEXT
    tried = False
    for path in islice(paths, _FILES):
        tried = True
        if (text := read(path)) is not None:
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
        str(Path(python_worker.__file__)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={},
        limit=_ANSWER,
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
    """The numbers of the lines that match in the next text."""
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
