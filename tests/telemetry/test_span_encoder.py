"""A reader of OTLP reads the same from our bytes as from those of OpenTelemetry's own encoder."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as official
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from callboard.telemetry import span_encoder
from callboard.telemetry.span_encoder import FastSpanExporter, encode_spans

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(TEXTS, max_size=3).map(tuple),
)
ATTRIBUTES = st.dictionaries(TEXTS.filter(bool), VALUES, max_size=6)
CONTEXTS = st.builds(
    SpanContext, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans(), st.just(TraceFlags(1))
)
RESOURCES = [Resource({}), Resource({"service.name": "x", "n": 5}, "https://example.com/schema")]
SCOPES = [
    None,
    InstrumentationScope("callboard", "1"),
    InstrumentationScope("other", None, "https://example.com/s", {"a": 1}),
]
SPANS = st.builds(
    ReadableSpan,
    name=TEXTS,
    context=CONTEXTS,
    parent=st.none() | CONTEXTS,
    resource=st.sampled_from(RESOURCES),
    attributes=ATTRIBUTES,
    events=st.lists(st.builds(Event, TEXTS, ATTRIBUTES, st.integers(1, 2**62)), max_size=2),
    kind=st.sampled_from(SpanKind),
    status=st.sampled_from([Status(), Status(StatusCode.OK), Status(StatusCode.ERROR, "why")]),
    start_time=st.integers(1, 2**62),
    end_time=st.integers(1, 2**62),
    instrumentation_scope=st.sampled_from(SCOPES),
)


def read(spans):
    """What is read, with the groups in one order."""
    message = ExportTraceServiceRequest.FromString(encode_spans(spans))
    expected = ExportTraceServiceRequest.FromString(official(spans).SerializeToString())
    return [
        sorted(
            [
                (resource.resource.SerializeToString(), resource.schema_url, scope.scope.SerializeToString(),
                 scope.schema_url, [each.SerializeToString() for each in scope.spans])
                for resource in each.resource_spans for scope in resource.scope_spans
            ],
            key=repr,
        )
        for each in (message, expected)
    ]  # fmt: skip


@given(st.lists(SPANS, max_size=4))
def test_both_encoders_say_the_same(spans):
    ours, theirs = read(spans)
    assert ours == theirs


def test_what_it_does_not_encode_goes_the_other_way(monkeypatch):
    sent = []

    class Client:
        def export(self, data):
            sent.append(ExportTraceServiceRequest.FromString(data))
            return type("Result", (), {"success": True, "error": None, "status_code": 200})

    exporter = FastSpanExporter(endpoint="http://127.0.0.1:9/v1/traces")
    monkeypatch.setattr(exporter, "_client", Client())
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("x")
    span = tracer.start_span("linked", links=[Link(SpanContext(1, 2, is_remote=True))])
    span.end()
    exporter.export([span])
    monkeypatch.setattr(span_encoder, "encode_spans", lambda spans: official(spans).SerializeToString() + b"")
    plain = tracer.start_span("plain")
    plain.end()
    exporter.export([plain])
    first, second = [each.resource_spans[0].scope_spans[0].spans[0] for each in sent]
    assert (first.name, len(first.links), second.name) == ("linked", 1, "plain")
