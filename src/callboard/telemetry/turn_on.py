"""Turn telemetry on and off: where it goes, by the user's providers, our settings, or the standard variables."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.telemetry import switch
from callboard.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider

    from callboard.telemetry.recorder import RecordValue

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS: Final = {"traces": "v1/traces", "metrics": "v1/metrics"}
_shutdowns: list[Callable[[], Any]] = []
_own: list[SdkTracerProvider] = []
"""The provider of spans that was made here. It is used again, for OpenTelemetry takes no other in its place."""


def wants_telemetry(settings: TelemetrySettings, environ: Mapping[str, str]) -> bool:
    """Whether the settings or the environment say where telemetry goes, and nothing says that it is off."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    variables = (_ENDPOINT, *[_variable(signal) for signal in _SIGNALS])
    return bool(settings.endpoint or any(environ.get(each) for each in variables))


def enable(
    settings: TelemetrySettings | None = None,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    timeout: float | None = None,
) -> None:
    """Tell what this process does from now on, as spans and metrics.

    A provider that the program has set for OpenTelemetry is used. Where there is none, OTLP is sent over HTTP; the
    provider of spans becomes the program's, so that other libraries' spans are in the same traces. The variables
    OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER may say `none`; the other standard ones are OpenTelemetry's own.

    Args:
        settings: What `[telemetry]` says.
        tracer_provider: In the place of any other.
        meter_provider: Likewise.
        timeout: Seconds that one batch has to be sent in, tries and all, unless OTEL_EXPORTER_OTLP_TIMEOUT says it.

    Raises:
        CallerError: The extra `otel` is not installed, or OTLP is to be sent in a way that this library lacks.
    """
    if switch.recorder is not None:
        return
    require_extra("otel")
    from callboard.telemetry.recorder import Recorder, instrument  # noqa: PLC0415  # where telemetry is turned on

    settings = settings or TelemetrySettings()
    tracer = _open_tracer(tracer_provider or _find_tracers(), settings, timeout)
    meters = meter_provider or _find_meters()
    record = instrument(meters) if meters else _send_histograms(settings, timeout)
    captures = settings.captures(os.environ)
    switch.recorder = Recorder(tracer, record, max_content=settings.max_content if captures else 0)


def disable() -> None:
    """Tell nothing more, and send what was told. Providers that were the program's own stay open."""
    switch.recorder = None
    while _shutdowns:
        _shutdowns.pop()()


def _find_tracers() -> TracerProvider | None:
    """The program's own, if it has one."""
    from opentelemetry import trace  # noqa: PLC0415  # as above

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) or provider in _own else provider


def _find_meters() -> MeterProvider | None:
    from opentelemetry import metrics  # noqa: PLC0415  # as above

    provider = metrics.get_meter_provider()
    # The stand-in for one that is not there has no public name.
    return None if type(provider).__name__ == "_ProxyMeterProvider" else provider


def _open_tracer(provider: TracerProvider | None, settings: TelemetrySettings, timeout: float | None) -> Any:
    """What begins our spans: a tracer of the program's provider, or one that sends OTLP, or one that does nothing."""
    from opentelemetry import trace  # noqa: PLC0415  # as above

    from callboard.telemetry import names  # noqa: PLC0415
    from callboard.telemetry.plain_spans import make_tracer  # noqa: PLC0415

    scope = names.SCOPE, version("callboard")
    if provider is None and (own := _make_provider(settings, timeout)):
        return make_tracer(own, *scope)
    return (provider or trace.NoOpTracerProvider()).get_tracer(*scope)


def _make_provider(settings: TelemetrySettings, timeout: float | None) -> SdkTracerProvider | None:
    endpoint = _endpoint(settings, "traces")
    if endpoint is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415  # as above
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from callboard.telemetry.span_encoder import FastSpanExporter  # noqa: PLC0415

    if not _own:
        _own.append(SdkProvider(resource=_resource(settings), shutdown_on_exit=False))
        trace.set_tracer_provider(_own[0])
    provider = _own[0]
    provider.add_span_processor(
        BatchSpanProcessor(FastSpanExporter(endpoint=endpoint or None, timeout=_timeout(timeout, "traces")))
    )
    atexit.register(provider.shutdown)
    _shutdowns.append(provider.shutdown)
    return provider


def _send_histograms(settings: TelemetrySettings, timeout: float | None) -> RecordValue | None:
    endpoint = _endpoint(settings, "metrics")
    if endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415  # as above
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    from callboard.telemetry import names  # noqa: PLC0415
    from callboard.telemetry.histograms import Histograms, MetricsSender  # noqa: PLC0415

    histograms = Histograms()
    exporter = OTLPMetricExporter(endpoint=endpoint or None, timeout=_timeout(timeout, "metrics"))
    sender = MetricsSender(histograms, exporter, _resource(settings), InstrumentationScope(names.SCOPE))
    atexit.register(sender.close)
    _shutdowns.append(sender.close)
    return histograms.add


def _resource(settings: TelemetrySettings) -> Any:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # as above

    # The environment goes above what is given here, and so does OTEL_SERVICE_NAME.
    return Resource.create(
        {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": settings.service_name or "callboard"}
    )


def _endpoint(settings: TelemetrySettings, signal: str) -> str | None:
    """Where a signal goes: "" leaves it to OpenTelemetry's exporter, None sends none."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    exporter = os.environ.get(variable, "otlp").strip() or "otlp"
    if exporter == "none":
        return None
    if exporter != "otlp":
        hint = "otlp and none are there; a program of your own sets any provider before it calls enable"
        raise CallerError(f"no exporter {exporter!r}", path=variable, hint=hint)
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            raise CallerError(f"no protocol {os.environ[name]!r}", path=name, hint="OTLP is sent as http/protobuf")
    if os.environ.get(_ENDPOINT) or os.environ.get(_variable(signal)) or not settings.endpoint:
        return ""
    return f"{settings.endpoint.rstrip('/')}/{_SIGNALS[signal]}"


def _timeout(seconds: float | None, signal: str) -> float | None:
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
    return None if any(os.environ.get(each) for each in names) else seconds


def _variable(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
