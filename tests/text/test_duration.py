from datetime import timedelta

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.text.duration import format_age, format_clock, format_duration, parse_duration


@table(
    ("text", "duration"),
    [("5s", {"seconds": 5}), ("90m", {"minutes": 90}), ("12h", {"hours": 12}), ("8w", {"weeks": 8})],
)
def test_lengths_of_time(text, duration):
    assert parse_duration(text) == timedelta(**duration)


@table("text", ["", "30", "d", "-1d", "1.5h", "1y", "9999999d", "999999d", "1h "])
def test_what_is_no_length_of_time(text):
    with pytest.raises(CallerError, match=r"--older-than: .* is no length of time; write a whole number"):
        parse_duration(text, "--older-than")


@table(
    ("seconds", "duration", "age", "clock"),
    [
        (-1, "0 s", "now", "0 s"),
        (7.9, "7 s", "7 s ago", "7 s"),
        (125, "2 min", "2 min ago", "2:05"),
        (10925, "3 h 2 min", "3 h ago", "3:02:05"),
        (90000, "1 d 1 h", "1 d ago", "25:00:00"),
    ],
)
def test_seconds_in_words(seconds, duration, age, clock):
    assert (format_duration(seconds), format_age(seconds), format_clock(seconds)) == (duration, age, clock)
