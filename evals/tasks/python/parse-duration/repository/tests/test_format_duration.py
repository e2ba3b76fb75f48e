import pytest

from timers.durations import format_duration


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59, "59s"), (61, "1m1s")])
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text
