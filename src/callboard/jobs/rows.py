"""Rows of the tables as values, and values as rows.

Laws: what was written is what is read, to the microsecond; a text that a database cannot hold is written with its odd
characters spelled out, so that no job fails for what a file is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Result

from callboard.errors import CallerError
from callboard.text.surrogates import encode_json, escape_surrogates

T = TypeVar("T", bound=msgspec.Struct)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def to_moment(microseconds: int) -> datetime:
    """The time in UTC."""
    return _EPOCH + timedelta(0, 0, microseconds)


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


def from_rows(rows: Result[Any], kind: type[T]) -> Iterator[T]:
    """The values of rows, whose columns are named as the fields; columns of other names are passed over.

    Raises:
        CallerError: A row is in another format.
    """
    names = tuple(map(str, rows.keys()))  # SQLAlchemy's are of a kind of their own
    conversions = [(name, _FROM_COLUMN[name]) for name in names if name in _FROM_COLUMN]
    for row in rows.all():
        fields = dict(zip(names, row, strict=True))
        try:
            for name, convert in conversions:
                if (value := fields[name]) is not None:
                    fields[name] = convert(value)
            yield msgspec.convert(fields, kind)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CallerError(f"not a row of a job: {error}", path=str(fields.get("id", ""))) from None


_TIMES: Final = (
    "created_at",
    "started_at",
    "completed_at",
    "updated_at",
    "asked_at",
    "answered_at",
    "begun_at",
    "next_at",
    "last_at",
)
_JSON: Final = ("usage", "input", "memory", "output", "arguments", "edited", "template")
_FROM_COLUMN: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(_TIMES, to_moment),
    **dict.fromkeys(_JSON, msgspec.json.Decoder(dict[str, Any]).decode),
}
