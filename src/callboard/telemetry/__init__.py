"""What Callboard tells of itself: spans and metrics by OpenTelemetry's conventions, counts of tool calls, log lines.

A room tells what it does by a span and by measured values. While telemetry is off a span is `NO_SPAN`, which
does nothing, and nothing of OpenTelemetry is imported. Where a span would cost a hot path its attributes, the path looks
at `switch.recorder` first, which is one load of an attribute. `enable` turns it on; only the counts are always there.

Laws: what is told never changes what is done, and no failure of it reaches the caller; no text of a model, a tool or a
client is in a span's name, status or attributes, but for names of models and tools, unless content is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from callboard.telemetry.counts import ToolCount, tool_counts
    from callboard.telemetry.names import Metric
    from callboard.telemetry.recorder import RecordedSpan, Recorder
    from callboard.telemetry.settings import TelemetrySettings
    from callboard.telemetry.turn_on import disable, enable, wants_telemetry

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

_HOMES = {
    "TelemetrySettings": "settings",
    "ToolCount": "counts",
    "disable": "turn_on",
    "enable": "turn_on",
    "tool_counts": "counts",
    "wants_telemetry": "turn_on",
}

_T = TypeVar("_T")
SpanKind: TypeAlias = Literal["internal", "client", "server", "producer", "consumer"]
Value: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = Mapping[str, Value]
_NOTHING: Final[Mapping[str, str]] = {}


class Switch:
    """Where this process tells what it does; None is nowhere."""

    recorder: Recorder | None = None


switch: Final = Switch()


class NoSpan:
    """The span of a process that tells nothing."""

    headers: Mapping[str, str] = _NOTHING
    max_content = 0
    seconds = 0.0
    error_type = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, attributes: Attributes) -> None:
        pass

    def set_content(self, name: str, content: Any) -> None:
        pass

    def fail(self, kind: str) -> None:
        pass

    def end(self) -> None:
        pass

    async def during(self, awaited: Awaitable[_T]) -> _T:
        return await awaited


NO_SPAN: Final = NoSpan()
Span: TypeAlias = "RecordedSpan | NoSpan"


def open_span(
    name: str,
    kind: SpanKind = "internal",
    attributes: Attributes | None = None,
    *,
    parent: Mapping[str, str] | None = None,
) -> Span:
    """Begin a span.

    Used with `with` it is the parent of all that begins within. A generator, whose caller's context it would change,
    opens it without, awaits within `Span.during`, and ends it.

    Args:
        name: Of low cardinality: it has no identifier in it.
        kind: Its place between processes.
        attributes: What is known of it already; the keys are those of `names`.
        parent: Headers of whoever asked for it, such as `traceparent`; without them it is the span that is current.

    Returns:
        The span, which its caller ends.
    """
    recorder = switch.recorder
    return NO_SPAN if recorder is None else recorder.begin(name, kind, attributes or {}, parent)


def record(metric: Metric, value: float, attributes: Attributes) -> None:
    """Add a measured value to a histogram."""
    if switch.recorder is not None:
        switch.recorder.record(metric, value, attributes)


def current_headers() -> Mapping[str, str]:
    """The headers that make another process's span a child of the one that is current."""
    return _NOTHING if switch.recorder is None else switch.recorder.current_headers()


def trace_identifiers() -> Mapping[str, str]:
    """`trace_id` and `span_id` of the span that is current, for log lines; empty where there is none."""
    return _NOTHING if switch.recorder is None else switch.recorder.trace_identifiers()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
