"""Take somebody's text out of the spans that the SDKs of MCP and ACP make.

They put the message of an error into the status of a span, and record exceptions with their messages: text of a server,
a tool or a transport. What is left is what our own spans have of a failure, its `error.type`.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Status

from callboard.telemetry import names

SCOPES: Final = frozenset(("mcp-python-sdk", "acp.telemetry"))
"""The instrumentation scopes of these spans."""


def without_messages(span: ReadableSpan) -> ReadableSpan:
    """The span as it may be sent; one that is not of these SDKs is the same."""
    scope = span.instrumentation_scope
    if scope is None or scope.name not in SCOPES or not (span.events or span.status.description):
        return span
    attributes = dict(span.attributes or {})
    for event in span.events:
        if kind := (event.attributes or {}).get(names.EXCEPTION_TYPE):
            attributes.setdefault(names.ERROR_TYPE, kind)
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )
