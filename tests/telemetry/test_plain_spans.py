"""A processor gets of a plain span what it gets of the SDK's own, whoever says what of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from callboard.telemetry.plain_spans import PlainTracer, make_tracer

KEYS = st.sampled_from(["a", "b", "gen_ai.request.model"])
VALUES = st.one_of(
    st.text(max_size=5),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(allow_nan=False),
    st.tuples(st.text(max_size=3)),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=3)
PARENTS = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.sampled_from([TraceFlags(flags) for flags in range(4)]),
    st.sampled_from([None, TraceState([("vendor", "1")])]),
)
OPERATIONS = st.one_of(
    st.tuples(st.just("set_attributes"), ATTRIBUTES),
    st.tuples(st.just("set_attribute"), KEYS, VALUES),
    st.tuples(st.just("add_event"), KEYS, ATTRIBUTES, st.integers(1, 9)),
    st.tuples(st.just("add_link"), PARENTS, ATTRIBUTES),
    st.tuples(st.just("set_status"), st.sampled_from([Status(), Status(StatusCode.ERROR, "x"), StatusCode.OK])),
    st.tuples(st.just("update_name"), KEYS),
    st.tuples(st.just("record_exception"), st.sampled_from([ValueError("x"), TimeoutError()]), ATTRIBUTES, st.just(5)),
    st.tuples(st.just("end"), st.integers(100, 900)),
)
SAMPLERS = [DEFAULT_ON, ALWAYS_OFF, ParentBased(TraceIdRatioBased(0.5))]


class Pipeline:
    """A provider of the SDK's, what makes its plain spans, and what came out of it."""

    def __init__(self, sampler=DEFAULT_ON):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, Resource({"service.name": "x"}), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.plain = make_tracer(self.provider, "callboard", "1")
        self.official = self.provider.get_tracer("callboard", "1")

    def take(self):
        """The spans that were exported, without what no two spans have in common."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        return [
            (
                span.name, span.kind, dict(span.attributes), span.status.status_code, span.status.description,
                [(each.name, dict(each.attributes), each.timestamp) for each in span.events],
                [(each.context, dict(each.attributes)) for each in span.links],
                (span.dropped_attributes, span.dropped_events, span.dropped_links),
                span.end_time, span.parent, span.resource, span.instrumentation_scope,
                span.context.trace_flags, span.context.trace_state,
            )
            for span in spans
        ]  # fmt: skip


@given(st.none() | PARENTS, st.sampled_from(SpanKind), ATTRIBUTES, st.lists(OPERATIONS, max_size=8))
def test_it_is_what_the_sdk_would_have_made(parent, kind, attributes, operations):
    pipeline = Pipeline()
    outer = contexts.Context() if parent is None else set_span_in_context(NonRecordingSpan(parent))
    found = []
    for tracer in (pipeline.plain, pipeline.official):
        span = tracer.start_span("name", outer, kind, attributes)
        for name, *values in operations:
            getattr(span, name)(*values)
        ended = not span.is_recording()
        span.end(1000)
        found.append((pipeline.take(), ended, span.get_span_context().trace_id if parent else None))
    assert found[0] == found[1]
    assert isinstance(pipeline.plain, PlainTracer)


@given(st.none() | PARENTS, st.sampled_from(SAMPLERS))
def test_a_sampler_decides_as_for_the_sdk(parent, sampler):
    pipeline = Pipeline(sampler)
    outer = contexts.Context() if parent is None else set_span_in_context(NonRecordingSpan(parent))
    theirs = pipeline.official.start_span("name", outer)
    pipeline.provider.id_generator.generate_trace_id = lambda: theirs.get_span_context().trace_id
    pipeline.plain._identifiers = pipeline.provider.id_generator
    ours = pipeline.plain.start_span("name", outer, SpanKind.INTERNAL, {})
    assert ours.is_recording() == theirs.is_recording()
    first, second = ours.get_span_context(), theirs.get_span_context()
    assert (first.trace_id, first.trace_flags, first.trace_state) == (
        second.trace_id,
        second.trace_flags,
        second.trace_state,
    )


def test_spans_of_others_are_below_it():
    pipeline = Pipeline()
    span = pipeline.plain.start_span("ours", contexts.get_current(), SpanKind.SERVER, {})
    with trace.use_span(span, end_on_exit=True), pipeline.official.start_as_current_span("theirs"):
        trace.get_current_span().set_attribute("a", 1)
    theirs, ours = pipeline.exporter.get_finished_spans()
    assert theirs.parent == ours.context


def test_so_much_is_kept_and_no_more():
    pipeline = Pipeline()
    for tracer in (pipeline.plain, pipeline.official):
        span = tracer.start_span("x", contexts.get_current(), SpanKind.INTERNAL, {"first": 1})
        for number in range(200):
            span.set_attribute(str(number), number)
            span.add_event(str(number), {}, 1)
        span.end(1)
    ours, theirs = pipeline.take()
    assert ours == theirs
    assert len(ours[2]) == 128


@pytest.mark.parametrize("name", ["OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT"])
def test_other_limits_are_the_sdks_to_keep(monkeypatch, name):
    monkeypatch.setenv(name, "5")
    assert not isinstance(Pipeline().plain, PlainTracer)


def test_a_provider_that_is_off_makes_no_spans(monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    pipeline = Pipeline()
    span = pipeline.plain.start_span("x", contexts.get_current(), SpanKind.INTERNAL, {})
    assert not span.is_recording()
