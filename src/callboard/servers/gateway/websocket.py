"""Responses over a WebSocket: one reply at a time, and the memory of the last.

Laws: a message is the data of a frame of the stream; each `response.create` is answered, in order, by one terminal
event or one error; a continuation that fails is not remembered; a client that leaves cancels its reply upstream.
Source: the Open Responses specification 2026-04-24, the `openai` package 3.54.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from callboard.core import Event, ReplyEnded, ReplyStarted
from callboard.servers.gateway.auth import read_token
from callboard.servers.gateway.conversation_state import ConnectionMemory, ResponseHistory
from callboard.servers.gateway.exchange import Batches, Exchange, MakeExchange, ReplyRequest
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare

if TYPE_CHECKING:
    from callboard.servers.gateway.app import ReplyEndpoint

_MAX_WAITING = 32
"""Messages that may wait for the reply before them."""
_TRANSPORT_FIELDS = frozenset({"type", "stream", "stream_options"})
"""Fields of a message that are not the body's."""
_PROCESSED = "response.processed"
_MAX_PROCESSED = 1024
"""Bytes of such a message, which has an identifier and nothing else."""
_GOING_AWAY = 1001
_DONE = b"[DONE]"


class ResponsesWebSocket:
    """The endpoint of GET /v1/responses with an upgrade."""

    def __init__(self, gateway: Gateway, endpoint: ReplyEndpoint) -> None:
        self._gateway = gateway
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        await receive()
        with ExitStack() as stack:
            try:
                caller = self._gateway.authenticator.authenticate(headers, read_token(headers))
                stack.enter_context(caller.socket())
            except HttpError as error:
                await self._endpoint.refuse(error, partial(_send_before_accept, send))
                return
            await send({"type": "websocket.accept"})
            await _Connection(self._gateway, self._endpoint, headers, receive, send).run()


async def exchange(make_exchange: MakeExchange, request: ReplyRequest) -> Exchange:
    """The exchange of a message; with `generate` false no model is asked, and the response can be continued."""
    body = dict(request.body)
    if body.pop("generate", True) is False:
        request = replace(request, filters=(_reply_nothing,))
    return await make_exchange(replace(request, body=body))


class _Connection:
    def __init__(
        self, gateway: Gateway, endpoint: ReplyEndpoint, headers: Headers, receive: Receive, send: Send
    ) -> None:
        self._gateway = gateway
        self._endpoint = endpoint
        self._headers = headers
        self._receive = receive
        self._send = send
        self._memory = ConnectionMemory()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0
        """Bytes of the waiting messages, which were taken of the request budget."""
        self._is_waiting = False
        self._gone = asyncio.Event()

    async def run(self) -> None:
        listening = asyncio.ensure_future(self._listen())
        try:
            while True:
                try:
                    async with asyncio.timeout(self._gateway.settings.limits.socket_idle_seconds):
                        data = await self._waiting.get()
                except TimeoutError:
                    await self._send({"type": "websocket.close", "code": _GOING_AWAY, "reason": "nothing was asked"})
                    return
                if self._gone.is_set():
                    return
                await self._answer(data)
        finally:
            listening.cancel()
            self._gateway.request_budget.release(self._size)

    async def _listen(self) -> None:
        """Queue messages while a reply is sent, so that a client that leaves is noticed."""
        limit = self._gateway.settings.limits.body
        while (message := await self._receive())["type"] != "websocket.disconnect":
            data: bytes = message.get("bytes") or (message.get("text") or "").encode()
            if len(data) > limit:
                await self._refuse(HttpError("request_too_large", f"{len(data)} bytes; at most {limit} are taken"))
            elif self._waiting.qsize() >= _MAX_WAITING or self._size + len(data) > limit:
                await self._refuse(HttpError("rate_limit_exceeded", "one reply is given at a time, and too many wait"))
            elif not self._gateway.request_budget.take(len(data)):
                await self._refuse(HttpError("overloaded", "too much is waiting to be answered here"))
            else:
                self._size += len(data)
                self._waiting.put_nowait(data)
        self._gone.set()
        self._waiting.put_nowait(b"")

    async def _answer(self, data: bytes) -> None:
        """Answer a message. It is checked in `read`, so that a wrong one counts as a request of its key too."""
        last = self._memory.last
        continues = False
        self._is_waiting = True

        async def read(share: BudgetShare) -> tuple[dict[str, Any], bytes]:
            nonlocal continues
            self._release(data)
            share.take(len(data))
            event = await self._gateway.read(data)
            _check(event)
            body = {name: value for name, value in event.items() if name not in _TRANSPORT_FIELDS} | {"stream": True}
            continues = bool(last.identifier) and body.get("previous_response_id") == last.identifier
            return body, data

        try:
            if _is_processed_message(data):
                self._gateway.authenticator.authenticate(self._headers, read_token(self._headers)).count()
                return
            await self._endpoint.answer(
                self._headers, read, self._wait_for_disconnect, self._send_as_messages(), memory=self._memory
            )
        except HttpError as error:
            await self._refuse(error)
        finally:
            self._release(data)
        if continues and self._memory.last is last:
            self._memory.last = ResponseHistory()

    def _release(self, data: bytes) -> None:
        """The message no longer waits: give its bytes back."""
        if self._is_waiting:
            self._is_waiting = False
            self._size -= len(data)
            self._gateway.request_budget.release(len(data))

    async def _wait_for_disconnect(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _refuse(self, error: HttpError) -> None:
        await self._endpoint.refuse(error, self._send_as_messages())

    def _send_as_messages(self) -> Send:
        """A `send` of ASGI that turns an HTTP answer into messages."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status == 200:
                for _, data in message["payloads"]:
                    if data != _DONE:
                        await self._send_text(data)
            else:
                error = msgspec.json.decode(message["body"])["error"]
                error["code"] = error["code"] or error["type"]
                await self._send_text(msgspec.json.encode({"type": "error", "status": status, "error": error}))

        return send

    async def _send_text(self, data: bytes) -> None:
        try:
            await self._send({"type": "websocket.send", "text": data.decode()})
        except OSError:
            self._gone.set()


class _Kind(msgspec.Struct):
    type: str = ""


_read_kind = msgspec.json.Decoder(_Kind).decode


def _is_processed_message(data: bytes) -> bool:
    """Whether Codex confirms that it has read a compaction, which wants no answer."""
    if len(data) > _MAX_PROCESSED:
        return False
    try:
        return _read_kind(data).type == _PROCESSED
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _check(event: Mapping[str, Any]) -> None:
    if event.get("type") != "response.create":
        raise HttpError("invalid_request", "response.create is what is taken here", path="type")
    if event.get("stream_id") is not None:
        raise HttpError("invalid_request", "a connection has one conversation", path="stream_id")


async def _send_before_accept(send: Send, message: Message) -> None:
    """An HTTP answer instead of a WebSocket."""
    await send({**message, "type": f"websocket.{message['type']}"})


async def _reply_nothing(exchange: Exchange, batches: Batches) -> Batches:
    async with aclosing(batches):
        events: list[Event] = [ReplyStarted(), ReplyEnded("stop")]
        exchange.record.set_end(events)
        yield events
