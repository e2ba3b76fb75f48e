"""OpenTelemetry's SDK as Callboard uses it where the program has no providers of its own: spans and metrics as OTLP.

Imported when telemetry is turned on.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Status

from callboard.telemetry import names

SDK_SCOPES: Final = frozenset(("mcp-python-sdk", "acp.telemetry"))
"""Instrumentation scopes of the spans that the SDKs of MCP and ACP make."""
_own: list[TracerProvider] = []
"""The provider that this process made. OpenTelemetry accepts no second one, so it is used again."""


class SafeSpanExporter(OTLPSpanExporter):
    """Sends spans as OTLP, without the error messages that other SDKs put into them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return super().export([without_messages(each) for each in spans])


def program_tracers() -> trace.TracerProvider | None:
    """The provider of spans that the program has set, if there is one."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) or provider in _own else provider


def program_meters() -> metrics.MeterProvider | None:
    """The provider of metrics that the program has set, if there is one."""
    provider = metrics.get_meter_provider()
    # The stand-in for a missing provider has no public name.
    return None if type(provider).__name__ == "_ProxyMeterProvider" else provider


def send_spans(endpoint: str | None, timeout: float | None, service: str) -> TracerProvider:
    """A provider that sends spans in batches. It becomes the program's."""
    if not _own:
        _own.append(TracerProvider(resource=_resource(service), shutdown_on_exit=False))
        trace.set_tracer_provider(_own[0])
    _own[0].add_span_processor(BatchSpanProcessor(SafeSpanExporter(endpoint=endpoint, timeout=timeout)))
    atexit.register(_own[0].shutdown)
    return _own[0]


def send_metrics(endpoint: str | None, timeout: float | None, service: str) -> MeterProvider:
    """A provider that sends metrics every OTEL_METRIC_EXPORT_INTERVAL milliseconds. It stays Callboard's own."""
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint, timeout=timeout))
    return MeterProvider([reader], resource=_resource(service))


def without_messages(span: ReadableSpan) -> ReadableSpan:
    """The span as it may be sent. Spans of other scopes than `SDK_SCOPES` are returned unchanged.

    The SDKs put the text of a server, a tool or a transport into the status and events of a failed span. Only an
    `error.type` remains, as in our own spans.
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
