"""Responses over a WebSocket: one reply at a time, with a memory of the last one.

Laws: a message is the data of one frame of the stream; each `response.create` gets, in order, one terminal event or one
error; a failed continuation is not remembered; a client that leaves cancels its reply upstream.
Source: the Open Responses specification 2026-04-24, the `openai` package 3.54.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from callboard.servers.gateway.auth import read_token
from callboard.servers.gateway.conversation_state import ConnectionMemory, ResponseHistory
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare

if TYPE_CHECKING:
    from callboard.servers.gateway.app import ReplyEndpoint

_MAX_WAITING: Final = 32
"""Maximum messages that wait for earlier replies."""
_TRANSPORT_FIELDS: Final = frozenset({"type", "stream", "stream_options"})
"""Fields of a message that do not belong to the body."""


class ResponsesWebSocket:
    """The endpoint of GET /v1/responses with an upgrade to a WebSocket."""

    def __init__(self, gateway: Gateway, endpoint: ReplyEndpoint) -> None:
        self._gateway = gateway
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_before_accept(message: Message) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        headers = Headers(scope=scope)
        await receive()
        try:
            caller = self._gateway.authenticator.authenticate(headers, read_token(headers))
            with caller.socket(), BudgetShare(self._gateway.request_budget) as share:
                await caller.count()
                await send({"type": "websocket.accept"})
                await _Connection(self._gateway, self._endpoint, headers, receive, send, share).run()
        except HttpError as error:
            await self._endpoint.refuse(error, send_before_accept)


@dataclass(eq=False)
class _Connection:
    gateway: Gateway
    endpoint: ReplyEndpoint
    headers: Headers
    receive: Receive
    send: Send
    share: BudgetShare
    """Budget for the bytes of waiting messages."""
    memory: ConnectionMemory = field(default_factory=ConnectionMemory)
    waiting: asyncio.Queue[bytes] = field(default_factory=partial(asyncio.Queue, _MAX_WAITING))
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        listening = asyncio.ensure_future(self._listen())
        try:
            seconds = self.gateway.settings.limits.socket_idle_seconds
            while (data := await asyncio.wait_for(self.waiting.get(), seconds)) and not self.gone.is_set():
                self.share.give(len(data))
                await self._answer(data)
        except TimeoutError:
            await self.send({"type": "websocket.close", "code": 1001, "reason": "no message arrived"})
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        """Queue messages while a reply is sent, so that a client that leaves is noticed."""
        while (message := await self.receive())["type"] != "websocket.disconnect":
            data: bytes = message.get("bytes") or (message.get("text") or " ").encode()
            try:
                self.share.take(len(data))
                self.waiting.put_nowait(data)
            except HttpError as error:
                await self.endpoint.refuse(error, self._send_as_messages())
            except asyncio.QueueFull:
                self.share.give(len(data))
                refusal = HttpError("rate_limit_exceeded", "replies are sent one at a time, and too many wait")
                await self.endpoint.refuse(refusal, self._send_as_messages())
        self.gone.set()
        with suppress(asyncio.QueueFull):
            self.waiting.put_nowait(b"")

    async def _answer(self, data: bytes) -> None:
        """Answer a message. `read` checks it, so that an invalid message also counts as a request of its key."""
        last, continues = self.memory.last, False

        async def read(share: BudgetShare) -> tuple[dict[str, Any], bytes]:
            nonlocal continues
            share.take(len(data))
            event = await self.gateway.read(data)
            if event.get("type") != "response.create":
                raise HttpError("invalid_request", "only response.create is accepted here", path="type")
            if event.get("stream_id") is not None:
                raise HttpError("invalid_request", "a connection has one conversation", path="stream_id")
            body = {name: value for name, value in event.items() if name not in _TRANSPORT_FIELDS} | {"stream": True}
            continues = bool(last.identifier) and body.get("previous_response_id") == last.identifier
            return body, data

        async def wait_for_disconnect() -> Message:
            await self.gone.wait()
            return {"type": "http.disconnect"}

        send = self._send_as_messages()
        try:
            # Codex sends this after it has read a compaction, and expects no answer.
            if len(data) < 1024 and b'"response.processed"' in data and b'"response.create"' not in data:
                await self.gateway.authenticator.authenticate(self.headers, read_token(self.headers)).count()
                return
            await self.endpoint.answer(self.headers, read, wait_for_disconnect, send, memory=self.memory)
        except HttpError as error:
            await self.endpoint.refuse(error, send)
        if continues and self.memory.last is last:
            self.memory.last = ResponseHistory()

    def _send_as_messages(self) -> Send:
        """Return an ASGI `send` that turns an HTTP answer into messages."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                return
            if status == 200:
                texts = [data for _, data in message["payloads"] if data != b"[DONE]"]
            else:
                error = msgspec.json.decode(message["body"])["error"]
                error["code"] = error["code"] or error["type"]
                texts = [msgspec.json.encode({"type": "error", "status": status, "error": error})]
            with suppress(OSError):  # the client has left
                for text in texts:
                    await self.send({"type": "websocket.send", "text": text.decode()})

        return send
