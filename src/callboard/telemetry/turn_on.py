"""`[telemetry]` in the user's callboard.toml, and turning telemetry on and off.

The addresses say where prompts may go, so no project's file has them, trusted or not.
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
    """Where OTLP is sent over HTTP, such as `http://127.0.0.1:4318`; empty leaves it to OTEL_EXPORTER_OTLP_ENDPOINT."""
    service_name: str = ""
    """In the place of `callboard`; OTEL_SERVICE_NAME goes above it."""
    capture_content: bool = False
    """Whether messages, arguments and results are put into spans, with secrets masked."""
    max_content: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 16_384
    """Characters of one attribute with content; what is more is cut."""
    logs: LogFormat = "text"
    """How the gateway, a worker and the board write their log: lines to read, or one JSON object a line."""

    def __post_init__(self) -> None:
        if self.endpoint:
            parts = urlsplit(self.endpoint)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("an endpoint begins with http:// or https:// and a host")

    def captures(self, environ: Mapping[str, str]) -> bool:
        """Whether content is asked for, here or in the environment."""
        return self.capture_content or environ.get(CAPTURE_VARIABLE, "").lower() in _CAPTURES

    def log_format(self, environ: Mapping[str, str]) -> LogFormat:
        """How log lines are written; CALLBOARD_LOGS goes above the file."""
        return "json" if environ.get(LOGS_VARIABLE, self.logs).lower() == "json" else "text"


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
    """Stop telemetry and send what is left. Providers that the program set stay open."""
    switch.recorder = None
    while _shutdowns:
        _shutdowns.pop()()


def _sender(
    settings: TelemetrySettings, signal: str, timeout: float | None
) -> tuple[str | None, float | None, str] | None:
    """The endpoint, the timeout and the service name of a signal's exporter. None leaves a value to the exporter.

    The whole result is None if the signal is not sent.
    """
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
    endpoint = None
    if settings.endpoint and not any(os.environ.get(each) for each in (_ENDPOINT, _variable(signal))):
        endpoint = f"{settings.endpoint.rstrip('/')}/{_SIGNALS[signal]}"
    timeouts = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
    seconds = None if any(os.environ.get(each) for each in timeouts) else timeout
    return endpoint, seconds, settings.service_name or "callboard"


def _variable(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
