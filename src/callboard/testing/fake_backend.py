"""A backend on the loopback interface that sends scripted replies on each of our wires, and records its requests.

Law: the same replies and the same requests give the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import msgspec

from callboard.core import Event, ReplyEnded, ReplyStarted, Request, TextPiece, Usage
from callboard.errors import CallerError
from callboard.testing.strict import Rulebook, Strict
from callboard.text.sse import encode_frame
from callboard.wires import WIRES, Wire

if TYPE_CHECKING:
    from aiohttp import web

_LARGEST_REQUEST = 64 * 1024 * 1024
_PIECE = 4  # characters of a text reply's pieces
_PAGE = "<!doctype html><html><head><title>Sign in</title></head><body>Sign in to go on.</body></html>"

Payload: TypeAlias = Mapping[str, Any] | str | bytes


class Raw(msgspec.Struct, frozen=True):
    """Unchanged payloads in `chunks`.

    In a stream, a mapping or a string is the data of one frame; bytes are not framed.
    """

    chunks: Sequence[Payload]


class StatusReply(msgspec.Struct, frozen=True):
    """A response with the status `code` and `headers`. A mapping in `body` is sent as JSON, other bodies unchanged.

    None sends an error of OpenAI.
    """

    code: int
    body: Payload | None = None
    headers: Mapping[str, str] = {}


class Html(msgspec.Struct, frozen=True):
    """A web page `body` instead of JSON with the status `code`, as from a proxy or a login page."""

    code: int = 200
    body: str = _PAGE


class Cut(msgspec.Struct, frozen=True):
    """The events `after` which the connection drops. A reply that is not streamed does not start."""

    after: Sequence[Event] = ()


class Silence(msgspec.Struct, frozen=True):
    """The events `after` which nothing comes until the client leaves. A reply that is not streamed does not start."""

    after: Sequence[Event] = ()


Reply: TypeAlias = str | Sequence[Event] | Raw | StatusReply | Html | Cut | Silence
Replies: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A received request, with its `method` and `path`.

    The names of `headers` ignore case. `body` is the decoded JSON, None if there is none. `refused_by` is the name of
    the strict rule that refused the request, "" if there is none.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    refused_by: str = ""


class _Answer(msgspec.Struct, frozen=True):
    pieces: Sequence[bytes]
    status: int = 200
    headers: Mapping[str, str] = {}
    streamed: bool = False
    ending: Literal["whole", "cut", "silent"] = "whole"


class FakeBackend:
    """A backend on loopback. Use `async with FakeBackend(["Hello"]) as backend`, and send requests to `backend.url`.

    `replies` has one reply per request, or is a function that returns the reply to a request's body. A reply is a text
    (sent in pieces of 4 characters), a sequence of events that ends with a ReplyEnded, `Raw` payloads, or a fault:
    `StatusReply`, `Html`, `Cut`, `Silence`. The path of the request selects the wire. Its `stream` selects frames or
    one JSON body. When no reply is left, the response is 500, with `x-should-retry: false`.

    `chunk_size` sends a stream's bytes in pieces of that size. By default each piece is one frame. GET /v1/models lists
    `models`.

    `pages` has responses to GET by path, such as `{"/props": {"build_info": "b1"}}`. You may change it.

    `strict` names servers, templates or rules of `callboard.testing.strict`. A request that one of them refuses gets
    the refusal and uses up no reply.

    `requests` has the received requests in their order. `disconnected` is set when a client leaves before its response
    was sent. So a test can wait for a cancellation; clear it to wait for the next.

    Raises CallerError if a reply has another type, or if `strict` does not know a name.
    """

    def __init__(
        self,
        replies: Replies,
        *,
        chunk_size: int | None = None,
        models: Sequence[str] = ("fake-model",),
        strict: Strict = (),
        pages: Mapping[str, Payload] | None = None,
    ) -> None:
        if not callable(replies):
            for index, reply in enumerate(replies):
                _check(reply, f"replies[{index}]")
        self.url = ""
        self.requests: list[ReceivedRequest] = []
        self.disconnected = asyncio.Event()
        self._replies = replies
        self._received = 0
        self._chunk_size = chunk_size
        self._models = models
        self.pages = dict(pages or {})
        self._rules = Rulebook(strict)
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        from aiohttp import web  # noqa: PLC0415 - costs 100 ms, on first use

        app = web.Application(client_max_size=_LARGEST_REQUEST)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def assert_complete(self) -> None:
        """Raise AssertionError unless the number of requests is the number of replies."""
        if callable(self._replies):
            return
        unused = [
            f"replies[{index}] {_short(self._replies[index])}" for index in range(self._received, len(self._replies))
        ]
        if unused:
            raise AssertionError(f"not asked for: {', '.join(unused)}")
        if self._received > len(self._replies):
            raise AssertionError(f"{self._received} requests came for {len(self._replies)} replies")

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        try:
            body = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            body = None
        wire = _wire_of(request.path)
        refusal = self._rules.refuse(wire.name, body) if wire is not None and isinstance(body, dict) else None
        refused_by = refusal.rule.name if refusal is not None else ""
        self.requests.append(ReceivedRequest(request.method, request.path, request.headers, body, refused_by))
        match request.method, request.path:
            case "GET", path if path in self.pages:
                answer = _Answer([_bytes(self.pages[path])], headers={"Content-Type": "application/json"})
            case "GET", "/v1/models":
                answer = _json(
                    200,
                    {
                        "object": "list",
                        "data": [
                            {"id": name, "object": "model", "created": 0, "owned_by": "callboard"}
                            for name in self._models
                        ],
                    },
                )
            case "POST", _ if refusal is not None:
                answer = _json(refusal.status, refusal.body)
            case "POST", path if wire is not None and isinstance(body, dict):
                answer = self._answer(_Question(wire, path, body))
            case "POST", _ if wire is not None:
                answer = _refusal(400, "the body is not a JSON object")
            case _:
                answer = _refusal(404, f"the fake backend has no {request.method} {request.path}")
        try:
            return await self._send(request, answer)
        except (asyncio.CancelledError, ConnectionError):
            if answer.ending != "cut" and not self._over.is_set():
                self.disconnected.set()
            raise

    def _answer(self, question: _Question) -> _Answer:
        number, self._received = self._received, self._received + 1
        if callable(self._replies):
            return _lower(self._replies(question.body), question, number)
        if number < len(self._replies):
            return _lower(self._replies[number], question, number)
        message = f"the fake backend has {len(self._replies)} replies, and this is request {number + 1}"
        return _refusal(500, message, {"x-should-retry": "false"})

    async def _send(self, request: web.Request, answer: _Answer) -> web.StreamResponse:
        from aiohttp import web  # noqa: PLC0415 - here it costs nothing any more

        response: web.StreamResponse
        if answer.streamed:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            await response.prepare(request)
            for piece in _pieces(answer.pieces, self._chunk_size):
                await response.write(piece)
                await asyncio.sleep(0)  # a client in this loop sees one piece at a time
        else:
            response = web.Response(status=answer.status, headers=answer.headers, body=b"".join(answer.pieces))
        if answer.ending == "silent":
            await self._over.wait()
        if answer.ending != "whole" and request.transport is not None:
            request.transport.close()  # written bytes are sent first, but not the rest of the response
        return response


def _check(reply: Any, path: str) -> None:
    if not isinstance(reply, str | list | tuple | Raw | StatusReply | Html | Cut | Silence):
        raise CallerError(
            f"{type(reply).__name__} is not a reply", path=path, hint="put the events of a reply into a list"
        )


class _Question(msgspec.Struct, frozen=True):
    """A received request and its wire."""

    wire: Wire
    path: str
    body: dict[str, Any]

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream")) or "stream" in self.path.rpartition(":")[2]

    @property
    def model(self) -> str:
        named = self.path.rpartition("/")[2].partition(":")[0] if ":" in self.path else ""
        return str(self.body.get("model") or named)

    @property
    def request(self) -> Request | None:
        """The request, None if it cannot be read, because a test may send anything."""
        try:
            return self.wire.decode_request(self.body)
        except CallerError:
            return None


def _wire_of(path: str) -> Wire | None:
    name = next((name for end, name in _ENDS.items() if path.endswith(end)), "")
    return WIRES.get(name)


_ENDS = {
    "/chat/completions": "chat",
    "/messages": "messages",
    "/responses": "responses",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}


def _lower(reply: Reply, question: _Question, number: int) -> _Answer:
    """Return the bytes of a reply, in the format of the request."""
    _check(reply, "reply")
    match reply:
        case str():
            return _events(_text(reply), question, number)
        case Raw(chunks=chunks) if question.streams:
            frames = [chunk if isinstance(chunk, bytes) else encode_frame(_bytes(chunk)) for chunk in chunks]
            return _stream(frames)
        case Raw(chunks=chunks):
            return _Answer([_bytes(chunk) for chunk in chunks], headers={"Content-Type": "application/json"})
        case StatusReply(code=code, body=None, headers=headers):
            return _refusal(code, f"the fake backend answers {code}", headers)
        case StatusReply(code=code, body=content, headers=headers):
            kind = "text/plain; charset=utf-8" if isinstance(content, str) else "application/json"
            return _Answer([_bytes(content or b"")], code, {"Content-Type": kind} | dict(headers))
        case Html(code=code, body=page):
            return _Answer([page.encode()], code, {"Content-Type": "text/html; charset=utf-8"})
        case Cut(after=events):
            return msgspec.structs.replace(_events(events, question, number, end=False), ending="cut")
        case Silence(after=events):
            return msgspec.structs.replace(_events(events, question, number, end=False), ending="silent")
        case events:
            return _events(events, question, number)


def _events(events: Sequence[Event], question: _Question, number: int, *, end: bool = True) -> _Answer:
    content: dict[str, Any] = {"identifier": f"fake-{number}", "model": question.model, "created": 0}
    if question.wire.name == "responses":
        content["request"] = question.request  # a call has its tool's kind and namespace
    if not question.streams:
        return _json(200, question.wire.encode_response(events, **content))
    if question.wire.name == "chat":
        options = question.body.get("stream_options") or {}
        content["include_usage"] = bool(options.get("include_usage"))
    encoder = question.wire.stream_encoder(**content)
    payloads = [payload for event in events for payload in encoder.feed(event)]
    if end:
        payloads += encoder.finish()
    return _stream([encode_frame(data, event) for event, data in payloads])


def _text(text: str) -> list[Event]:
    """Return a reply with the text. Each piece counts as one token."""
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return [ReplyStarted(), *map(TextPiece, pieces), Usage(input=1, output=len(pieces)), ReplyEnded("stop")]


def _stream(pieces: Sequence[bytes]) -> _Answer:
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    return _Answer(pieces, headers=headers, streamed=True)


def _json(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> _Answer:
    return _Answer([msgspec.json.encode(body)], status, {"Content-Type": "application/json"} | dict(headers or {}))


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> _Answer:
    error = {"message": message, "type": "fake_backend", "param": None, "code": None}
    return _json(status, {"error": error}, headers)


def _bytes(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else msgspec.json.encode(payload)


def _pieces(frames: Sequence[bytes], size: int | None) -> Sequence[bytes]:
    if size is None:
        return frames
    stream = b"".join(frames)
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def _short(reply: Reply) -> str:
    shown = repr(reply)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
