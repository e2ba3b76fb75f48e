"""Spans and metrics through OpenTelemetry. Imported when telemetry is turned on.

If the program has no providers, the SDK's providers send OTLP.
Law: OpenTelemetry logs errors of a span, and the observed code continues.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Awaitable, Mapping, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from callboard.telemetry import names
from callboard.telemetry.content import to_json

if TYPE_CHECKING:
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram

    from callboard.telemetry.names import Metric
    from callboard.telemetry.spans import Attributes, SpanKind

_T = TypeVar("_T")
_KINDS: Final[Mapping[str, OtelKind]] = {each.name.lower(): each for each in OtelKind}
_NO_METRICS: Final = frozenset({404, 405, 501})
"""Statuses of a collector that has no address for metrics."""
_FAILED: Final = Status(StatusCode.ERROR)
_trace_context: Final = TraceContextTextMapPropagator()
"""Propagates only `traceparent` and `tracestate`, because a client can write anything as baggage."""


class Recorder:
    """Records spans and metrics. A provider that is None gets none. `max_content` is 0 if no content is captured."""

    def __init__(
        self, tracers: trace.TracerProvider | None, meters: metrics.MeterProvider | None, *, max_content: int = 0
    ) -> None:
        scope = names.SCOPE, version("callboard")
        self.max_content = max_content
        self._tracer = (tracers or trace.NoOpTracerProvider()).get_tracer(*scope)
        self._meter = (meters or NoOpMeterProvider()).get_meter(*scope)
        self._histograms: dict[Metric, Histogram] = {}

    def begin(
        self, name: str, kind: SpanKind, attributes: Attributes, parent: Mapping[str, str] | None
    ) -> RecordedSpan:
        """Start a span. Its parent is the span in the headers of `parent`, if there is one."""
        outer = contexts.get_current() if not parent else _trace_context.extract(parent)
        span = self._tracer.start_span(name, outer, _KINDS[kind], attributes)
        return RecordedSpan(span, trace.set_span_in_context(span, outer), self.max_content)

    def current_headers(self) -> Mapping[str, str]:
        """Return the headers of the current span."""
        return _headers(contexts.get_current())

    def trace_identifiers(self) -> Mapping[str, str]:
        """Return the identifiers of the current span, for logs."""
        current = trace.get_current_span().get_span_context()
        if not current.is_valid:
            return {}
        return {"trace_id": trace.format_trace_id(current.trace_id), "span_id": trace.format_span_id(current.span_id)}

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to the histogram of a metric."""
        histogram = self._histograms.get(metric)
        if histogram is None:
            histogram = self._histograms[metric] = self._meter.create_histogram(
                metric.name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.bounds
            )
        histogram.record(value, attributes)


class RecordedSpan:
    """An open span. A second end has no effect."""

    def __init__(self, span: trace.Span, inside: Context, max_content: int) -> None:
        self._span = span
        self._inside = inside
        self._max_content = max_content
        self._token: Token[Context] | None = None
        self._begun = perf_counter()
        self.error_type = ""

    @property
    def seconds(self) -> float:
        """Seconds since the start of the span."""
        return perf_counter() - self._begun

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that make another process's span a child of this span."""
        return _headers(self._inside)

    @property
    def max_content(self) -> int:
        """Maximum characters of content in an attribute, 0 if content is not captured."""
        return self._max_content if self._span.is_recording() else 0

    def __enter__(self) -> Self:
        self._token = contexts.attach(self._inside)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None and not self.error_type:
            self.fail(kind.__qualname__)
        self.end()

    async def during(self, awaited: Awaitable[_T]) -> _T:
        """Await something with this span as the current span."""
        token = contexts.attach(self._inside)
        try:
            return await awaited
        finally:
            contexts.detach(token)

    def set(self, attributes: Attributes) -> None:
        """Add or replace attributes."""
        self._span.set_attributes(attributes)

    def set_content(self, name: str, content: Any) -> None:
        """Add an attribute with masked and cut JSON."""
        self._span.set_attribute(name, to_json(content))

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with a word of low cardinality. Others may write messages, so none is recorded."""
        self.error_type = kind
        self._span.set_attribute(names.ERROR_TYPE, kind)
        self._span.set_status(_FAILED)

    def end(self) -> None:
        """End the span now."""
        if self._span.is_recording():
            self._span.end()


def _headers(context: Context) -> Mapping[str, str]:
    carrier: dict[str, str] = {}
    _trace_context.inject(carrier, context)
    return carrier


SDK_SCOPES: Final = frozenset(("mcp-python-sdk", "acp.telemetry"))
"""Instrumentation scopes of the spans from the SDKs of MCP and ACP."""
_own: list[TracerProvider] = []
"""The provider that this process made. It is reused, because OpenTelemetry accepts only one provider."""


class SafeSpanExporter(OTLPSpanExporter):
    """Sends spans as OTLP, without the error messages that other SDKs put into them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return super().export([without_messages(each) for each in spans])


def program_tracers() -> trace.TracerProvider | None:
    """Return the program's own provider of spans, if there is one."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) or provider in _own else provider


def program_meters() -> metrics.MeterProvider | None:
    """Return the program's own provider of metrics, if there is one."""
    provider = metrics.get_meter_provider()
    # The stand-in for a missing provider has no public name.
    return None if type(provider).__name__ == "_ProxyMeterProvider" else provider


def send_spans(endpoint: str | None, timeout: float | None, service: str) -> TracerProvider:
    """Return a provider that sends spans in batches, and make it the program's provider."""
    if not _own:
        _own.append(TracerProvider(resource=_resource(service), shutdown_on_exit=False))
        trace.set_tracer_provider(_own[0])
    _own[0].add_span_processor(BatchSpanProcessor(SafeSpanExporter(endpoint=endpoint, timeout=timeout)))
    atexit.register(_own[0].shutdown)
    return _own[0]


def send_metrics(endpoint: str | None, timeout: float | None, service: str) -> MeterProvider:
    """Return a provider for Callboard's metrics that sends them every OTEL_METRIC_EXPORT_INTERVAL milliseconds."""
    logging.getLogger(OTLPMetricExporter.__module__).addFilter(_RefusedMetrics())
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint, timeout=timeout))
    return MeterProvider([reader], resource=_resource(service))


class _RefusedMetrics(logging.Filter):
    """Says once what helps if the collector takes no metrics, instead of the SDK's line about each batch."""

    def __init__(self) -> None:
        super().__init__()
        self._has_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        kind, status, *_ = record.args if isinstance(record.args, tuple) and len(record.args) > 1 else ("", 0)
        if kind != "metrics" or status not in _NO_METRICS:
            return True
        record.msg = "the collector takes no metrics (HTTP %s); OTEL_METRICS_EXPORTER=none turns them off"
        record.args = (status,)
        is_first, self._has_said = not self._has_said, True
        return is_first


def without_messages(span: ReadableSpan) -> ReadableSpan:
    """Remove messages from a span of `SDK_SCOPES`. Return other spans unchanged.

    The SDKs put texts of servers, tools and transports into the status and events of a failed span. Keep only an
    `error.type`, as in our own spans.
    """
    scope = span.instrumentation_scope
    if scope is None or scope.name not in SDK_SCOPES or not (span.events or span.status.description):
        return span
    attributes = dict(span.attributes or {})
    for event in span.events:
        if kind := (event.attributes or {}).get(names.EXCEPTION_TYPE):
            attributes.setdefault(names.ERROR_TYPE, kind)
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )


def _resource(service: str) -> Resource:
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the settings.
    return Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": service})
