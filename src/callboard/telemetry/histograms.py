"""Histograms of this process, and the thread that sends them as OTLP.

A request to the gateway adds four values, which took longer in OpenTelemetry's instruments than its spans did: they look
for views and exemplars at each value. Here a value is a look-up and three additions; what is sent are the SDK's own data
points, by its own exporter. Where the program has a MeterProvider, that one is used instead.

Law: no more than `MAX_SERIES` combinations of attributes are told apart; what is more is one series of each metric.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import (
    Metric as SdkMetric,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from callboard.telemetry.names import Metric

MAX_SERIES: Final = 2000
_OVERFLOW: Final = (("otel.metric.overflow", True),)
_INTERVAL: Final = 60_000
_CLOSE_SECONDS: Final = 5.0


class _Series:
    __slots__ = ("bounds", "buckets", "count", "largest", "least", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0
        self.least = float("inf")
        self.largest = float("-inf")

    def add(self, value: float) -> None:
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value
        self.least = min(self.least, value)
        self.largest = max(self.largest, value)

    def point(self, attributes: tuple[Any, ...], start: int, now: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=dict(attributes),
            start_time_unix_nano=start,
            time_unix_nano=now,
            count=self.count,
            sum=self.total,
            bucket_counts=tuple(self.buckets),
            explicit_bounds=self.bounds,
            min=self.least,
            max=self.largest,
        )


class Histograms:
    """The values of this process since it began."""

    def __init__(self) -> None:
        self._start = time_ns()
        self._lock = threading.Lock()
        self._metrics: dict[Metric, dict[tuple[Any, ...], _Series]] = {}
        self._count = 0

    def add(self, metric: Metric, value: float, attributes: Mapping[str, Any]) -> None:
        """Add a value to the series of these attributes, whose values are texts or numbers."""
        key = tuple(attributes.items())
        with self._lock:
            table = self._metrics.get(metric)
            if table is None:
                table = self._metrics[metric] = {}
            series = table.get(key)
            if series is None:
                series = self._make(metric, table, key)
            series.add(value)

    def _make(self, metric: Metric, table: dict[tuple[Any, ...], _Series], key: tuple[Any, ...]) -> _Series:
        if self._count >= MAX_SERIES:
            return table.setdefault(_OVERFLOW, _Series(metric.bounds))
        self._count += 1
        series = table[key] = _Series(metric.bounds)
        return series

    def collect(self) -> list[SdkMetric]:
        """All of them, as the SDK's exporters take them."""
        now = time_ns()
        with self._lock:
            return [
                SdkMetric(
                    metric.name,
                    metric.meaning,
                    metric.unit,
                    Histogram(
                        [series.point(key, self._start, now) for key, series in table.items()],
                        AggregationTemporality.CUMULATIVE,
                    ),
                )
                for metric, table in self._metrics.items()
            ]


class MetricsSender:
    """Sends histograms each OTEL_METRIC_EXPORT_INTERVAL milliseconds, by default 60,000, and when it is closed."""

    def __init__(
        self,
        histograms: Histograms,
        exporter: OTLPMetricExporter,
        resource: Resource,
        scope: InstrumentationScope,
    ) -> None:
        self._histograms = histograms
        self._exporter = exporter
        self._resource = resource
        self._scope = scope
        self._closing = threading.Event()
        interval = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        self._seconds = (int(interval) if interval.isascii() and interval.isdigit() else _INTERVAL) / 1000
        self._thread = threading.Thread(target=self._run, name="callboard-telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left; the second time there is nothing to do."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join(_CLOSE_SECONDS)
        self._send()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds or 1):
            self._send()

    def _send(self) -> None:
        if metrics := self._histograms.collect():
            scoped = ScopeMetrics(self._scope, metrics, self._scope.schema_url or "")
            self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scoped], self._resource.schema_url)]))
