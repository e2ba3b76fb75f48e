"""Read and write lengths of time as people write them."""

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


def format_duration(seconds: float) -> str:
    """Return seconds in the two largest units: 42 s, 3 min, 2 h 5 min, 3 d 4 h."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(0, int(seconds))} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def format_age(seconds: float) -> str:
    """Return how long ago something happened, in its largest unit: now, 42 s ago, 3 min ago, 2 h ago, 4 d ago."""
    if seconds < 1:
        return "now"
    number, unit, *_ = format_duration(seconds).split()
    return f"{number} {unit} ago"


def format_clock(seconds: float) -> str:
    """Return the seconds of something that runs: 7 s, 2:05 or 3:02:05."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"
