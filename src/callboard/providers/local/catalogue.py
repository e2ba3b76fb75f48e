"""The catalogue of local models, and the sources of their files.

Law: all sources of a model carry the same bytes, so a file begun from one goes on from the next.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import msgspec

from callboard.errors import NoSuchModel
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


Source: TypeAlias = Hub | Wheels


class CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model's file: `size` in bytes, `context` in tokens, `sha256` in lower-case hexadecimal digits."""

    name: str
    title: str
    size: int
    licence: str
    sha256: str
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
