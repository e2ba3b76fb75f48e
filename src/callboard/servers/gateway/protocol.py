"""A client's connection: uvicorn's protocols, with bounds.

What a client may do before a request of it is known: how large a head is, how long it takes, how much is read in one
turn of the event loop. uvicorn's `h11_max_incomplete_event_size` does not hold for httptools, which puts a header
together piece by piece (quadratic in its size: 60 MB took nine seconds in which nobody else was answered), and it has
no deadline for a head, nor for a body that nobody reads any more.

Laws: a head has at most MAX_HEAD bytes and MAX_HEADERS fields, and is whole within `head_seconds`; a connection whose
request was answered does not outlive `head_seconds` in the middle of its body, nor `idle_seconds` without a further
request; in one turn of the loop at most a slice is parsed, whatever a client sends, so that others have their turn;
a connection that waits for a request makes room for a new one, the oldest first.

A request costs about a microsecond more than with uvicorn alone: deadlines are compared by one timer that is set anew
only when it fires, never for each request.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, Final, Protocol

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from callboard.servers.gateway.frontends import frontends
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import ByteBudget
from callboard.servers.gateway.settings import GatewayLimits

MAX_HEAD: Final = 64 * 1024
"""Bytes of a request's line and header fields; also of the framing of a chunked body, such as its trailer."""
MAX_HEADERS: Final = 100
"""Header fields; each look-up reads all of them."""
_MAX_PIPELINED: Final = 16
"""Requests that may wait behind one that is answered, on one connection. Today's clients send none."""
_SLICE: Final = 32 * 1024
"""Bytes that are parsed in one turn of the loop: 5,000 chunks of one byte each, three milliseconds of them."""
_FRAMES: Final = 4 * 1024
"""The same for a WebSocket, whose frames are parsed in Python: 680 empty ones."""
_LINGER: Final = 2.0
"""Seconds in which a client can read why it was refused, before its connection is closed."""
_PROBES: Final = (0.01, 0.1, 1.0)
"""Seconds until the outcome of each probe is looked at, then every second; a proxy may learn it only from the second."""
_TRY_AGAIN: Final = 1013
"""A WebSocket's closing code for a server that has no room."""


class Evictable(Protocol):
    """A connection that can be ended while it waits for a request."""

    def evict(self) -> None: ...


class IdleConnections:
    """The connections that wait for a request, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Evictable, None] = {}

    def admit(self, connection: Evictable, count: int) -> bool:
        """Add a connection that waits for a request, if one more may stay; `count` includes it."""
        if count > self._most:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            del self._waiting[oldest]
            oldest.evict()
        self._waiting[connection] = None
        return True

    def add(self, connection: Evictable) -> None:
        """Its request was answered, and it waits for the next."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def remove(self, connection: Evictable) -> None:
        """It has sent a request, or has gone."""
        self._waiting.pop(connection, None)


class SharedState(msgspec.Struct, frozen=True):
    """Shared by the connections of a process, through the application's lifespan."""

    limits: GatewayLimits
    connections: IdleConnections
    room: ByteBudget


STATE: Final = "callboard"
"""The key of SharedState in the lifespan's state."""


class _Flow(FlowControl):
    """Pauses reading until the data that was read is parsed."""

    held = False
    ended = False
    """The client sends no more: an event loop that reads on would be told so again and again."""

    def hold(self) -> None:
        self.held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        if not self.held and not self.ended:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection. A request is on its way from its first byte until `on_message_complete`."""

    flow: _Flow

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        shared: SharedState = app_state[STATE]
        self._head_seconds = shared.limits.head_seconds
        self._shared = shared.connections
        # uvicorn hands it to call_later, and its own setting takes whole seconds only.
        self.timeout_keep_alive = shared.limits.idle_seconds  # type: ignore[assignment]
        self._head = 0
        """Bytes since the last request was whole."""
        self._in_body = False
        self._beside = 0
        """Bytes of a body's framing since the last piece of the body."""
        self._has_body = False
        self._fault: HttpError | None = None
        self._over = False
        """Nothing more is read of this client."""
        self._rest: deque[bytes] = deque()
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._prober: asyncio.TimerHandle | None = None

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        if self._shared.admit(self, len(self.connections)):
            self._expect(self._head_seconds)
            return
        self._stop()
        self._write(HttpError("overloaded", "there are too many connections", headers={"retry-after": "1"}))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: where something that was asked is still to be answered."""
        cycle = self.cycle
        if self._over or cycle is None or cycle.more_body or cycle.response_complete:
            return False
        if cycle.scope["http_version"] != "1.1" or not self.transport.can_write_eof():  # TLS has no half-closed clients
            return False
        cycle.keep_alive = False
        self.flow.ended = True
        self._probe(cycle, 0)
        return True

    def _probe(self, cycle: RequestResponseCycle, count: int) -> None:
        """End the connection of a client that has left: what was written to it came back as an error."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if count < len(_PROBES) and not self.pipeline:
            if not cycle.response_started:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif cycle.chunked_encoding:
                self.transport.write(b"0")
        seconds = _PROBES[min(count, len(_PROBES) - 1)]
        self._prober = self.loop.call_later(seconds, self._probe, cycle, count + 1)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if not self._rest and len(data) <= _SLICE:
            self._take(data)
            return
        first = not self._rest
        self._rest.extend([data[at : at + _SLICE] for at in range(0, len(data), _SLICE)])
        if first:
            self.flow.hold()
            self._take_next()

    def _take_next(self) -> None:
        if self._over or not self._rest or self.transport.is_closing():
            self._rest.clear()
            return
        self._take(self._rest.popleft())
        if self._rest:
            self.loop.call_soon(self._take_next)
            return
        self.flow.held = False
        if not self.pipeline and (self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _take(self, data: bytes) -> None:
        """Parse the data, a head never further than its limit."""
        room = MAX_HEAD - self._head
        if self._in_body or len(data) <= room:
            self._parse(data)
        else:
            self._parse(data[:room])
            if not self._over and not self._in_body and self._head >= MAX_HEAD:
                message = f"the head of a request has at most {MAX_HEAD} bytes"
                self._refuse(HttpError("header_too_large", message))
            elif not self._over:
                self._take(data[room:])

    def _parse(self, data: bytes) -> None:
        in_body = self._in_body
        if not in_body:
            self._head += len(data)
        self._has_body = False
        super().data_received(data)
        if self._over:
            return
        self._beside = 0 if self._has_body or not in_body or not self._in_body else self._beside + len(data)
        if self._beside > MAX_HEAD:
            self._refuse(HttpError("invalid_request", "a body's framing is larger than a head may be"))
        elif self._is_answered() and self._deadline is None:
            # Something came that is no whole request, or the rest of one that was answered before it was read.
            self._expect_more()

    # Called by the parser.

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._deadline = None
        if len(self.headers) > MAX_HEADERS:
            self._fault = HttpError("header_too_large", f"a request has at most {MAX_HEADERS} header fields")
            raise self._fault  # the parser stops, and send_400_response is called
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._fault = HttpError("invalid_request", f"at most {_MAX_PIPELINED} requests may wait on a connection")
            raise self._fault
        self._shared.remove(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_body = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        self._in_body = False
        self._deadline = None
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._stop()
        super().handle_websocket_upgrade()

    # The answer.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._over:
            self.transport.close()
            return
        if not self._is_answered():
            return
        self._shared.add(self)
        if self._head or self._in_body:
            self._expect(self._head_seconds)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault or HttpError("invalid_request", msg))

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, refusal: HttpError) -> None:
        """Answer what cannot be a request, and read no more. A request before it is still answered."""
        self._stop()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not self.pipeline and cycle.more_body and not cycle.response_started:
                self._write(refusal)  # the request itself is what cannot be
                self.transport.close()
            self.pipeline.clear()
            return
        self._write(refusal)
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        # A client that is still sending would lose the answer if its connection were closed under it.
        self.transport.write_eof()
        self._expect(_LINGER)

    def _write(self, refusal: HttpError) -> None:
        data = msgspec.json.encode(frontends()["chat"].error(refusal.failure, refusal.status))
        lines = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(data)),
            (b"connection", b"close"),
        ]
        lines += [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        head = [b"%b: %b\r\n" % line for line in (*self.server_state.default_headers, *lines)]
        self.transport.write(b"".join([STATUS_LINE[refusal.status], *head, b"\r\n", data]))

    # Deadlines.

    def evict(self) -> None:
        """Close a connection that waits for a request: another one needs its place."""
        self._stop()
        self.transport.close()

    def _stop(self) -> None:
        self._over = True
        self._deadline = None
        self._rest.clear()
        self._shared.remove(self)
        self._unset_keepalive_if_required()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._prober is not None:
            self._prober.cancel()
            self._prober = None
        # What comes is dropped, but that the client leaves is to be noticed.
        self.flow.held = False
        self.flow.resume_reading()

    def _expect_more(self) -> None:
        if self._head or self._in_body:
            self._expect(self._head_seconds)
        elif self.timeout_keep_alive_task is None:  # the data has stopped uvicorn's own timer
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def _expect(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._deadline is None or self.transport.is_closing():
            return
        if self.loop.time() < self._deadline:
            self._timer = self.loop.call_at(self._deadline, self._check)
        elif self._over or self._in_body or not self._head:
            self.transport.abort()  # nobody waits for an answer, or has taken it in time
        else:
            self._refuse(HttpError("timeout", f"the head was not whole after {self._head_seconds:g} s"))


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket. Its messages are bytes, even if they were sent as text: they are read as JSON."""

    frames: list[Any]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        shared: SharedState = app_state[STATE]
        self._room = shared.room
        self._counted = 0
        """Bytes of an incomplete message, which were taken of the request budget."""
        self._rest: deque[bytes] = deque()
        self._scheduled = False

    def data_received(self, data: bytes) -> None:
        self._rest.extend([data[at : at + _FRAMES] for at in range(0, len(data), _FRAMES)])
        if not self._scheduled:
            self._take_next()

    def _take_next(self) -> None:
        self._scheduled = False
        if not self._rest or self.transport.is_closing():
            self._rest.clear()
            return
        super().data_received(self._rest.popleft())
        if not self._count():
            self._rest.clear()
            self.conn.fail(_TRY_AGAIN, "too much is waiting to be answered here")
            self.handle_parser_exception()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest.clear()
        self._room.release(self._counted)
        self._counted = 0
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._go_on()  # pongs are written even if the client does not read them: take no more pings

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def handle_cont(self, event: Frame) -> None:
        # One buffer, for a list of fragments of a byte each is forty times as large as they are.
        if not isinstance(self.frames[0], bytearray):
            self.frames[0] = bytearray(self.frames[0])
        self.frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        data, self.frames = bytes(self.frames[0]), []
        if self.close_sent:
            return
        self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        self.read_paused = True

    async def receive(self) -> Any:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    def _count(self) -> bool:
        """Whether there is room for the part of a message that has arrived."""
        size = len(self.conn.reader.buffer) + (len(self.frames[0]) if self.frames else 0)
        if size > self._counted and not self._room.take(size - self._counted):
            return False
        if size < self._counted:
            self._room.release(self._counted - size)
        self._counted = size
        return True

    def _go_on(self) -> None:
        """Read on, or wait until the data is parsed, the message taken, and the output sent."""
        if self.transport.is_closing():
            return
        waits = self.read_paused or not self.writable.is_set()
        if self._rest or waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if self._rest and not waits and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._take_next)
