"""Lines of cron: minute, hour, day of the month, month and day of the week, such as `30 3 * * mon-fri`.

`croniter` reads them. What it also reads and cron does not is refused: seconds, years, and values
that it would draw by lot.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter  # type: ignore[import-untyped]  # stubs are another package

from callboard.errors import CallerError

FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
SHORT: Final = "@hourly @daily @midnight @weekly @monthly @yearly @annually"
_HINT: Final = 'write five fields, such as "30 3 * * mon-fri" for 3:30 on working days, or @daily'
_DRAWN: Final = re.compile(r"[hr](\(|/|$)", re.IGNORECASE)


def next_time(cron: str, zone: str, after: datetime) -> datetime:
    """The first time behind another at which a line is due, in UTC.

    Where clocks go forward, an hour that they leave out is made up for at once; where they go back, what is due at one
    hour or some is due in the first of the two alone, as cron has it.

    Raises:
        CallerError: There is no such line or time zone, or the line is never due; it names the field.
    """
    expression = _check(cron)
    try:
        times = croniter(expression, after.astimezone(_find_zone(zone)))
        due: datetime = times.get_next(datetime)
        while due.fold and not times.expressions[1].startswith("*"):
            due = times.get_next(datetime)
    except ValueError:
        raise CallerError("it is never due", path=f"cron {cron!r}", hint="no month has such a day") from None
    return due.astimezone(UTC)


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # also a name that leads out of the directory of zones
        hint = "write one of IANA's names, such as Europe/Berlin or UTC"
        raise CallerError("no such time zone", path=f"--zone {name}", hint=hint) from None


def _check(cron: str) -> str:
    """The line, one space between its fields. Raises CallerError that names the field which is wrong."""
    fields = cron.split()
    if len(fields) == 1 and fields[0].lower() in SHORT.split():
        return fields[0].lower()
    if len(fields) != len(FIELDS):
        raise CallerError(f"it has {len(fields)} fields", path=f"cron {cron!r}", hint=_HINT)
    for at, (name, text) in enumerate(zip(FIELDS, fields, strict=True)):
        alone = " ".join(text if each == at else "*" for each in range(len(FIELDS)))
        if _DRAWN.match(text) or not croniter.is_valid(alone):
            raise CallerError(f"no {name}: {text!r}", path=f"cron {cron!r}", hint=_HINT)
    return " ".join(fields)
