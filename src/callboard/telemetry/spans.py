"""Spans and measured values. While telemetry is off, a span is `NO_SPAN`, which does nothing.

Nothing of OpenTelemetry is imported until `enable` turns telemetry on. A hot path looks at `switch.recorder` before it
makes the attributes of a span.

Laws: telemetry never changes what is done, and none of its failures reaches the caller. The name, status and attributes
of a span hold no text of a model, a tool or a client, except names of models and tools, unless content is captured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from callboard.telemetry.names import Metric
    from callboard.telemetry.recorder import RecordedSpan, Recorder

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
