import pytest

from timers.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("2m", 120), ("1h", 3600), ("1d", 86400), ("1h30m", 5400), ("1d1s", 86401), (" 5s\n", 5), ("0s", 0)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "  ", "5", "h", "1h 30m", "-5s", "1w"])
def test_what_is_none(text):
    with pytest.raises(ValueError):
        parse_duration(text)
