"""Prometheus metrics of a worker and of a database of jobs. This needs `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from callboard.errors import CallboardError
from callboard.telemetry.prometheus import render_metrics, tool_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from callboard.jobs.job import DurableJob

_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class WorkerMetrics:
    """The metrics of a worker. Use `add_segment` as `on_segment` of a `SegmentRunner`.

    Args:
        count_jobs: Returns the number of the database's jobs by state, without ended jobs.
    """

    def __init__(self, count_jobs: Callable[[], Mapping[str, int]]) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self._segments = Counter(
            "callboard_job_segments",
            "Segments of jobs by kind and by the state after the segment",
            ["kind", "state"],
            **options,
        )
        self._seconds = Histogram(
            "callboard_job_segment_seconds", "Seconds of a segment", ["kind"], buckets=_SECONDS, **options
        )
        self._tokens = Counter("callboard_job_tokens", "Tokens that jobs used", ["kind", "direction"], **options)
        self._rounds = Counter("callboard_job_rounds", "Replies that jobs asked for", ["kind"], **options)
        self.registry.register(JobStates(count_jobs))
        self._tools = tool_metrics()

    def add_segment(self, before: DurableJob, after: DurableJob, seconds: float) -> None:
        """Count a finished segment."""
        self._segments.labels(before.kind, after.state).inc()
        self._seconds.labels(before.kind).observe(seconds)
        self._rounds.labels(before.kind).inc(max(0, after.rounds - before.rounds))
        for direction in ("input", "output"):
            used = after.usage.get(direction, 0) - before.usage.get(direction, 0)
            self._tokens.labels(before.kind, direction).inc(max(0, used))

    def render(self) -> bytes:
        """Return the metrics in the exposition format."""
        return render_metrics([self.registry, self._tools.registry])


class JobStates(Collector):
    """The number of jobs in each open state, counted on each scrape over an index."""

    def __init__(self, count_jobs: Callable[[], Mapping[str, int]]) -> None:
        self._count_jobs = count_jobs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers, or none if the database cannot be reached."""
        family = GaugeMetricFamily("callboard_jobs", "Jobs of the database that have not ended", labels=["state"])
        try:
            for state, count in self._count_jobs().items():
                family.add_metric([state], count)
        except (CallboardError, SQLAlchemyError):
            pass
        yield family
