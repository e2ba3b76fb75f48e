"""MCP over HTTP, as the SDK takes it.

Owns what becomes of an answer that is none, and what an HTTP client of the SDK's may do. Knows nothing of messages
beyond JSON-RPC's errors.
Law: what goes wrong with one request fails that request. The SDK would end the whole connection for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallboardError
from callboard.mcp.errors import CONNECTION_CLOSED, STATUS, ServerFailure, cut
from callboard.mcp.lenient_json import readable
from callboard.mcp.oauth_tokens import missing_scope
from callboard.mcp.sending import SENDING, Sending
from callboard.mcp.settings import ServerSettings
from callboard.mcp.stdio_transport import MAX_MESSAGE, Lines

if TYPE_CHECKING:
    import httpx2

_SESSION: Final = "mcp-session-id"
_INTERNAL_ERROR: Final = -32603
_LISTENS: Final = 300.0
"""Seconds without a byte after which a stream is taken for dead, at least."""
_PARTING: Final = 2.0
"""Seconds for the request that ends a session."""
_GOES_OUT: Final = ".send_request_headers.started"
"""The step of a request, as httpx2 traces them, from which the server may have it."""
_OF_THE_BODY: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_AWAY: Final = frozenset({502, 503, 504})
_SESSION_NOT_FOUND: Final = -32001
_NO_SESSION: Final = frozenset(
    {"session not found", "no valid session id provided", "invalid session id", "server not initialized"}
)
"""What the SDKs' servers say, after `Bad Request: `, with the status 400 where the specification wants 404."""
_MAX_ERROR: Final = 64 * 1024


class Web:
    """The part of `httpx2.AsyncClient` that the SDK's transport uses.

    `lost` is called with the reason when the server cannot be reached. Redirects are the SDK's affair, which follows
    those within the origin.
    """

    def __init__(self, client: httpx2.AsyncClient, lost: Callable[[str], None]) -> None:
        self._client = client
        self._lost = lost
        self.build_request = client.build_request
        self.max_redirects = client.max_redirects
        self.heard = 0
        """How often the server was heard of."""
        self.over = False
        """The server is not asked to end a session that is lost."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        import httpx2  # noqa: PLC0415  # the SDK's, imported with it

        sending = SENDING.get() or Sending()
        if request.method == "DELETE":
            if self.over:
                return httpx2.Response(204, request=request)
            request.extensions["timeout"] = httpx2.Timeout(_PARTING).as_dict()

        async def traced(step: str, _: Any) -> None:
            if step.endswith(_GOES_OUT):
                sending.sent = True

        request.extensions["trace"] = traced
        try:
            response = await self._client.send(request, **how)
            if request.method != "POST":
                return response
            self.heard += 1
            return await self._readable(request, response, sending)
        except httpx2.TransportError as error:
            return self._unreachable(request, error)
        except Exception as error:  # of what signs requests
            if not self.heard:
                raise  # to the SDK an answer would be one to the newer protocol, and it would log in again in the older
            over = isinstance(error, ServerFailure) and error.hopeless
            text = error.message if isinstance(error, CallboardError) else f"{type(error).__name__}: {error}"
            return _error(request, 401 if over else 500, _INTERNAL_ERROR, cut(text))

    async def _readable(self, request: httpx2.Request, response: httpx2.Response, sending: Sending) -> httpx2.Response:
        """The response: a stream as it is, anything else whole, and what is no answer as an error of JSON-RPC."""
        status = response.status_code
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.next_request is not None or (status < 400 and kind != "application/json"):
            if kind == "text/event-stream" and "content-encoding" not in response.headers:
                response.stream = _lenient(response.stream)
            return response
        try:
            body = await _whole(response, MAX_MESSAGE if status < 400 else _MAX_ERROR)
        finally:
            await response.aclose()
        if body is None:
            return _error(request, 500, _INTERNAL_ERROR, f"its answer has more than {MAX_MESSAGE} bytes")
        if status < 400:
            return _answer(response, readable(body))
        code, message = _error_in(body)
        text = cut(message or body.decode("utf-8", "replace"))
        if _SESSION in request.headers and _lacks_session(status, code, text):
            sending.refused = True
            return _error(request, status, CONNECTION_CLOSED, message or "Session not found")
        if status in _AWAY:
            return _error(request, status, CONNECTION_CLOSED, f"HTTP {status} {response.reason_phrase}")
        if message and kind == "application/json" and status not in {401, 403}:
            return _answer(response, body)
        if scope := missing_scope(response):
            text = f"its login lacks the scope {cut(scope)!r}"
        return _error(request, status, _INTERNAL_ERROR, f"HTTP {status} {response.reason_phrase}: {text}".rstrip(": "))

    def _unreachable(self, request: httpx2.Request, error: Exception) -> httpx2.Response:
        why = f"{request.url.copy_with(query=None, userinfo=b'')}: {str(error) or type(error).__name__}"
        if request.method == "POST":
            self._lost(why)
        return _error(request, 503, CONNECTION_CLOSED, why)


@asynccontextmanager
async def client_of(
    settings: ServerSettings, headers: Mapping[str, str], auth: httpx2.Auth | None, lost: Callable[[str], None]
) -> AsyncIterator[tuple[Web, Any]]:
    """The HTTP side and the SDK's transport over it; all connections are closed behind it."""
    import httpx2  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    # as many as there are calls: an answer to a server's question needs one beside them
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    times = httpx2.Timeout(settings.connect_timeout, read=max(settings.timeout, _LISTENS))
    async with httpx2.AsyncClient(headers=headers, timeout=times, limits=limits, auth=auth) as client:
        web = Web(client, lost)
        given: Any = web
        yield web, streamable_http_client(settings.url, http_client=given, max_sse_event_size=MAX_MESSAGE)


async def _whole(response: httpx2.Response, most: int) -> bytes | None:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)


def _lenient(stream: Any) -> Any:
    """A stream of events, the messages in it mended where they spell half of a character."""
    import httpx2  # noqa: PLC0415

    class Lenient(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            lines = Lines()
            async for data in stream:
                for line in lines.feed(data):
                    yield _mended(line) + b"\n"
            yield lines.rest

        async def aclose(self) -> None:
            await stream.aclose()

    return Lenient()


def _mended(line: bytes) -> bytes:
    field, colon, data = line.partition(b":")
    return field + colon + readable(data) if field == b"data" and b"\\ud" in data.lower() else line


def _error_in(body: bytes) -> tuple[object, str]:
    """The code and the message of the JSON-RPC error in it; None and an empty text where there is none."""
    try:
        error = json.loads(body)["error"]
        code, message = error.get("code"), error["message"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None, ""
    return (code, message) if isinstance(message, str) else (None, "")


def _lacks_session(status: int, code: object, text: str) -> bool:
    """Whether it was refused for want of its session. Other errors may speak of a session of the server's own."""
    said = text.lower().removeprefix("bad request: ").strip(" .")
    return status == 404 or (
        status == 400 and (said in _NO_SESSION or (code == _SESSION_NOT_FOUND and "session" in said))
    )


def _answer(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """The response, read."""
    import httpx2  # noqa: PLC0415

    headers = {name: value for name, value in response.headers.items() if name not in _OF_THE_BODY}
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


def _error(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    import httpx2  # noqa: PLC0415

    told = {"code": code, "message": message, "data": {STATUS: status}}
    return httpx2.Response(max(status, 400), json={"jsonrpc": "2.0", "id": None, "error": told}, request=request)
