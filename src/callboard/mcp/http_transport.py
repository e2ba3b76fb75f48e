"""MCP over HTTP: the HTTP client that the SDK's transport uses.

Law: a failure of one request affects only that request. The SDK would end the whole connection, so a response that is
not an answer is replaced by a JSON-RPC error.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallboardError
from callboard.mcp.connection_state import SEND_STATE, SendState
from callboard.mcp.errors import CONNECTION_CLOSED, STATUS_KEY, ServerFailure, excerpt
from callboard.mcp.lenient_json import mend_message
from callboard.mcp.oauth_tokens import missing_scope
from callboard.mcp.settings import ServerSettings
from callboard.mcp.stdio_transport import MAX_MESSAGE, LineSplitter

if TYPE_CHECKING:
    import httpx2

_SESSION: Final = "mcp-session-id"
_INTERNAL_ERROR: Final = -32603
_MIN_READ_SECONDS: Final = 300.0
"""Minimum seconds without a byte before a stream counts as dead."""
_CLOSE_SECONDS: Final = 2.0
"""Seconds for the request that ends a session."""
# The steps of a request in httpx2's traces that show its progress.
_CONNECT_STEP: Final = ".connect_tcp.started"
_SENT_STEP: Final = ".send_request_headers.started"
"""After this step, the server may have received the request."""
_UNSENT_STEPS: Final = (".send_request_headers.failed", ".send_request_body.failed")
"""Steps at which a write was refused because the connection was already closed. The server has no complete request: the
body is a single write, and a body that is refused later is incomplete."""
_ANSWERED_STEP: Final = ".receive_response_headers.complete"
_TOOL_CALL: Final = "tools/call"
_BODY_HEADERS: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
_SESSION_NOT_FOUND: Final = -32001
_SESSION_MESSAGES: Final = frozenset(
    {"session not found", "no valid session id provided", "invalid session id", "server not initialized"}
)
"""Messages of SDK servers that use status 400 (and the prefix `Bad Request: `) where the specification requires
404."""
_MAX_ERROR: Final = 64 * 1024


class HttpClient:
    """The part of `httpx2.AsyncClient` that the SDK's transport uses.

    `on_lost` is called with the reason when the server cannot be reached. The SDK itself follows redirects within the
    origin.
    """

    def __init__(self, client: httpx2.AsyncClient, on_lost: Callable[[str], None]) -> None:
        self._client = client
        self._on_lost = on_lost
        self.build_request = client.build_request
        self.max_redirects = client.max_redirects
        self.received = 0
        """Number of responses received."""
        self.closed = False
        """True if the connection is lost. The server is then not asked to end its session."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        import httpx2  # noqa: PLC0415  # the SDK's, imported with it

        state = SEND_STATE.get() or SendState()
        if request.method == "DELETE":
            if self.closed:
                return httpx2.Response(204, request=request)
            request.extensions["timeout"] = httpx2.Timeout(_CLOSE_SECONDS).as_dict()
        try:
            response = await self._send(request, state, how)
            if request.method != "POST":
                return response
            self.received += 1
            return await self._read_response(request, response, state)
        except httpx2.TransportError as error:
            why = f"{request.url.copy_with(query=None, userinfo=b'')}: {str(error) or type(error).__name__}"
            if request.method == "POST":
                self._on_lost(why)
            return _make_error(request, 503, CONNECTION_CLOSED, why)
        except Exception as error:  # raised by the authentication
            if not self.received:
                # The SDK would read an error response as a refusal of the newer protocol, and try to log in again.
                raise
            closed = isinstance(error, ServerFailure) and error.permanent
            text = error.message if isinstance(error, CallboardError) else f"{type(error).__name__}: {error}"
            return _make_error(request, 401 if closed else 500, _INTERNAL_ERROR, excerpt(text))

    async def _send(self, request: httpx2.Request, state: SendState, how: Mapping[str, Any]) -> httpx2.Response:
        """Send a request. Repeat at once if a kept connection is closed before an answer begins.

        A server may close a kept connection at any time, and a request can cross that (RFC 9112, 9.5). httpx2 checks
        the socket before it takes a connection out of its pool, but the close may still be in progress, and httpx2 does
        not retry. Some servers announce Keep-Alive and close after each answer.

        A closed connection does not show whether the server read the request. The decision therefore depends on the
        request. Everything except tool calls may be sent twice, and so may calls of idempotent tools. Other tool calls
        are sent again only if a write was refused, because the server then cannot have the whole call. Otherwise the
        call fails, and the model reads that it may have run.

        The loop ends with a new connection at the latest: each pass removes a kept one from the pool.
        """
        import httpx2  # noqa: PLC0415  # as above

        while True:
            attempt = _Attempt(state)
            request.extensions["trace"] = attempt.trace
            try:
                return await self._client.send(request, **how)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                if attempt.is_unsent:
                    state.sent = attempt.was_sent_before
                is_unanswered = attempt.is_reused and not attempt.is_answered and not self.closed
                if not is_unanswered or not (attempt.is_unsent or state.idempotent or not _is_tool_call(request)):
                    raise

    async def _read_response(
        self, request: httpx2.Request, response: httpx2.Response, state: SendState
    ) -> httpx2.Response:
        """Read the response: keep a stream, read others whole, and replace invalid answers with a JSON-RPC error."""
        status = response.status_code
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.next_request is not None or (status < 400 and kind != "application/json"):
            if kind == "text/event-stream" and "content-encoding" not in response.headers:
                response.stream = _mend_stream(response.stream)
            return response
        try:
            body = await _read_body(response, MAX_MESSAGE if status < 400 else _MAX_ERROR)
        finally:
            await response.aclose()
        if body is None:
            return _make_error(request, 500, _INTERNAL_ERROR, f"its answer has more than {MAX_MESSAGE} bytes")
        if status < 400:
            return _replace_body(response, mend_message(body))
        code, message = _parse_error(body)
        text = excerpt(message or body.decode("utf-8", "replace"))
        if _SESSION in request.headers and _is_session_missing(status, code, text):
            state.session_missing = True
            return _make_error(request, status, CONNECTION_CLOSED, message or "Session not found")
        if status in _GATEWAY_STATUSES:
            return _make_error(request, status, CONNECTION_CLOSED, f"HTTP {status} {response.reason_phrase}")
        if message and kind == "application/json" and status not in {401, 403}:
            return _replace_body(response, body)
        if scope := missing_scope(response):
            text = f"its login lacks the scope {excerpt(scope)!r}"
        return _make_error(
            request, status, _INTERNAL_ERROR, f"HTTP {status} {response.reason_phrase}: {text}".rstrip(": ")
        )


class _Attempt:
    """One attempt to send a request, as far as httpx2's traces show it."""

    def __init__(self, state: SendState) -> None:
        self._state = state
        self.was_sent_before = state.sent
        self.is_reused = False
        """True if the request used a kept connection."""
        self.is_unsent = False
        """True if a write was refused, so that the server does not have the whole request."""
        self.is_answered = False
        self._is_new = False

    async def trace(self, step: str, _: Any) -> None:
        if step.endswith(_CONNECT_STEP):
            self._is_new = True
        elif step.endswith(_SENT_STEP):
            self._state.sent = True
            self.is_reused = not self._is_new
        elif step.endswith(_UNSENT_STEPS):
            self.is_unsent = True
        elif step.endswith(_ANSWERED_STEP):
            self.is_answered = True


def _is_tool_call(request: httpx2.Request) -> bool:
    """True if repeating the request may do harm. This includes requests that cannot be parsed."""
    if request.method != "POST":
        return False
    try:
        message = json.loads(request.content)
        return not isinstance(message, dict) or message.get("method") == _TOOL_CALL
    except (ValueError, RuntimeError):  # includes a body that is a stream
        return True


@asynccontextmanager
async def open_http(
    settings: ServerSettings, headers: Mapping[str, str], auth: httpx2.Auth | None, on_lost: Callable[[str], None]
) -> AsyncIterator[tuple[HttpClient, Any]]:
    """Open the HTTP client and the SDK's transport over it. All connections are closed on exit."""
    import httpx2  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    # One connection for each call, and one more for an answer to a server's question.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    times = httpx2.Timeout(settings.connect_timeout, read=max(settings.timeout, _MIN_READ_SECONDS))
    async with httpx2.AsyncClient(headers=headers, timeout=times, limits=limits, auth=auth) as client:
        http = HttpClient(client, on_lost)
        untyped: Any = http
        yield http, streamable_http_client(settings.url, http_client=untyped, max_sse_event_size=MAX_MESSAGE)


async def _read_body(response: httpx2.Response, most: int) -> bytes | None:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)


def _mend_stream(stream: Any) -> Any:
    """Replace lone surrogates in a stream of server-sent events."""
    import httpx2  # noqa: PLC0415

    class Lenient(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            lines = LineSplitter()
            async for data in stream:
                for line in lines.feed(data):
                    field, colon, value = line.partition(b":")
                    is_broken = field == b"data" and b"\\ud" in value.lower()
                    yield (field + colon + mend_message(value) if is_broken else line) + b"\n"
            yield lines.rest

        async def aclose(self) -> None:
            await stream.aclose()

    return Lenient()


def _parse_error(body: bytes) -> tuple[object, str]:
    """Return the code and message of a JSON-RPC error, or None and "" if the body is not an error."""
    try:
        error = json.loads(body)["error"]
        code, message = error.get("code"), error["message"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None, ""
    return (code, message) if isinstance(message, str) else (None, "")


def _is_session_missing(status: int, code: object, text: str) -> bool:
    """True if the session is gone. Other errors may mention a session of the server's own."""
    message = text.lower().removeprefix("bad request: ").strip(" .")
    return status == 404 or (
        status == 400 and (message in _SESSION_MESSAGES or (code == _SESSION_NOT_FOUND and "session" in message))
    )


def _replace_body(response: httpx2.Response, body: bytes) -> httpx2.Response:
    import httpx2  # noqa: PLC0415

    headers = {name: value for name, value in response.headers.items() if name not in _BODY_HEADERS}
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


def _make_error(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    import httpx2  # noqa: PLC0415

    error = {"code": code, "message": message, "data": {STATUS_KEY: status}}
    return httpx2.Response(max(status, 400), json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
