"""The gateway as an ASGI application.

Owns paths, methods and the way of a request through the gateway. Knows of uvicorn only what its connections share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from time import monotonic
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard import __version__
from callboard.core import ReplyFailed, Usage
from callboard.servers.gateway import stored_responses, websocket
from callboard.servers.gateway.auth import mask_key, read_token
from callboard.servers.gateway.connections import BudgetShare
from callboard.servers.gateway.endpoints import (
    client_format,
    count_gemini,
    count_messages,
    count_responses,
    health,
    model,
    models,
)
from callboard.servers.gateway.exchange import Exchange
from callboard.servers.gateway.frontends import Frontend, frontends
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.google_urls import VERSIONS, move_key_to_header, url_fields
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.logs import sanitize_records
from callboard.servers.gateway.metrics import Metrics
from callboard.servers.gateway.protocol import STATE, SharedState
from callboard.servers.gateway.request_body import read_body
from callboard.servers.gateway.response_stream import respond, send_json
from callboard.servers.gateway.settings import GatewaySettings

log = logging.getLogger("callboard.gateway")

Ask = Callable[..., Awaitable[Exchange]]
"""From a front, a body, and by name the key's `owner`, the request's `share`, the body's `size`, the `token` upstream, `seed`."""

_PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
_KEPT = "/v1/responses/{identifier}"
_INSTEAD = {
    "/v1/completions": "; POST /v1/chat/completions answers a conversation",
    "/v1/embeddings": "; embeddings are not made here, ask the backend itself for them",
}
"""What is said of paths that others have."""


def application(settings: GatewaySettings) -> ASGIApp:
    """The application of a gateway with these settings."""
    sanitize_records(log)
    gateway = Gateway(settings)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Any]]:
        await gateway.start()
        try:
            yield {STATE: SharedState(settings.limits, gateway.connections, gateway.request_budget)}
        finally:
            await gateway.aclose()

    def guarded(front: str, handle: Any, *, is_work: bool = False) -> Any:
        return _Guarded(gateway, front, handle, is_work=is_work)

    def public(handle: Callable[[Request], Awaitable[Response]]) -> Any:
        return _Public(gateway, handle)

    async def told(scope: Scope, receive: Receive, send: Send, token: str) -> None:
        for backend in gateway.backends:
            metrics.set_breaker(backend.name, is_open=backend.breaker.state(monotonic()) == "open")
        await Response(metrics.render(), media_type="text/plain; version=0.0.4")(scope, receive, send)

    async def plainly(front: Frontend, body: Mapping[str, Any], *, share: BudgetShare, **said: Any) -> Exchange:
        return await gateway.exchange(front, body, **said)

    def asking(front: str, ask: Ask) -> _Asking:
        return _Asking(gateway, metrics, front, ask)

    async def root(_: Request) -> Response:
        return Response(f'{{"name":"callboard","version":"{__version__}"}}', media_type="application/json")

    routes = [
        Route(_PATHS["responses"], asking("responses", gateway.conversations.exchange), methods=["POST"]),
        Route(_PATHS["chat"], asking("chat", plainly), methods=["POST"]),
        Route(_PATHS["messages"], asking("messages", plainly), methods=["POST"]),
        WebSocketRoute(
            _PATHS["responses"],
            websocket.ResponsesWebSocket(gateway, asking("responses", partial(websocket.asked, gateway.conversations))),
        ),
        Route("/v1/responses/compact", asking("responses", gateway.conversations.compact), methods=["POST"]),
        Route(_KEPT, guarded("responses", stored_responses.retrieve), methods=["GET"]),
        Route(_KEPT, guarded("responses", stored_responses.delete), methods=["DELETE"]),
        Route(f"{_KEPT}/cancel", guarded("responses", stored_responses.cancel), methods=["POST"]),
        Route(f"{_KEPT}/input_items", guarded("responses", stored_responses.input_items), methods=["GET"]),
        Route("/v1/responses/input_tokens", guarded("responses", count_responses, is_work=True), methods=["POST"]),
        Route("/v1/messages/count_tokens", guarded("messages", count_messages, is_work=True), methods=["POST"]),
        *[
            Route(f"{version}/{{resource:path}}:{method}", handle, methods=["POST"])
            for version in VERSIONS
            for method, handle in (
                ("generateContent", _AskingGoogle(gateway, metrics, plainly, stream=False)),
                ("streamGenerateContent", _AskingGoogle(gateway, metrics, plainly, stream=True)),
                ("countTokens", guarded("gemini", count_gemini, is_work=True)),
            )
        ],
        *[Route(f"{version}/models", guarded("", models, is_work=True), methods=["GET"]) for version in VERSIONS],
        *[
            Route(f"{version}/models/{{name:path}}", guarded("", model, is_work=True), methods=["GET"])
            for version in VERSIONS
        ],
        Route("/metrics", guarded("chat", told), methods=["GET"]),
        Route("/health", public(health(gateway)), methods=["GET"]),
        Route("/ready", public(root), methods=["GET"]),
        Route("/", public(root), methods=["GET", "HEAD"]),
    ]
    cross = Middleware(
        CORSMiddleware, allow_origins=settings.origins, allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"]
    )
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[cross] if settings.origins else [],
        exception_handlers={HTTPException: _no_route},
    )
    app.router.redirect_slashes = False
    return app


class _Guarded:
    """An endpoint that answers whole; `handle(scope, receive, send, token)` may raise an HttpError.

    Without `front` it answers each client in its own form.

    Every request counts; with `is_work` it has a place among those that are open as well. Without, a key whose places
    are taken can still cancel one of them.
    """

    def __init__(self, gateway: Gateway, front: str, handle: Any, *, is_work: bool) -> None:
        self._gateway = gateway
        self._front = front
        self._handle = handle
        self._is_work = is_work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        scope = {**(move_key_to_header(scope) if self._front in {"", "gemini"} else scope), "gateway": gateway}
        headers = Headers(scope=scope)
        try:
            token = read_token(headers)
            caller = gateway.authenticator.authenticate(headers, token)
            scope["owner"] = gateway.authenticator.owner(caller, token)
            if not self._is_work:
                caller.count()
            with caller if self._is_work else nullcontext():
                await self._handle(scope, receive, send, "" if gateway.settings.keys else token)
        except HttpError as refusal:
            await refuse(frontends()[self._front or client_format(scope)], refusal, send)


class _Public:
    """An endpoint that wants no key; web pages and other hosts' names are refused as everywhere."""

    def __init__(self, gateway: Gateway, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self._gateway = gateway
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._gateway.authenticator.check_origin(request.headers)
        except HttpError as refusal:
            await refuse(frontends()["chat"], refusal, send)
            return
        response = await self._handle(request)
        await response(scope, receive, send)


class _Asking:
    """The endpoint of one front; `ask` makes an exchange of a body."""

    def __init__(self, gateway: Gateway, metrics: Metrics, front: str, ask: Ask) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._front = frontends()[front]
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        await self.answer(headers, partial(self._read, headers, receive), receive, send)

    async def answer(
        self,
        headers: Headers,
        read: Callable[[BudgetShare], Awaitable[tuple[dict[str, Any], int]]],
        receive: Receive,
        send: Send,
        **said: Any,
    ) -> None:
        """Answers the body that `read` gives, with its size in bytes; `said` goes to `ask`.

        `read` takes the room that it needs of the share it is given, which is given back when the request is answered.
        """
        gateway, front = self._gateway, self._front
        began = monotonic()
        exchange: Exchange | None = None
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.begin_request()
        token = read_token(headers)
        try:
            with (
                (caller := gateway.authenticator.authenticate(headers, token)),
                BudgetShare(gateway.request_budget) as share,
            ):
                body, size = await read(share)
                exchange = await self._ask(
                    front,
                    body,
                    owner=gateway.authenticator.owner(caller, token),
                    share=share,
                    size=size,
                    token="" if gateway.settings.keys else token,
                    seed=headers.get("x-callboard-compat-events") == "1",
                    **said,
                )
                await respond(exchange, receive, sending, gateway.settings.heartbeat)
        except HttpError as refusal:
            await refuse(front, refusal, sending)
        except Exception:
            log.exception("a request could not be answered")
            if status:
                raise
            await refuse(front, HttpError("internal_error", "the gateway failed; its log says why"), sending)
        finally:
            # The answer leaves first, for it is written at the end of the loop's turn.
            asyncio.get_running_loop().call_soon(self._tell, exchange, token, status, monotonic() - began)

    async def refuse(self, refusal: HttpError, send: Send) -> None:
        await refuse(self._front, refusal, send)

    async def _read(self, headers: Headers, receive: Receive, share: BudgetShare) -> tuple[dict[str, Any], int]:
        data = await read_body(headers, receive, self._gateway.settings.limits, share)
        return await self._gateway.read(data), len(data)

    def _tell(self, exchange: Exchange | None, token: str, status: int, seconds: float) -> None:
        front = self._front.name
        if exchange is None:
            self._metrics.end_request(front, "", str(status), seconds, Usage())
            log.info("%s %d in %.3f s, key %s", front, status, seconds, mask_key(token))
            return
        record = exchange.record
        end = (
            "left" if record.last is None else "failed" if isinstance(record.last, ReplyFailed) else record.last.reason
        )
        self._metrics.end_request(front, record.backend_name, end, seconds, record.usage)
        if record.quotations:
            self._metrics.add_quotations(record.backend_name, len(record.quotations))
        for collapse in self._gateway.cache_collapses(record):
            self._metrics.add_cache_collapse(record.backend_name, collapse.cause)
            log.warning("%s: %s", record.backend_name, collapse.text)
        if log.isEnabledFor(logging.INFO):
            usage, model = record.usage, exchange.request.model[:100]
            log.info(
                "%s %s by %s: %d %s in %.3f s, %d tokens in, %d out, key %s",
                front, model, record.backend_name, status, end, seconds, usage.input, usage.output, mask_key(token),
            )  # fmt: skip


class _AskingGoogle(_Asking):
    """The endpoint of a method of Google's API, which names the model in its URL."""

    def __init__(self, gateway: Gateway, metrics: Metrics, ask: Ask, *, stream: bool) -> None:
        super().__init__(gateway, metrics, "gemini", ask)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = move_key_to_header(scope)
        headers = Headers(scope=scope)
        facts = url_fields(scope, stream=self._stream)

        async def read(share: BudgetShare) -> tuple[dict[str, Any], int]:
            body, size = await self._read(headers, receive, share)
            return {**body, **facts}, size

        await self.answer(headers, read, receive, send)


async def refuse(front: Frontend, refusal: HttpError, send: Send) -> None:
    """The refusal in the front's own format."""
    body = front.error(refusal.failure, refusal.status)
    if refusal.details is not None:
        body["error"]["details"] = refusal.details
    if "param" in body["error"]:
        body["error"]["param"] = refusal.path or None
    await send_json(send, refusal.status, body, refusal.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    """What starlette refuses, as JSON."""
    found = isinstance(error, HTTPException) and error.status_code == 405
    code = "method_not_allowed" if found else "not_found"
    path = request.url.path
    front = next((name for name, begin in _PATHS.items() if path.startswith(begin)), client_format(request.scope))
    refusal = HttpError(code, f"there is no {request.method} {path[:200]} here{_INSTEAD.get(path, '')}")
    return _Refused(frontends()[front], refusal)


class _Refused(Response):
    def __init__(self, front: Frontend, refusal: HttpError) -> None:
        super().__init__(status_code=refusal.status)
        self._front = front
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(self._front, self._refusal, send)
