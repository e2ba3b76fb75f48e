"""Git objects of a job's tree in a folder of the job, where they stay when the tree and its repository are gone."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


async def move_objects(source: Path, target: Path) -> None:
    """Move the objects of a repository that goes away."""
    await asyncio.to_thread(_add_objects, source, target, os.replace)


async def link_objects(source: Path, target: Path) -> None:
    """Take over objects, which nobody ever changes, without their bytes where the file system can do that."""
    await asyncio.to_thread(_add_objects, source, target, _link)


def _add_objects(source: Path, target: Path, add: Callable[[Path, Path], None]) -> None:
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            if not (there / name).exists():
                with suppress(FileNotFoundError):  # a temporary file of a git that runs
                    add(Path(folder) / name, there / name)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or a file system without links
        unfinished = target.with_name(f".{target.name}")
        shutil.copyfile(source, unfinished)
        unfinished.replace(target)
