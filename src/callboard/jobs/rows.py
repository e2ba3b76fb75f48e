"""Rows of the tables as values, and values as rows.

Laws: what was written is what is read, to the microsecond; a text that a database cannot hold is written with its odd
characters spelled out, so that no job fails for what a file is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Row

from callboard.coding.jobs.json_encoding import encode_json, escape_surrogates
from callboard.errors import CallerError

T = TypeVar("T", bound=msgspec.Struct)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TIMES: Final = ("created_at", "started_at", "completed_at", "updated_at", "asked_at", "answered_at", "begun_at")
_JSON: Final = ("usage", "input", "memory", "output", "arguments", "edited")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def to_microseconds(moment: datetime) -> int:
    """Since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def to_moment(microseconds: int) -> datetime:
    """The time in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job or an approval as a database takes them."""
    return {name: _to_column(value) for name, value in fields.items()}


def _to_column(value: Any) -> Any:
    match value:
        case str():
            return escape_surrogates(value).replace("\0", "\\x00")
        case datetime():
            return to_microseconds(value)
        case dict():
            return encode_json(value).decode()
        case _:
            return value


def from_row(row: Row[Any], kind: type[T]) -> T:
    """The value of a row, whose columns are named as its fields; columns of other names are passed over.

    Raises:
        CallerError: The row is in another format.
    """
    fields = {name: value for name, value in row._mapping.items() if name in kind.__struct_fields__}  # noqa: SLF001  # public, by SQLAlchemy's documentation
    try:
        for name in _TIMES:
            if (moment := fields.get(name)) is not None:
                fields[name] = to_moment(moment)
        for name in _JSON:
            if (text := fields.get(name)) is not None:
                fields[name] = _decode(text)
        return kind(**fields)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CallerError(f"not a row of a job: {error}", path=str(fields.get("id", ""))) from None
