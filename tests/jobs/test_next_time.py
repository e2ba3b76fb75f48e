"""Lines of cron are due when cron says, in their time zone, and one that is wrong is told with its field."""

from datetime import UTC, datetime

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.jobs.schedules import next_time

SUNDAY = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
"""Half an hour before Berlin's clocks go from 2:00 to 3:00."""


@table(
    ("cron", "zone", "after", "due"),
    [
        ("30 3 * * mon-fri", "UTC", "2026-11-20T12:00", "2026-11-23T03:30"),
        ("*/15  9-17 * * *", "UTC", "2026-11-20T17:45", "2026-11-21T09:00"),
        ("0 0 1,15 * fri", "UTC", "2026-11-20T12:00", "2026-11-27T00:00"),  # either of both days
        ("0 12 L * *", "UTC", "2026-02-01T00:00", "2026-02-28T12:00"),
        ("@Daily", "America/New_York", "2026-11-20T12:00", "2026-11-21T05:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-01T02:00", "2026-01-02T02:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-06-30T01:00", "2026-07-01T01:00"),
        # An hour that the clocks leave out, and one that they go through twice.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T00:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("@hourly", "Europe/Berlin", "2026-10-25T00:30", "2026-10-25T01:00"),
    ],
)
def test_the_next_time(cron, zone, after, due):
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert next_time(cron, zone, moment) == datetime.fromisoformat(due).replace(tzinfo=UTC)


@table(
    ("cron", "message"),
    [
        ("60 * * * *", "no minute: '60'"),
        ("0 24 * * *", "no hour: '24'"),
        ("0 0 32 * *", "no day of the month: '32'"),
        ("0 0 * 13 *", "no month: '13'"),
        ("0 0 * * monday", "no day of the week: 'monday'"),
        ("*/0 * * * *", "no minute: '*/0'"),
        ("r * * * *", "no minute: 'r'"),
        ("0 H(0-7) * * *", "no hour: 'H(0-7)'"),
        ("* * * *", "it has 4 fields"),
        ("0 * * * * *", "it has 6 fields"),
        ("", "it has 0 fields"),
        ("@reboot", "it has 1 fields"),
        ("0 0 31 2 *", "it is never due"),
    ],
)
def test_a_line_that_is_wrong_is_told_with_its_field(cron, message):
    with pytest.raises(CallerError) as caught:
        next_time(cron, "UTC", SUNDAY)
    assert str(caught.value).startswith(f"cron {cron!r}: {message}; ")


@table("zone", ["Berlin", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_a_time_zone_that_there_is_not(zone):
    with pytest.raises(CallerError, match="no such time zone"):
        next_time("0 0 * * *", zone, SUNDAY)
