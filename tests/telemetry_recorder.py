"""Telemetry that a test can read: spans and metrics in memory, and everything off again behind the test."""

import pytest


class Told:
    """What was told: `spans` in the order in which they ended, `metrics` by their names."""

    def __init__(self, exporter, reader):
        self._exporter = exporter
        self._reader = reader

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def named(self, name):
        """The only span of this name."""
        (span,) = [each for each in self.spans if each.name == name]
        return span

    @property
    def metrics(self):
        data = self._reader.get_metrics_data()
        scopes = data.resource_metrics[0].scope_metrics if data else []
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry(monkeypatch):
    """A function that turns telemetry on with settings, and gives what is told from then on."""
    # Most tests never come here.
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from callboard.telemetry import TelemetrySettings, disable, enable

    for name in ("OTEL_SDK_DISABLED", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"):
        monkeypatch.delenv(name, raising=False)
    providers = []

    def turn_on(**settings):
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(exporter))
        enable(TelemetrySettings(**settings), tracer_provider=tracers, meter_provider=meters)
        providers.extend([tracers, meters])
        return Told(exporter, reader)

    yield turn_on
    disable()
    for provider in providers:
        provider.shutdown()
