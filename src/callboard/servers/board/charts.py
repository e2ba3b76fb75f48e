"""Charts of bars, as rectangles that a template draws. A table below each chart has the same numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from callboard.profiles import format_cost

if TYPE_CHECKING:
    from callboard.servers.gateway.traffic_values import RequestRow

DAYS: Final = 14
"""Days in the chart of costs."""
MINUTES: Final = 30
"""Minutes in the charts of requests."""
MODELS: Final = 5
"""Models with a colour of their own. The others share one."""
HEIGHT: Final = 100
"""Units of the highest column."""


class Segment(NamedTuple):
    """A part of a column: the place of its series, its upper end and height in units, and its value in words."""

    series: int
    y: float
    height: float
    text: str


class Chart(NamedTuple):
    """A chart: its title, its series, its columns with a label each, and the value of a column of full height."""

    title: str
    series: Sequence[str]
    columns: Sequence[tuple[str, Sequence[Segment]]]
    top: str


def chart_costs(costs: Iterable[tuple[str, str, float]], today: date) -> Chart | None:
    """Return the cost of jobs by day and model. `costs` has days such as 20261128, models, and US dollars."""
    by_day: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    whole: defaultdict[str, float] = defaultdict(float)
    for day, model, cost in costs:
        by_day[day][model] += cost
        whole[model] += cost
    models = sorted(whole, key=lambda model: -whole[model])[:MODELS]
    columns = []
    for back in reversed(range(DAYS)):
        shown = today - timedelta(days=back)
        sums = by_day[f"{shown:%Y%m%d}"]
        others = sum([cost for model, cost in sums.items() if model not in models])
        columns.append((f"{shown:%d %b}", [*[sums[model] for model in models], others]))
    return _stack("Cost by day and model", [*[each or "No model" for each in models], "Others"], columns, format_cost)


def chart_requests(rows: Iterable[RequestRow], now: datetime) -> list[Chart]:
    """Return the answered and failed requests of each minute, and their median time."""
    begin = now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    good: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        minute = int((datetime.fromtimestamp(row.at, UTC) - begin).total_seconds() // 60)
        (failed if row.is_failure else good)[minute] += 1
        if not row.is_open:
            seconds[minute].append(row.seconds)
    labels = [f"{begin + timedelta(minutes=minute):%H:%M}" for minute in range(MINUTES)]
    counts = [(label, [float(good[at]), float(failed[at])]) for at, label in enumerate(labels)]
    times = [(label, [median(seconds[at]) if seconds[at] else 0.0]) for at, label in enumerate(labels)]
    charts = [
        _stack("Requests by minute", ["Answered", "Failed"], counts, "{:,.0f}".format),
        _stack("Median seconds of a request", ["Seconds"], times, "{:.2f} s".format),
    ]
    return [each for each in charts if each]


def _stack(
    title: str, series: Sequence[str], columns: Sequence[tuple[str, Sequence[float]]], describe: Callable[[float], str]
) -> Chart | None:
    """Return a chart of stacked bars, None if all values are 0. Series without a value are left out."""
    top = max(sum(values) for _, values in columns)
    if not top:
        return None
    used = [at for at in range(len(series)) if any(values[at] for _, values in columns)]
    drawn = []
    for label, values in columns:
        y = float(HEIGHT)
        segments = []
        for place, at in enumerate(used):
            if height := values[at] / top * HEIGHT:
                y -= height
                segments.append(Segment(place, round(y, 1), round(height, 1), f"{series[at]} {describe(values[at])}"))
        drawn.append((label, segments))
    return Chart(title, [series[at] for at in used], drawn, describe(top))
