"""Search with Python's regular expressions, in a process of its own.

Used where there is no ripgrep, and for look-around and back-references, which ripgrep's engine lacks. Python's can
take exponential time, hence the process, which can be ended. Law: files are read beneath the root; a file that takes
too long is skipped and reported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from callboard.coding.search import python_worker
from callboard.coding.search.query import Query

SECONDS: Final = 3.0
"""For one file."""
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
