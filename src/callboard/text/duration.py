"""Read a length of time as people write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from callboard.errors import CallerError

LONGEST: Final = timedelta(days=365_000)
"""So long ago there was no date that could be written."""
_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(rf"(\d{{1,6}})([{''.join(_UNITS)}])", re.ASCII)


def parse_duration(text: str, path: str = "") -> timedelta:
    """Parse a length of time such as `12h` or `30d`.

    Args:
        text: A whole number and a unit: s, m, h, d or w.
        path: Path of the setting that the error names.

    Raises:
        CallerError: The text is not a duration.
    """
    match = _DURATION.fullmatch(text)
    length = LONGEST if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})
    if length >= LONGEST:
        hint = "write a whole number and s, m, h, d or w, such as 30d"
        raise CallerError(f"{text!r} is no length of time", path=path, hint=hint)
    return length
