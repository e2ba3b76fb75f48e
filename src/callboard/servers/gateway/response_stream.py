"""Write a reply to the client's socket, as a stream or as one body.

Laws: a frame of a stream is never split over two writes; events that arrive together are written together; a client
that leaves cancels its reply upstream at once, unless it waited long for the first token; every stream that began ends with exactly one terminal event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from callboard.core import Event, Note, ReplyFailed, ReplyStarted
from callboard.providers.http_exchange import BEFORE_TOKENS, PassedReply
from callboard.servers.gateway.abandoned_replies import Receive, ReplyClient, Send
from callboard.servers.gateway.exchange import Exchange, dropped_header
from callboard.servers.gateway.http_errors import HttpError
from callboard.text.sse import Payload
from callboard.wires.field_mapping import loses_meaning

log = logging.getLogger("callboard.gateway")

_STREAM = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
_DRAIN_SECONDS = 1.0
"""Seconds that a backend has to end its answer after the reply's last event, so that the connection can be reused."""


async def send_json(send: Send, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
    data = msgspec.json.encode(body)
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        *_encode(headers or {}),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": data})


async def respond(
    exchange: Exchange,
    receive: Receive,
    send: Send,
    heartbeat: float,
    keep: Callable[[ReplyClient], bool] = lambda _: False,
) -> None:
    """Send the reply. A failure before the first event is an error with its status. Raises an HttpError."""
    refuse_loss(exchange)
    client = ReplyClient(receive, send, keep)
    try:
        if exchange.request.stream:
            await _Stream(exchange, client, heartbeat).run()
        else:
            await _respond_whole(exchange, client)
    except asyncio.CancelledError:
        if not client.is_gone or (task := asyncio.current_task()) is None:
            raise
        task.uncancel()
    finally:
        client.close()


async def _respond_whole(exchange: Exchange, client: ReplyClient) -> None:
    events: list[Event] = []
    async with aclosing(exchange.batches()) as batches:
        async for batch in batches:
            events += take_notes(exchange, batch)
    failed = events[-1] if events else ReplyFailed("provider", "cut", "the backend sent no reply")
    if isinstance(failed, ReplyFailed):
        status, refusal = exchange.encode_failure(failed)
        await client.begin()
        await send_json(client.send, status, refusal, exchange.headers())
        return
    passed = next((event for event in events if type(event) is PassedReply), None)
    body: Any = exchange.encode_whole(events) if passed is None else msgspec.Raw(passed.data)
    if exchange.on_finished is not None:
        await exchange.on_finished(body)
    await client.begin()
    await send_json(client.send, 200, body, exchange.headers())


def take_notes(exchange: Exchange, events: list[Event]) -> list[Event]:
    """Return the events, without notes except `incomplete`. Raises an HttpError for a loss that is not allowed."""
    if type(events[0]) is not Note:
        return events
    exchange.record.add_dropped([event.unsent for event in events if isinstance(event, Note) and event.unsent])
    refuse_loss(exchange)
    return [event for event in events if type(event) is not Note or event.code == "incomplete"]


def refuse_loss(exchange: Exchange) -> None:
    """Raises an HttpError for a loss that is not allowed."""
    if exchange.strict and (losses := [each for each in exchange.record.dropped if loses_meaning(each)]):
        raise HttpError("would_lose", f"this would be lost on the way: {dropped_header(losses)}")


class _Stream:
    """One stream to one client."""

    def __init__(self, exchange: Exchange, client: ReplyClient, heartbeat: float) -> None:
        self._exchange = exchange
        self._client = client
        self._send = client.send
        self._encoder = exchange.encoder()
        self._framer = exchange.framer()
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self._last_write = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._has_begun = False
        self._is_over = False

    async def run(self) -> None:
        self._timer = self._loop.call_later(self._heartbeat, self._check)
        try:
            async with aclosing(self._exchange.batches()) as batches:
                try:
                    async for events in batches:
                        await self._feed(events)
                        if self._is_over:
                            break
                    else:
                        await self._end()
                except asyncio.CancelledError:
                    if self._has_begun and not self._is_over:
                        with suppress(Exception):
                            await self._end("cancelled")
                    raise
                except Exception:
                    if self._has_begun and not self._is_over:
                        with suppress(Exception):
                            await self._end("cut")
                    raise
                self._client.stop_listening()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_SECONDS):
                        async for _ in batches:
                            pass
        finally:
            self._timer.cancel()
            if self._beating is not None:
                self._beating.cancel()

    async def _feed(self, events: list[Event]) -> None:
        exchange = self._exchange
        if not self._has_begun:
            events = take_notes(exchange, events)
            if not events:
                return
            if isinstance(events[-1], ReplyFailed):
                await self._client.begin()
                if not await self._may_begin(events[-1]):
                    return
        if self._client.is_waiting and not BEFORE_TOKENS.issuperset(map(type, events)):
            await self._client.begin()
        is_over = exchange.record.end is not None
        passed = events[0]
        if type(passed) is PassedReply:
            events = events[len(events) - passed.rest :]
            if not self._has_begun:
                self._encoder.feed(ReplyStarted())  # the client gets its frames
            if passed.data or not events:
                await self._write([], is_over and not events, passed.data)
            if not events:
                return
        feed = self._encoder.feed
        payloads: list[Payload] = []
        for event in events:
            payloads += feed(event)
        if is_over:
            payloads += self._encoder.finish()
        if payloads or is_over:
            await self._write(payloads, is_over)

    async def _may_begin(self, failed: ReplyFailed) -> bool:
        """Return whether this failure begins the stream. If not, an error response was sent instead."""
        exchange = self._exchange
        status, body = exchange.encode_failure(failed)
        if exchange.front.streams_failures and status >= 500:
            return True
        self._is_over = True
        await send_json(self._send, status, body, exchange.headers())
        return False

    async def _end(self, why: Any = "stop") -> None:
        await self._write(self._encoder.finish(why), is_last=True)

    async def _write(self, payloads: list[Payload], is_last: bool = False, raw: bytes = b"") -> None:
        if not self._has_begun:
            self._has_begun = True
            kind = (b"content-type", self._exchange.content_type.encode())
            headers = [kind, *_STREAM, *_encode(self._exchange.headers())]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._last_write = self._loop.time()
        if is_last:
            self._is_over = True
            finished = self._exchange.on_finished
            response = getattr(self._encoder, "response", None)
            if finished is not None and response is not None:
                await finished(response)
        body = self._framer.encode(payloads) + raw
        if is_last:
            body += b"".join(self._framer.finish())
        # ASGI servers send the body; a WebSocket sends each payload as a message.
        await self._send({"type": "http.response.body", "body": body, "payloads": payloads, "more_body": not is_last})

    def _check(self) -> None:
        """Send a heartbeat if nothing was written for a while. A single timer adds no work per event."""
        rest = self._last_write + self._heartbeat - self._loop.time()
        if rest <= 0 and not self._is_over and (self._beating is None or self._beating.done()):
            self._beating = self._loop.create_task(self._beat())
            rest = self._heartbeat
        self._timer = self._loop.call_later(max(rest, 0.05), self._check)

    async def _beat(self) -> None:
        beat = self._exchange.front.heartbeat(self._encoder)
        if beat and not self._is_over:
            with suppress(OSError):
                await (self._write([], raw=beat) if isinstance(beat, bytes) else self._write(beat))


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers.items()]
