"""`[telemetry]` in the user's callboard.toml, and turning telemetry on and off.

Prompts may be sent to the addresses, so a project's file may not set them, even if it is trusted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.telemetry.spans import switch

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
LOGS_VARIABLE: Final = "CALLBOARD_LOGS"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS: Final = {"traces": "v1/traces", "metrics": "v1/metrics"}
_CAPTURES: Final = frozenset({"true", "1", "span_only", "span_and_event"})
_shutdowns: list[Callable[[], Any]] = []

LogFormat = Literal["text", "json"]


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[telemetry]`."""

    endpoint: str = ""
    """URL for OTLP over HTTP, such as `http://127.0.0.1:4318`. The default is OTEL_EXPORTER_OTLP_ENDPOINT."""
    service_name: str = ""
    """Name of the service. OTEL_SERVICE_NAME overrides it, and the default is `callboard`."""
    capture_content: bool = False
    """True to put messages, arguments and results into spans, with secrets masked."""
    max_content: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 16_384
    """Maximum characters of one attribute with content. Longer content is cut."""
    logs: LogFormat = "text"
    """Format of the logs of the gateway, workers and the board: readable lines, or one JSON object per line."""

    def __post_init__(self) -> None:
        if self.endpoint:
            parts = urlsplit(self.endpoint)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("an endpoint begins with http:// or https:// and a host")

    def captures(self, environ: Mapping[str, str]) -> bool:
        """Return whether the settings or `environ` ask for content."""
        return self.capture_content or environ.get(CAPTURE_VARIABLE, "").lower() in _CAPTURES

    def log_format(self, environ: Mapping[str, str]) -> LogFormat:
        """Return the format of log lines. CALLBOARD_LOGS of `environ` overrides the file."""
        return "json" if environ.get(LOGS_VARIABLE, self.logs).lower() == "json" else "text"


def wants_telemetry(settings: TelemetrySettings, environ: Mapping[str, str]) -> bool:
    """Return whether `settings` or `environ` set an endpoint, and telemetry is not disabled."""
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
    """Record spans and metrics of this process from now on.

    OpenTelemetry providers of the program are used if there are any. Otherwise OTLP is sent over HTTP. The provider of
    spans becomes the program's provider, so that spans of other libraries are in the same traces. The variables
    OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER may be `none`. OpenTelemetry reads the other standard variables.

    Args:
        settings: The settings from `[telemetry]`.
        tracer_provider: A provider of spans to use instead.
        meter_provider: A provider of metrics to use instead.
        timeout: Seconds to send one batch, including retries. OTEL_EXPORTER_OTLP_TIMEOUT overrides it.

    Raises:
        CallerError: The extra `otel` is not installed, or the exporter or protocol is not supported.
    """
    if switch.recorder is not None:
        return
    require_extra("otel")
    from callboard.telemetry import recorder  # noqa: PLC0415  # it imports OpenTelemetry

    settings = settings or TelemetrySettings()
    tracers = tracer_provider or recorder.program_tracers()
    meters = meter_provider or recorder.program_meters()
    if tracers is None and (sender := _sender(settings, "traces", timeout)):
        tracers = recorder.send_spans(*sender)
        _shutdowns.append(tracers.shutdown)
    if meters is None and (sender := _sender(settings, "metrics", timeout)):
        meters = recorder.send_metrics(*sender)
        _shutdowns.append(meters.shutdown)
    max_content = settings.max_content if settings.captures(os.environ) else 0
    switch.recorder = recorder.Recorder(tracers, meters, max_content=max_content)


def disable() -> None:
    """Stop telemetry and send remaining data. The program's own providers stay open."""
    switch.recorder = None
    while _shutdowns:
        _shutdowns.pop()()


def _sender(
    settings: TelemetrySettings, signal: str, timeout: float | None
) -> tuple[str | None, float | None, str] | None:
    """Return the endpoint, the timeout and the service name for a signal's exporter. None means the exporter's default.

    Return None if the signal is not sent.
    """
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    exporter = os.environ.get(variable, "otlp").strip() or "otlp"
    if exporter == "none":
        return None
    if exporter != "otlp":
        hint = "use otlp or none; your own program can set any provider before it calls enable"
        raise CallerError(f"no exporter {exporter!r}", path=variable, hint=hint)
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            raise CallerError(f"no protocol {os.environ[name]!r}", path=name, hint="OTLP is sent as http/protobuf")
    endpoint = None
    if settings.endpoint and not any(os.environ.get(each) for each in (_ENDPOINT, _variable(signal))):
        endpoint = f"{settings.endpoint.rstrip('/')}/{_SIGNALS[signal]}"
    timeouts = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
    seconds = None if any(os.environ.get(each) for each in timeouts) else timeout
    return endpoint, seconds, settings.service_name or "callboard"


def _variable(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
