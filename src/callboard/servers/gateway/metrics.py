"""Metrics for Prometheus.

With several workers, the metrics cover all of them, through the directory in PROMETHEUS_MULTIPROC_DIR.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from callboard.core import TOKEN_KINDS, Usage
from callboard.telemetry.prometheus import render_metrics, tool_metrics

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._tools = tool_metrics()
        options: dict[str, Any] = {"registry": self._registry}
        requests = Counter(
            "callboard_requests", "Requests by front, backend and outcome", ["front", "backend", "end"], **options
        )
        what = "Seconds from the request to the end of the reply"
        seconds = Histogram("callboard_request_seconds", what, ["front"], buckets=_SECONDS, **options)
        tokens = Counter("callboard_tokens", "Tokens that backends counted", ["backend", "kind"], **options)
        # `labels` takes a lock to find what it has made once, and never forgets it.
        self._requests, self._seconds, self._tokens = (
            cache(requests.labels),
            cache(seconds.labels),
            cache(tokens.labels),
        )
        self._cost = Counter(
            "callboard_cost_dollars", "Cost of replies in US dollars, if the price is known", ["backend"], **options
        )
        self._quotations = Counter(
            "callboard_quoted_calls",
            "Calls in text that repeated a source of the conversation and were passed on as text",
            ["backend"],
            **options,
        )
        self._open = Gauge(
            "callboard_open_requests",
            "Requests whose reply has not ended",
            multiprocess_mode="livesum",
            **options,
        )
        self._breakers = Gauge(
            "callboard_breaker_open", "1 if the breaker of the backend is open, else 0", ["backend"],
            multiprocess_mode="livemax", **options,
        )  # fmt: skip

    def begin_request(self) -> None:
        self._open.inc()

    def add_quotations(self, backend: str, count: int) -> None:
        self._quotations.labels(backend).inc(count)

    def end_request(
        self, front: str, backend: str, end: str, seconds: float, usage: Usage, *, cost: float | None = None
    ) -> None:
        self._open.dec()
        self._requests(front, backend, end).inc()
        self._seconds(front).observe(seconds)
        if cost:
            self._cost.labels(backend).inc(cost)
        for kind in TOKEN_KINDS:
            if count := getattr(usage, kind):
                self._tokens(backend, kind).inc(count)

    def set_breaker(self, backend: str, *, is_open: bool) -> None:
        self._breakers.labels(backend).set(is_open)

    def render(self) -> bytes:
        return render_metrics([self._registry, self._tools.registry])
