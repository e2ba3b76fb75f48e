"""Telemetry: OpenTelemetry spans and metrics, counts of tool calls, and log lines."""

from callboard.telemetry.counts import ToolCount, tool_counts
from callboard.telemetry.spans import (
    NO_SPAN,
    NoSpan,
    Span,
    current_headers,
    open_span,
    record,
    switch,
    trace_identifiers,
)
from callboard.telemetry.turn_on import TelemetrySettings, disable, enable, wants_telemetry

__all__ = [
    "NO_SPAN",
    "NoSpan",
    "Span",
    "TelemetrySettings",
    "ToolCount",
    "current_headers",
    "disable",
    "enable",
    "open_span",
    "record",
    "switch",
    "tool_counts",
    "trace_identifiers",
    "wants_telemetry",
]
