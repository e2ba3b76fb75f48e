"""Charts of costs and requests."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from callboard.servers.board.charts import DAYS, HEIGHT, MINUTES, chart_costs, chart_requests
from callboard.servers.gateway.traffic_values import RequestRow

COSTS = st.lists(
    st.tuples(st.sampled_from(["20261128", "20261127", "20261001"]), st.sampled_from("abcdefgh"), st.floats(0.01, 10))
)


def test_a_day_has_a_column_and_each_model_a_part_of_it():
    costs = [("20261128", "big", 3.0), ("20261128", "small", 1.0), ("20261127", "small", 1.0), ("20260101", "old", 9.0)]
    chart = chart_costs(costs, date(2026, 11, 28))
    assert (chart.series, chart.top, len(chart.columns)) == (["big", "small"], "$4.0000", DAYS)
    assert [(label, [each.text for each in parts]) for label, parts in chart.columns[-2:]] == [
        ("27 Nov", ["small $1.0000"]),
        ("28 Nov", ["big $3.0000", "small $1.0000"]),
    ]
    assert chart_costs([], date(2026, 11, 28)) is None


@given(COSTS)
def test_columns_fit_and_lose_no_cost(costs):
    chart = chart_costs(costs, date(2026, 11, 28))
    recent = [cost for day, _, cost in costs if day > "20261110"]
    if chart is None:
        assert not recent
        return
    assert all(each.y >= 0 and each.y + each.height <= HEIGHT + 0.2 for _, parts in chart.columns for each in parts)
    assert max(sum(each.height for each in parts) for _, parts in chart.columns) >= HEIGHT - 0.5


def test_requests_of_the_last_minutes():
    now = datetime(2026, 11, 28, 12, 30, 40, tzinfo=UTC)

    def row(minutes, end, seconds):
        at = now.timestamp() - 60 * minutes
        fields = dict.fromkeys(("identifier", "front", "client", "key", "model", "backend"), "")
        return RequestRow(**fields, number=1, at=at, end=end, status=200, first_seconds=None, seconds=seconds)

    counts, times = chart_requests(
        [row(0, "stop", 2.0), row(0, "failed", 4.0), row(1, "stop", 1.0), row(99, "stop", 9)], now
    )
    assert (counts.series, counts.top, len(counts.columns)) == (["Answered", "Failed"], "2", MINUTES)
    assert [label for label, _ in counts.columns[-2:]] == ["12:29", "12:30"]
    assert [each.text for each in times.columns[-1][1]] == ["Seconds 3.00 s"]
    assert chart_requests([], now) == []
