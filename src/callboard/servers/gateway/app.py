"""The gateway as an ASGI application: its routes, and how one request is handled from its headers to its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from functools import partial
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import Any, Final, Protocol, TypeAlias

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send

from callboard.core import ReplyFailed, Usage
from callboard.servers.gateway import endpoints, token_count
from callboard.servers.gateway.abandoned_replies import AbandonedReplies
from callboard.servers.gateway.auth import mask_key, read_token, short_owner
from callboard.servers.gateway.conversation_state import ConnectionMemory, ConversationState
from callboard.servers.gateway.endpoints import (
    VERSIONS,
    Endpoint,
    Services,
    client_format,
    error_response,
    move_key_to_header,
    url_fields,
)
from callboard.servers.gateway.exchange import Exchange, ReplyRequest, read_betas
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.metrics import Metrics
from callboard.servers.gateway.request_body import BudgetShare, read_body
from callboard.servers.gateway.request_log import LoggedRequest
from callboard.servers.gateway.response_stream import respond, send_json
from callboard.servers.gateway.sessions import read_header
from callboard.servers.gateway.settings import GatewaySettings
from callboard.servers.gateway.websocket import ResponsesWebSocket
from callboard.telemetry import NO_SPAN, Span, names, open_span, switch
from callboard.telemetry.logs import sanitize_records, set_log_subject
from callboard.text.display import display

log = logging.getLogger("callboard.gateway")

ReadBody: TypeAlias = Callable[[BudgetShare], Awaitable[tuple[dict[str, Any], bytes]]]
"""Reads a body, charges it to a share of the budget, and returns it with its bytes."""

_PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
_STORED = "/v1/responses/{identifier}"
_METHODS: Final = ("GET", "POST", "DELETE")
"""Methods that web pages of the allowed origins may use."""
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "/v1/completions": "; send a conversation to POST /v1/chat/completions",
        "/v1/embeddings": "; the gateway does not create embeddings, ask the backend directly",
    }
)
"""Hints for paths that other servers serve."""
_SPANS: Final = {
    front: (f"POST {route}", {names.HTTP_METHOD: "POST", names.HTTP_ROUTE: route, names.FRONT: front})
    for front, route in {**_PATHS, "gemini": "/v1beta/models/{model}"}.items()
}
"""Name and attributes of each front's spans."""
_TRACE_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
_MAX_NAME: Final = 200
"""Maximum characters of a model's name in a span."""


class Extension(Protocol):
    """More routes of a gateway, such as the board's. The gateway enters it as a context manager while it serves."""

    def routes(self) -> Sequence[BaseRoute]: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> object: ...


Extend: TypeAlias = Callable[[Services], Extension]
"""Makes the extension of a gateway from the services that its endpoints share."""


def application(settings: GatewaySettings, extend: Extend | None = None) -> Starlette:
    """Return the application of a gateway. Its `state.services` holds what the endpoints share."""
    sanitize_records(log)
    gateway = Gateway(settings)
    conversations = ConversationState(gateway.exchange, gateway.store, settings.limits)
    services = Services(gateway, conversations, Metrics())
    extension = None if extend is None else extend(services)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await gateway.start()
        try:
            async with extension or nullcontext():
                yield
        finally:
            await gateway.aclose()

    app = Starlette(
        routes=[*_routes(services), *(extension.routes() if extension else ())],
        lifespan=lifespan,
        middleware=[
            Middleware(CORSMiddleware, allow_origins=settings.origins, allow_methods=_METHODS, allow_headers=["*"])
        ]
        if settings.origins
        else [],
        exception_handlers={HTTPException: _no_route},
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return app


def _routes(services: Services) -> list[Route | WebSocketRoute]:
    endpoint, reply = partial(Endpoint, services), partial(ReplyEndpoint, services)
    exchange, conversations = services.gateway.exchange, services.conversations
    over_websocket = reply("responses", conversations.exchange)
    return [
        Route(_PATHS["responses"], reply("responses", conversations.exchange), methods=["POST"]),
        Route(_PATHS["chat"], reply("chat", exchange), methods=["POST"]),
        Route(_PATHS["messages"], reply("messages", exchange), methods=["POST"]),
        WebSocketRoute(_PATHS["responses"], ResponsesWebSocket(services.gateway, over_websocket)),
        Route("/v1/responses/compact", reply("responses", conversations.compact), methods=["POST"]),
        Route(_STORED, endpoint("responses", endpoints.retrieve_response, "counted"), methods=["GET"]),
        Route(_STORED, endpoint("responses", endpoints.delete_response, "counted"), methods=["DELETE"]),
        Route(f"{_STORED}/cancel", endpoint("responses", endpoints.cancel_response, "counted"), methods=["POST"]),
        Route(f"{_STORED}/input_items", endpoint("responses", endpoints.input_items, "counted"), methods=["GET"]),
        Route("/v1/responses/input_tokens", endpoint("responses", token_count.count_responses), methods=["POST"]),
        Route("/v1/messages/count_tokens", endpoint("messages", token_count.count_messages), methods=["POST"]),
        *[
            Route(f"{version}/{{resource:path}}:{method}", handler, methods=["POST"])
            for version in VERSIONS
            for method, handler in (
                ("generateContent", GeminiEndpoint(services, stream=False)),
                ("streamGenerateContent", GeminiEndpoint(services, stream=True)),
                ("countTokens", endpoint("gemini", token_count.count_gemini)),
            )
        ],
        *[Route(f"{version}/models", endpoint("", endpoints.list_models), methods=["GET"]) for version in VERSIONS],
        *[
            Route(f"{version}/models/{{name:path}}", endpoint("", endpoints.get_model), methods=["GET"])
            for version in VERSIONS
        ],
        Route("/metrics", endpoint("chat", endpoints.metrics, "counted"), methods=["GET"]),
        Route("/health", endpoint("chat", endpoints.health, "public"), methods=["GET"]),
        Route("/ready", endpoint("chat", endpoints.root, "public"), methods=["GET"]),
        Route("/", endpoint("chat", endpoints.root, "public"), methods=["GET", "HEAD"]),
    ]


class ReplyEndpoint:
    """An endpoint of one front that answers with a model's reply. `handler` makes the exchange for a request."""

    def __init__(self, services: Services, front: str, handler: Callable[[ReplyRequest], Awaitable[Exchange]]) -> None:
        self._gateway = services.gateway
        self._metrics = services.metrics
        self._request_log = services.request_log
        self._front = FRONTENDS[front]
        self._handler = handler
        self._abandoned = AbandonedReplies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        await self.answer(headers, partial(self._read, headers, receive), receive, send)

    async def answer(
        self,
        headers: Headers,
        read: ReadBody,
        receive: Receive,
        send: Send,
        memory: ConnectionMemory | None = None,
    ) -> None:
        """Answer the body that `read` returns. The body's share of the budget is released after the answer."""
        span = NO_SPAN if switch.recorder is None else open_request_span(self._front.name, headers)
        await span.during(self._answer(span, headers, read, receive, send, memory))

    async def _answer(  # noqa: PLR0917  # the arguments of `answer`, and the span
        self,
        span: Span,
        headers: Headers,
        read: ReadBody,
        receive: Receive,
        send: Send,
        memory: ConnectionMemory | None,
    ) -> None:
        gateway, front = self._gateway, self._front
        began = monotonic()
        exchange: Exchange | None = None
        status = 0
        requests = self._request_log
        entry: LoggedRequest | None = None

        async def send_and_watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif entry is not None:
                entry.add_sent(message["body"])
            await send(message)

        self._metrics.begin_request()
        token = read_token(headers)
        owner = ""
        try:
            caller = gateway.authenticator.authenticate(headers, token)
            owner = gateway.authenticator.owner(caller, token)
            with ExitStack() as place, BudgetShare(gateway.request_budget) as share:
                place.enter_context(caller)
                await caller.count()
                if requests is not None:  # after the key check: clients without a key must not push out others' entries
                    entry = requests.begin(
                        front.name, headers.get("user-agent", ""), owner, session=read_header(headers)
                    )
                body, data = await read(share)
                if entry is not None:
                    entry.set_body(data)
                size = len(data)
                del data  # free the bytes before the reply
                request = ReplyRequest(
                    front=front,
                    body=body,
                    owner=owner,
                    size=size,
                    token="" if gateway.settings.keys else token,
                    beta=read_betas(front.name, headers),
                    compat_events=headers.get("x-callboard-compat-events") == "1",
                    budget=share,
                    memory=memory,
                )
                if await self._continue(request, entry, receive, send_and_watch):
                    return
                exchange = await self._handler(request)
                set_log_subject(request=exchange.identifier)
                if requests is not None and entry is not None:
                    requests.set_exchange(entry, exchange)
                keep = partial(self._abandoned.keep, request, place.close)
                await respond(exchange, receive, send_and_watch, gateway.settings.heartbeat, keep)
        except HttpError as error:
            if entry is not None:
                entry.failure = error.failure.code
            await self.refuse(error, send_and_watch)
        except Exception:
            log.exception("a request failed in the gateway")
            if status:
                raise
            await self.refuse(HttpError("internal_error", "the gateway failed; its log says why"), send_and_watch)
        finally:
            # Send the answer first: it is written at the end of this turn of the loop.
            asyncio.get_running_loop().call_soon(
                self._report, span, exchange, entry, token, owner, status, monotonic() - began
            )

    async def _continue(self, request: ReplyRequest, entry: LoggedRequest | None, receive: Receive, send: Send) -> bool:
        """Continue an abandoned reply to the same request, in whose row of the log it stays. Return False if none is."""
        reply = self._abandoned.take(request)
        if reply is None:
            return False
        if self._request_log is not None and entry is not None:
            self._request_log.drop(entry)
        await reply.serve(receive, send)
        return True

    async def refuse(self, error: HttpError, send: Send) -> None:
        await send_json(send, error.status, self._front.error_body(error), error.headers)

    async def _read(self, headers: Headers, receive: Receive, share: BudgetShare) -> tuple[dict[str, Any], bytes]:
        data = await read_body(headers, receive, self._gateway.settings.limits, share)
        return await self._gateway.read(data), data

    def _report(  # noqa: PLR0917  # called once per request
        self,
        span: Span,
        exchange: Exchange | None,
        entry: LoggedRequest | None,
        token: str,
        owner: str,
        status: int,
        seconds: float,
    ) -> None:
        """Add a request that has ended to the logs and the metrics."""
        front = self._front.name
        if not self._gateway.settings.keys:
            key = mask_key(token)
        else:
            key = short_owner(owner) or ("unknown" if token else "none")
        if span is not NO_SPAN:
            end_request_span(span, exchange, status)
        if entry is not None:
            entry.finish(status, seconds, "" if self._gateway.settings.keys else token)
        if exchange is None:
            self._metrics.end_request(front, "", str(status), seconds, Usage())
            log.info("%s %d in %.3f s, key %s", front, status, seconds, key)
            return
        record = exchange.record
        end = "left" if record.end is None else "failed" if isinstance(record.end, ReplyFailed) else record.end.reason
        self._metrics.end_request(front, record.backend_name, end, seconds, record.usage, cost=record.costs.total)
        if quotations := record.alerts.get("quotation"):
            self._metrics.add_quotations(record.backend_name, len(quotations))
        if log.isEnabledFor(logging.INFO):
            usage, model, cost = record.usage, exchange.request.model[:100], record.costs.total
            log.info(
                "%s %s by %s: %d %s in %.3f s, %d tokens in, %d out, %s, key %s",
                front, model, record.backend_name, status, end, seconds, usage.input, usage.output,
                "cost unknown" if cost is None else f"${cost:.6f}", key,
            )  # fmt: skip


class GeminiEndpoint(ReplyEndpoint):
    """The endpoint of a method of Google's API. The URL names the model."""

    def __init__(self, services: Services, *, stream: bool) -> None:
        super().__init__(services, "gemini", services.gateway.exchange)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = move_key_to_header(scope)
        headers = Headers(scope=scope)
        fields = url_fields(scope, stream=self._stream)

        async def read(share: BudgetShare) -> tuple[dict[str, Any], bytes]:
            body, data = await self._read(headers, receive, share)
            return {**body, **fields}, data

        await self.answer(headers, read, receive, send)


async def _no_route(request: Request, error: Exception) -> Response:
    """Return Starlette's 404 or 405 in the client's format."""
    is_405 = isinstance(error, HTTPException) and error.status_code == 405
    code = "method_not_allowed" if is_405 else "not_found"
    path = request.url.path
    front = next((name for name, begin in _PATHS.items() if path.startswith(begin)), client_format(request.scope))
    failure = HttpError(code, f"there is no {request.method} {path[:200]} here{_INSTEAD.get(path, '')}")
    return error_response(FRONTENDS[front], failure)


def open_request_span(front: str, headers: Headers) -> Span:
    """Begin the span of a request, in the trace of the client's `traceparent`."""
    # One pass over the raw headers; each lookup by name would be another.
    parent = {name.decode(): value.decode("latin-1") for name, value in headers.raw if name in _TRACE_HEADERS}
    name, attributes = _SPANS[front]
    return open_span(name, "server", attributes, parent=parent)


def end_request_span(span: Span, exchange: Exchange | None, status: int) -> None:
    """End the span of a request with this HTTP status, or with 0 if the client left before an answer."""
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
