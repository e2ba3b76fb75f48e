"""`[telemetry]` in the user's callboard.toml, and the variables of the same meaning.

The addresses say where prompts may go, so no project's file has them, trusted or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
LOGS_VARIABLE: Final = "CALLBOARD_LOGS"
_CAPTURES: Final = frozenset({"true", "1", "span_only", "span_and_event"})
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
