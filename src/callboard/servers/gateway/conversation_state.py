"""A client's turn in a conversation, on the Responses front.

Owns what stands before a turn's own input, what is kept of it, and which replies run. Knows nothing of sockets, and
of databases only the store.
Laws: a conversation that is not here whole is refused, never cut; a compaction begins a conversation anew. Linear in
the conversation, which a backend is sent whole.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.servers.gateway import compaction
from callboard.servers.gateway.cancellation import CancellableReply
from callboard.servers.gateway.connections import BudgetShare
from callboard.servers.gateway.exchange import Exchange
from callboard.servers.gateway.frontends import Frontend
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_store import LONGEST, ResponseStore, StoredResponse
from callboard.servers.gateway.settings import GatewayLimits
from callboard.wires.responses.response_object import Resource
from callboard.wires.responses.stored_items import input_items, listed

_encode = msgspec.json.encode
_KEPT = frozenset({"completed", "incomplete", "cancelled"})
_PLACE = re.compile(r"input\[(\d+)\]")
_SHOWN = 100
"""Characters of an identifier in a message."""


class ResponseHistory(msgspec.Struct, frozen=True):
    """What was said until a response, and its `size` in bytes."""

    identifier: str = ""
    items: list[Any] = []
    size: int = 0


class ConnectionMemory:
    """What a connection remembers: the conversation until its last response."""

    def __init__(self) -> None:
        self.last = ResponseHistory()


class _Turn(msgspec.Struct, frozen=True):
    """`before` is the conversation that `input`, the turn's own items, goes on from."""

    owner: str
    before: ResponseHistory
    input: list[Any]
    stored: bool
    memory: ConnectionMemory | None


class _Said(msgspec.Struct):
    output: list[Any]


_read_said = msgspec.json.Decoder(_Said).decode
_read_items = msgspec.json.Decoder(list[Any]).decode


class ConversationState:
    """`ask` is `Gateway.exchange`. Without a store only a connection's memory can be gone on from."""

    def __init__(
        self, ask: Callable[..., Awaitable[Exchange]], store: ResponseStore | None, limits: GatewayLimits
    ) -> None:
        self.store = store
        self._ask = ask
        self._most = limits.body
        self._running: dict[str, CancellableReply] = {}

    async def exchange(
        self,
        front: Frontend,
        body: Mapping[str, Any],
        *,
        owner: str = "",
        memory: ConnectionMemory | None = None,
        share: BudgetShare | None = None,
        size: int = 0,
        **said: Any,
    ) -> Exchange:
        """What a body asks for, with what stands before it; parameters as of `ask`. Raises an HttpError.

        What is read from the store is taken of the share, as the body was.
        """
        before = await self._before(body, owner, memory, size, share)
        own = _own(body)
        stored = self.store is not None and body.get("store") is not False
        echo = body if bool(body.get("store")) is stored else {**body, "store": stored}
        said |= {"owner": owner, "size": size + before.size, "echo": echo}
        if compaction.is_asked(own):
            items = [*before.items, *own[:-1]]
            exchange = await self._asked(compaction.in_stream(front), compaction.asked(body, items), before, said)
            exchange.around = partial(compaction.summed_up, exchange.record)
            turn = _Turn(owner, ResponseHistory(), compaction.by_users(items), stored, memory)
        else:
            asked = body
            if "previous_response_id" in body:
                asked = {**body, "input": [*before.items, *own]}
                del asked["previous_response_id"]
            exchange = await self._asked(front, asked, before, said)
            turn = _Turn(owner, before, own, stored, memory)
        if stored or memory is not None:
            exchange.finished = partial(self._finished, turn)
        cancelled = partial(self._cancelled, turn, exchange, echo)
        exchange.around = CancellableReply(self._running, exchange, owner, cancelled).through
        return exchange

    async def compact(
        self,
        front: Frontend,
        body: Mapping[str, Any],
        *,
        owner: str = "",
        share: BudgetShare | None = None,
        size: int = 0,
        **said: Any,
    ) -> Exchange:
        """What POST /v1/responses/compact asks for. Raises an HttpError."""
        before = await self._before(body, owner, None, size, share)
        items = [*before.items, *_own(body)]
        asked = {**compaction.asked(body, items), "stream": False}
        exchange = await self._asked(
            compaction.by_itself(front, items), asked, before, {**said, "owner": owner, "size": size + before.size}
        )
        exchange.around = partial(compaction.summed_up, exchange.record)
        return exchange

    async def items(self, body: Mapping[str, Any], *, owner: str, share: BudgetShare, size: int) -> list[Any]:
        """The conversation that a body asks to go on from, and its own items. Raises an HttpError."""
        before = await self._before(body, owner, None, size, share)
        return [*before.items, *_own(body)]

    async def cancel(self, identifier: str, owner: str) -> Mapping[str, Any] | None:
        """Cancels a reply of this process, and gives its response; None where none of that owner runs."""
        running = self._running.get(identifier)
        return None if running is None else await running.cancel(owner)

    async def _before(
        self, body: Mapping[str, Any], owner: str, memory: ConnectionMemory | None, size: int, share: BudgetShare | None
    ) -> ResponseHistory:
        previous = body.get("previous_response_id")
        if previous is None:
            return ResponseHistory()
        if not isinstance(previous, str):
            raise HttpError("invalid_request", "not a response's id", path="previous_response_id")
        found = ResponseHistory()
        if memory is not None and previous and memory.last.identifier == previous:
            found = memory.last
        elif self.store is not None:
            found = await self._kept(self.store, previous, owner)
            if share is not None:
                share.take(found.size)
        if not found.identifier:
            raise _not_found(previous)
        if found.size + size > self._most:
            message = f"the conversation has more than {self._most} bytes, or {LONGEST} replies"
            raise HttpError("request_too_large", message, path="previous_response_id")
        _check_outputs(found.items, _own(body))
        return found

    async def _kept(self, store: ResponseStore, previous: str, owner: str) -> ResponseHistory:
        kept = await store.conversation(previous, owner, self._most)
        if not kept:
            return ResponseHistory()
        if (earlier := kept[0].previous) and await store.find(earlier, owner) is None:
            raise _not_found(earlier)
        items: list[Any] = []
        for each in kept:
            items += _read_items(each.input)
            items += _read_said(each.body).output
        size = self._most + 1 if earlier else sum([each.size for each in kept])
        return ResponseHistory(previous, items, size)

    async def _asked(
        self, front: Frontend, asked: Mapping[str, Any], before: ResponseHistory, said: Mapping[str, Any]
    ) -> Exchange:
        """The exchange; an HttpError names the place in the client's own body."""
        try:
            return await self._ask(front, asked, **said)
        except HttpError as refusal:
            place = _PLACE.match(refusal.path)
            if place is None or not before.items:
                raise
            at = int(place[1]) - len(before.items)
            path = f"input[{at}]{refusal.path[place.end() :]}" if at >= 0 else "previous_response_id"
            raise HttpError(refusal.failure.code, str(refusal), path=path, headers=refusal.headers) from None

    async def _finished(self, turn: _Turn, body: dict[str, Any]) -> None:
        """Keeps what is to be kept; the client waits for it, so that it can go on at once."""
        if body["status"] not in _KEPT:
            return
        identifier: str = body["id"]
        items = listed(turn.input, identifier.removeprefix("resp_"))
        kept = StoredResponse(identifier, turn.owner, turn.before.identifier, _encode(body), _encode(items))
        if turn.stored and self.store is not None:
            try:
                body["store"] = await self.store.save(kept)
            except HttpError:
                body["store"] = False  # too late for a stream; the store has said why in the log
        if turn.memory is not None:
            said = [*turn.before.items, *items, *body["output"]]
            turn.memory.last = ResponseHistory(identifier, said, turn.before.size + kept.size)

    async def _cancelled(self, turn: _Turn, exchange: Exchange, echo: Mapping[str, Any]) -> Mapping[str, Any]:
        resource = Resource(
            identifier=exchange.identifier,
            model=exchange.request.model,
            created=exchange.created,
            request=exchange.request,
            echo=echo,
        )
        body = resource.body("cancelled", [])
        await self._finished(replace(turn, memory=None), body)
        return body


def _own(body: Mapping[str, Any]) -> list[Any]:
    """The items of the body itself."""
    said = body.get("input")
    if said is not None and not isinstance(said, str | list):
        raise HttpError("invalid_request", "neither a text nor a list of items", path="input")
    return input_items(said)


def _not_found(identifier: str) -> HttpError:
    message = f"Previous response with id {identifier[:_SHOWN]!r} not found."
    return HttpError("previous_response_not_found", message, path="previous_response_id")


def _check_outputs(before: Sequence[Any], own: Sequence[Any]) -> None:
    """An output that no call of the conversation asked for is a mistake here, for the conversation is whole."""
    called = {_call(item) for item in (*before, *own) if not _is_output(item)}
    for place, item in enumerate(own):
        if _is_output(item) and (call := _call(item)) and call not in called:
            message = f"No tool call found for function call output with call_id {call[:_SHOWN]}."
            raise HttpError("invalid_request", message, path=f"input[{place}]")


def _is_output(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_output")


def _call(item: Any) -> str:
    call = item.get("call_id") if isinstance(item, dict) else None
    return call if isinstance(call, str) else ""
