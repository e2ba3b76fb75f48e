"""Get BFCL's tasks out of the wheel of its package, `bfcl-eval`.

pip downloads the wheel with all of its own settings; it is never installed, so none of its code runs and nothing that
it depends on comes with it. Only the files of tasks that `load_bfcl` reads are unpacked.

Laws: a wheel with another hash is refused, for other tasks would give other figures; the folder is there whole or not at
all, whoever else downloads it at the same time.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from callboard.errors import ModelFileError
from callboard.evaluation.bfcl import CATEGORIES, has_answers
from callboard.providers.local.wheel_source import download_wheel
from callboard.storage.directories import data_directory

REQUIREMENT: Final = "bfcl-eval==2026.3.23"
SHA256: Final = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
_DATA: Final = "bfcl_eval/data/"
_SIZE: Final = 64 * 1024 * 1024


async def pull_bfcl(directory: Path | None = None, *, sha256: str = SHA256, python: str = sys.executable) -> Path:
    """The folder with BFCL's files, for `load_bfcl`; downloaded (2 MB) if it is not there.

    Args:
        directory: Where it belongs; by default `evaluation/bfcl-eval-2026.3.23` among Callboard's own data.
        sha256: The hash of the wheel.
        python: What runs pip.

    Raises:
        ModelFileError: pip is missing or fails, or the wheel is another one.
    """
    directory = directory or data_directory() / "evaluation" / REQUIREMENT.replace("==", "-")
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".bfcl-", dir=directory.parent) as scratch:
        (downloads := Path(scratch, "wheel")).mkdir()
        wheel = await download_wheel(REQUIREMENT, downloads, python)
        await asyncio.to_thread(_unpack, wheel, sha256, Path(scratch, "data"), directory)
    return directory


def _unpack(wheel: Path, sha256: str, folder: Path, directory: Path) -> None:
    """Unpack the files into `folder`, which then becomes `directory`."""
    import zipfile  # noqa: PLC0415 - costs 5 ms, on first use

    with wheel.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise ModelFileError(f"has the hash {actual}, not {sha256}", path=wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        for name in _names():
            if archive.getinfo(_DATA + name).file_size > _SIZE:
                raise ModelFileError(f"{name} is larger than {_SIZE} bytes", path=wheel.name)
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(_DATA + name))
    with suppress(OSError):  # somebody else was first
        folder.rename(directory)


def _names() -> list[str]:
    questions = [f"BFCL_v4_{category}.json" for category in CATEGORIES]
    return questions + [f"possible_answer/BFCL_v4_{category}.json" for category in CATEGORIES if has_answers(category)]
