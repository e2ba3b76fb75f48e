"""Spans and measured values. While telemetry is off, a span is `NO_SPAN`, which does nothing.

OpenTelemetry is imported only when `enable` turns telemetry on. A hot path checks `switch.recorder` before it makes the
attributes of a span.

Laws: telemetry never changes behavior, and the caller never sees its failures. Without content capture, spans have no
text of models, tools or clients, except names of models and tools.
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
    """The recorder of this process, None if telemetry is off."""

    recorder: Recorder | None = None


switch: Final = Switch()


class NoSpan:
    """The span of a process without telemetry. Its `headers` are empty."""

    headers: Mapping[str, str] = _NOTHING
    max_content = 0
    seconds = 0.0
    error_type = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, attributes: Attributes) -> None:
        """Ignore the `attributes`."""

    def set_content(self, name: str, content: Any) -> None:
        """Ignore the `content` of the attribute `name`."""

    def fail(self, kind: str) -> None:
        """Ignore the failure `kind`."""

    def end(self) -> None:
        """Do nothing."""

    async def during(self, awaited: Awaitable[_T]) -> _T:
        """Return what `awaited` returns."""
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
    """Start a span.

    In a `with` statement, it is the parent of all spans that start within. In a generator, `with` would change the
    caller's context. So a generator opens the span without `with`, awaits within `Span.during`, and ends the span.

    Args:
        name: A name of low cardinality, without identifiers.
        kind: The span's role between processes.
        attributes: Attributes that are known at the start, with keys from `names`.
        parent: Headers of the request, such as `traceparent`. By default the parent is the current span.

    Returns:
        The span. The caller ends it.
    """
    recorder = switch.recorder
    return NO_SPAN if recorder is None else recorder.begin(name, kind, attributes or {}, parent)


def record(metric: Metric, value: float, attributes: Attributes) -> None:
    """Add the measured `value` with its `attributes` to the histogram of `metric`."""
    if switch.recorder is not None:
        switch.recorder.record(metric, value, attributes)


def current_headers() -> Mapping[str, str]:
    """Return the headers that make another process's span a child of the current span."""
    return _NOTHING if switch.recorder is None else switch.recorder.current_headers()


def trace_identifiers() -> Mapping[str, str]:
    """Return `trace_id` and `span_id` of the current span for log lines, empty if there is none."""
    return _NOTHING if switch.recorder is None else switch.recorder.trace_identifiers()
