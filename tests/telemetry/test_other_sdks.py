"""What the SDKs of MCP and ACP tell of a failure is its kind, and nobody's words."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode
from tests.tables import table

from callboard.telemetry import names
from callboard.telemetry.recorder import SDK_SCOPES, without_messages


def failed_span(scope):
    """A span as these SDKs make it, whose block raised."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer(scope)
    with (
        pytest.raises(ValueError, match="hunter2"),
        tracer.start_as_current_span("MCP send tools/list", attributes={"a": 1}) as span,
    ):
        raise ValueError("the password is hunter2")
    return span


@table("scope", sorted(SDK_SCOPES))
def test_a_failure_has_a_kind_and_no_words(scope):
    span = failed_span(scope)
    assert "hunter2" in span.to_json()
    sent = without_messages(span)
    assert "hunter2" not in sent.to_json()
    assert (sent.status.status_code, dict(sent.attributes)) == (
        StatusCode.ERROR,
        {"a": 1, names.ERROR_TYPE: "ValueError"},
    )
    kept = ("name", "context", "parent", "kind", "start_time", "end_time", "resource", "instrumentation_scope")
    assert [getattr(sent, each) for each in kept] == [getattr(span, each) for each in kept]


def test_the_spans_of_the_users_own_program_stay_as_they_are():
    span = failed_span("shop")
    assert without_messages(span) is span
