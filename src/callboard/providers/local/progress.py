"""The steps of a pull, as values for whoever shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


class Waiting(msgspec.Struct, frozen=True):
    """Another process pulls the same model; this one waits for it."""


class SourceTried(msgspec.Struct, frozen=True):
    """`source` is the address or the packages that are asked."""

    source: str


class SourceRefused(msgspec.Struct, frozen=True):
    """`source` did not give the file, or not the right one. What came from it is kept unless it was wrong."""

    source: str
    why: str


class Received(msgspec.Struct, frozen=True):
    """`done` of `total` bytes have come, in this pull or an earlier one. After a wrong file `done` is 0 again."""

    done: int
    total: int


class Verifying(msgspec.Struct, frozen=True):
    """A file that was here already is read and hashed."""


ProgressEvent: TypeAlias = Waiting | SourceTried | SourceRefused | Received | Verifying
Progress: TypeAlias = Callable[[ProgressEvent], None]


def silent(_event: ProgressEvent, /) -> None:
    """A Progress that tells nobody."""
