"""What a client sent, as our shapes and as JSON; a mistake in it is a CallerError with the path of the place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from callboard.errors import CallerError

Shape = TypeVar("Shape")

_encode = msgspec.json.Encoder().encode


def read_shape(data: Any, shape: type[Shape], path: str, what: str = "") -> Shape:
    """The data as the shape.

    Raises:
        CallerError: They do not fit; the message begins with "not WHAT: ", and the path is below `path`.
    """
    try:
        return msgspec.convert(data, shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise input_error(error, path, what) from None


def input_error(error: Exception, path: str, what: str = "") -> CallerError:
    """An error of msgspec's with the path of its place, which msgspec writes into the message."""
    message, _, where = str(error).partition(" - at `$")
    place = f"{path}{where.rstrip('`')}".removeprefix(".")
    return CallerError(f"not {what}: {message}" if what else message, path=place)


def unnamed_fields(definition: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """The fields that are none of the named ones, without nulls."""
    return {name: value for name, value in definition.items() if name not in named and value is not None}


def unnamed_in(message: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """As `unnamed_fields`, without what says nothing: clients send back whole messages of replies, which name all fields."""
    return {name: value for name, value in unnamed_fields(message, named).items() if value not in ("", [], {})}


def extra_for(wire: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `extra` of a tool that came over the wire with these fields besides."""
    return {wire: fields} if fields else {}


def client_json(value: Any, path: str) -> str:
    """The value as JSON, None as {}. Raises CallerError at `path` for what JSON cannot hold."""
    try:
        return _encode({} if value is None else value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise CallerError("not JSON", path=path) from None
