"""The span of a request to the gateway, where telemetry is on: `POST ROUTE`.

It goes on with the trace that the client's `traceparent` names. What is asked of backends, and the tools that run here,
are below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from callboard.core import ReplyFailed
from callboard.telemetry import Span, names, open_span
from callboard.text.display import display

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from callboard.servers.gateway.exchange import Exchange

_ROUTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "responses": "/v1/responses",
        "chat": "/v1/chat/completions",
        "messages": "/v1/messages",
        "gemini": "/v1beta/models/{model}",
    }
)
_SPANS: Final = {
    front: (f"POST {route}", {names.HTTP_METHOD: "POST", names.HTTP_ROUTE: route, names.FRONT: front})
    for front, route in _ROUTES.items()
}
"""The name of a front's spans, and what each of them has from the beginning."""
_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
_MAX_NAME: Final = 200


def open_request_span(front: str, headers: Headers) -> Span:
    """Begin the span of a request to a front."""
    # One pass over the bytes; to ask for a header is one each.
    parent = {name.decode(): value.decode("latin-1") for name, value in headers.raw if name in _HEADERS}
    name, attributes = _SPANS[front]
    return open_span(name, "server", attributes, parent=parent)


def end_request_span(span: Span, exchange: Exchange | None, status: int) -> None:
    """End the span of a request that was answered with this status; 0 is none, because its client had left."""
    about: dict[str, str | int] = {names.HTTP_STATUS: status} if status else {}
    if exchange is not None:
        about[names.REQUEST_ID] = exchange.identifier
        about[names.REQUEST_MODEL] = display(exchange.request.model, _MAX_NAME)
        if exchange.record.backend_name:
            about[names.BACKEND] = exchange.record.backend_name
    span.set(about)
    if not status:
        span.fail("cancelled")
    elif exchange is not None and isinstance(exchange.record.end, ReplyFailed):
        span.fail(names.error_word(exchange.record.end.code))
    elif status >= 500:
        span.fail(str(status))
    span.end()
