"""Spans for OpenTelemetry's pipeline, in a third of the time of the SDK's own.

The SDK copies and checks a span's attributes under a lock each time that some are added, which took a tenth of a short
request to the gateway. What our rooms add is known to be plain, so it is only collected; anything else that other code
adds through OpenTelemetry's API, such as a tool that sets an attribute of the current span, is checked by the SDK.

Law: sampler, identifiers, resource and processors are the provider's own, and a processor gets what the SDK would have
given it (tests/telemetry/test_plain_spans.py).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

_LIMIT: Final = 128
"""The SDK's default of attributes, events and links of a span, and of attributes of an event."""
_PLAIN: Final = frozenset({str, bool, int, float})
"""Types of values that nothing is to be checked or copied of."""


class PlainSpan(trace.Span, sdk.ReadableSpan):
    """A span that is recorded. While it is open it is read as the SDK's spans are; ended, it goes to the processor."""

    _context: SpanContext
    _attributes: dict[str, Any] | BoundedAttributes
    _events: Any
    _links: Any

    def __init__(
        self,
        tracer: PlainTracer,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        *,
        kind: SpanKind,
        attributes: Mapping[str, Any],
    ) -> None:
        super().__init__(
            name,
            context,
            parent,
            tracer.resource,
            {},
            kind=kind,
            start_time=time_ns(),
            instrumentation_scope=tracer.scope,
        )
        self._processor = tracer.processor
        self.set_attributes(attributes)

    def get_span_context(self) -> SpanContext:
        return self._context

    def is_recording(self) -> bool:
        return self._end_time is None

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self._end_time is not None:
            return
        held = self._attributes
        if type(held) is dict and not (_are_plain(attributes) and len(held) + len(attributes) <= _LIMIT):
            held = self._attributes = BoundedAttributes(_LIMIT, held, immutable=False)
        held.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        self.set_attributes({key: value})

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        if self._end_time is None:
            self._events = self._events or BoundedList(_LIMIT)
            self._events.append(sdk.Event(name, BoundedAttributes(_LIMIT, attributes), timestamp))

    def add_link(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        if self._end_time is None and context.is_valid:
            self._links = self._links or BoundedList(_LIMIT)
            self._links.append(Link(context, BoundedAttributes(_LIMIT, attributes)))

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        kind = type(exception)
        about = {
            "exception.type": kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}",
            "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", {**about, **(attributes or {})}, timestamp)

    def update_name(self, name: str) -> None:
        if self._end_time is None:
            self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        new = status if isinstance(status, Status) else Status(status, description)
        is_final = self._status.status_code is StatusCode.OK or self._end_time is not None
        if not is_final and new.status_code is not StatusCode.UNSET:
            self._status = new

    def end(self, end_time: int | None = None) -> None:
        if self._end_time is None:
            self._end_time = end_time or time_ns()
            self._processor.on_end(self)


class PlainTracer:
    """Begins plain spans in the place of a tracer of the SDK's."""

    def __init__(self, tracer: sdk.Tracer, scope: InstrumentationScope) -> None:
        self.resource = tracer.resource
        self.processor = tracer.span_processor
        self.scope = scope
        self._sampler = tracer.sampler
        self._identifiers = tracer.id_generator
        self._root_flags = TraceFlags.RANDOM_TRACE_ID if self._identifiers.is_trace_id_random() else TraceFlags.DEFAULT

    def start_span(self, name: str, context: Context, kind: SpanKind, attributes: Mapping[str, Any]) -> trace.Span:
        """Begin a span below the one that is current in a context; one that records nothing where none is sampled."""
        outer = trace.get_current_span(context).get_span_context()
        parent = outer if outer.is_valid else None
        if parent is None:
            trace_id, flags, state = self._identifiers.generate_trace_id(), self._root_flags, None
        else:
            trace_id, flags, state = (
                parent.trace_id,
                parent.trace_flags & TraceFlags.RANDOM_TRACE_ID,
                parent.trace_state,
            )
        if self._sampler is DEFAULT_ON:  # to ask it takes as long as all the rest, and what it says is known
            is_sampled = parent is None or parent.trace_flags.sampled
        else:
            result = self._sampler.should_sample(context, trace_id, name, kind, attributes)
            is_sampled, state = result.decision is Decision.RECORD_AND_SAMPLE, result.trace_state
        flags = TraceFlags(flags | TraceFlags.SAMPLED if is_sampled else flags)
        own = SpanContext(trace_id, self._identifiers.generate_span_id(), False, flags, state)
        if not is_sampled:
            return NonRecordingSpan(own)
        span = PlainSpan(self, name, own, parent, kind=kind, attributes=attributes)
        # It is one of the SDK's in all but its class.
        self.processor.on_start(span, parent_context=context)  # type: ignore[arg-type]
        return span


def make_tracer(provider: sdk.TracerProvider, name: str, version: str) -> PlainTracer | trace.Tracer:
    """A tracer of a provider.

    It is the SDK's own where the provider is off, or where a variable such as OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT sets
    limits other than the defaults, which plain spans have.
    """
    tracer = provider.get_tracer(name, version)
    has_limits = any(each.startswith("OTEL_") and each.endswith("_LIMIT") for each in os.environ)
    if has_limits or not isinstance(tracer, sdk.Tracer):
        return tracer
    return PlainTracer(tracer, InstrumentationScope(name, version))


def _are_plain(attributes: Mapping[str, Any]) -> bool:
    """Whether nothing of them would be checked or copied."""
    for key, value in attributes.items():
        kind = type(value)
        is_plain = kind in _PLAIN or (kind is tuple and all(type(each) is str for each in value))
        if not is_plain or type(key) is not str or not key:
            return False
    return True
