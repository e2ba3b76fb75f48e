"""Values as rows, and back."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from callboard.jobs.tables import to_microseconds, to_moment, to_row

MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001  # they get UTC


@given(MOMENTS)
def test_a_time_comes_back_to_the_microsecond(moment):
    assert to_moment(to_microseconds(moment)) == moment


def test_a_time_of_another_zone_is_the_same_moment():
    from datetime import timezone

    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert to_moment(to_microseconds(moment)) == moment


def test_each_value_is_one_that_a_database_holds():
    fields = {"a": "x\0\udcff", "b": {"k": "\0"}, "c": None, "d": True, "e": 1.5, "f": datetime(1970, 1, 1, tzinfo=UTC)}
    assert to_row(fields) == {"a": "x\\x00\\udcff", "b": '{"k":"\\u0000"}', "c": None, "d": True, "e": 1.5, "f": 0}
