"""What a client sent, as one of our shapes.

Owns how a mistake in it is told: what, and where. Knows no shape.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from callboard.errors import CallerError

T = TypeVar("T")


def read(data: Any, shape: type[T], path: str, what: str) -> T:
    """`data` as the shape. Raises CallerError below `path` where it is none; `what` is what it should be."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.MsgspecError, RecursionError) as error:
        said, _, where = str(error).partition(" - at `$")
        place = f"{path}{where.rstrip('`')}".removeprefix(".")
        raise CallerError(f"not {what}: {said}", path=place) from None
