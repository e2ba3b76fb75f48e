from datetime import timedelta

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.text.duration import parse_duration


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
