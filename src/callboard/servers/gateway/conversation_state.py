"""Conversations on the Responses front: earlier turns, stored replies, and summaries.

A summary is requested as a reply of the front. Afterwards the conversation is the user messages and the summary.

Laws: an incomplete conversation is refused, never cut; a compaction begins a new conversation; a model that says
nothing is a failure, never an empty summary. Work is linear in the conversation: a backend is sent all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from callboard.core import Event, ReplyEnded, ReplyFailed, ReplyStarted, TextPiece
from callboard.servers.gateway.exchange import Batches, Exchange, Filter, MakeExchange, ReplyRequest
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewayLimits
from callboard.wires.responses.compaction import TRIGGER, CompactionEncoder, encode_compaction
from callboard.wires.responses.response_object import complete_items, input_items

if TYPE_CHECKING:
    from callboard.servers.gateway.response_store import ResponseStore

PROMPT = """\
Sum up the conversation until here. Your summary will stand in its place: whoever goes on has it, what the user \
said, and nothing else. Write down:
- what is wanted, and which instructions hold from now on;
- what was done and found out, with the names, paths, commands, figures and identifiers that are still needed;
- what was decided, and why;
- what is left to do, and what the next step is.
Call no tool and ask nothing. Answer with the summary alone."""

_REPLY_FIELDS = frozenset({"previous_response_id", "text", "tool_choice"})
"""Fields that apply to a reply, not to a summary."""


def summary_request(body: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """Return the body that asks a model to sum up the items. It begins like the conversation, with all tools, so that a
    prompt cache can be used.
    """
    prompt = {"type": "message", "role": "user", "content": PROMPT}
    rest = {name: value for name, value in body.items() if name not in _REPLY_FIELDS}
    return rest | {"input": [*items, prompt], "tool_choice": "none"}


def user_messages(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, Mapping) and item.get("role") == "user"]


async def require_summary(exchange: Exchange, batches: Batches) -> Batches:
    """Pass the batches on. A reply without text becomes a failure."""
    has_text = False
    async with aclosing(batches):
        async for events in batches:
            has_text = has_text or any(isinstance(event, TextPiece) and event.text.strip() for event in events)
            if events[-1] == ReplyEnded("retry"):
                has_text = False
            elif isinstance(events[-1], ReplyEnded) and not has_text:
                events[-1] = ReplyFailed("provider", "no_summary", "the model did not sum up the conversation")
                exchange.record.set_end(events)
            yield events


def _encode_body(users: Sequence[Any], events: Iterable[Event], **options: Any) -> dict[str, Any]:
    """Return the answer to POST /v1/responses/compact."""
    response = encode_compaction(events, **options)
    identifier = response["id"]
    return {
        "id": identifier,
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*complete_items(users, identifier.removeprefix("resp_")), *response["output"]],
        "usage": response["usage"],
    }


_encode = msgspec.json.encode
MAX_REPLIES = 10_000
"""Maximum replies of a stored conversation."""
_INPUT_PATH = re.compile(r"input\[(\d+)\]")
_MAX_SHOWN = 100
"""Maximum characters of an identifier in a message."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A reply. `body` is the whole response and `input` the items of its own turn, both as JSON.

    `previous` is the reply that it continues, "" for none.
    """

    identifier: str
    owner: str
    previous: str
    body: bytes
    input: bytes

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)


class ResponseHistory(msgspec.Struct, frozen=True):
    """The conversation up to a response, and its `size` in bytes."""

    identifier: str = ""
    items: list[Any] = []
    size: int = 0


class ConnectionMemory:
    """The memory of a WebSocket: the conversation up to its last response."""

    def __init__(self) -> None:
        self.last = ResponseHistory()


class _Turn(msgspec.Struct, frozen=True):
    """A reply's own `input` items, and the `history` before them."""

    owner: str
    history: ResponseHistory
    input: list[Any]
    is_stored: bool
    memory: ConnectionMemory | None


class _StoredBody(msgspec.Struct):
    output: list[Any]


_decode_body = msgspec.json.Decoder(_StoredBody).decode
_decode_items = msgspec.json.Decoder(list[Any]).decode


class ConversationState:
    """Makes the exchanges of the Responses front.

    Args:
        make_exchange: Makes the exchange of a request whose body holds the whole conversation.
        store: The store of replies. Without a store only the last reply of a WebSocket can be continued.
        limits: `body` limits a conversation as it limits a request.
    """

    def __init__(self, make_exchange: MakeExchange, store: ResponseStore | None, limits: GatewayLimits) -> None:
        self.store = store
        self._make_exchange = make_exchange
        self._max_size = limits.body

    async def exchange(self, request: ReplyRequest) -> Exchange:
        """Return the exchange of a body and the conversation that it continues.

        The bytes read from the store are charged to the request's budget, like its body.

        Raises:
            HttpError: The body cannot be answered. The path refers to the client's own body.
        """
        history = await self._history(request)
        body, memory, front = request.body, request.memory, request.front
        if memory is not None and "generate" in body:
            request = replace(request, filters=(_reply_nothing,) if body["generate"] is False else ())
            body = {name: value for name, value in body.items() if name != "generate"}
        own = own_items(body)
        is_stored = self.store is not None and body.get("store") is not False
        echo = body if bool(body.get("store")) is is_stored else {**body, "store": is_stored}
        turn = _Turn(request.owner, history, own, is_stored, memory)
        filters: tuple[Filter, ...] = ()
        if own and isinstance(own[-1], Mapping) and own[-1].get("type") == TRIGGER:  # as Codex asks for a compaction
            items = [*history.items, *own[:-1]]
            turn = replace(turn, history=ResponseHistory(), input=user_messages(items))
            body = summary_request(body, items)
            wire = replace(front.wire, stream_encoder=CompactionEncoder, encode_response=encode_compaction)
            front = replace(front, wire=wire)
            filters = (require_summary,)
        elif "previous_response_id" in body:
            body = {**body, "input": [*history.items, *own]}
            del body["previous_response_id"]
        whole = replace(
            request,
            front=front,
            body=body,
            echo=echo,
            filters=(*filters, *request.filters),
            on_finished=partial(self._save, turn) if is_stored or memory is not None else None,
        )
        return await self._make(whole, history)

    async def compact(self, request: ReplyRequest) -> Exchange:
        """Return the exchange of POST /v1/responses/compact. Raises an HttpError."""
        history = await self._history(request)
        items = [*history.items, *own_items(request.body)]
        body = {**summary_request(request.body, items), "stream": False}
        encode = partial(_encode_body, user_messages(items))
        front = replace(request.front, wire=replace(request.front.wire, encode_response=encode))
        whole = replace(request, front=front, body=body, filters=(require_summary,))
        return await self._make(whole, history)

    async def items(self, request: ReplyRequest) -> list[Any]:
        """Return the items of the conversation that a body continues, followed by its own. Raises an HttpError."""
        history = await self._history(request)
        return [*history.items, *own_items(request.body)]

    async def _history(self, request: ReplyRequest) -> ResponseHistory:
        previous, memory = request.body.get("previous_response_id"), request.memory
        if previous is None:
            return ResponseHistory()
        if not isinstance(previous, str):
            raise HttpError("invalid_request", "not a response's id", path="previous_response_id")
        history = ResponseHistory()
        if memory is not None and previous and memory.last.identifier == previous:
            history = memory.last
        elif self.store is not None:
            history = await self._read_history(self.store, previous, request.owner)
            if request.budget is not None:
                request.budget.take(history.size)
        if not history.identifier:
            raise _not_found(previous)
        if history.size + request.size > self._max_size:
            message = f"the conversation has more than {self._max_size} bytes, or {MAX_REPLIES} replies"
            raise HttpError("request_too_large", message, path="previous_response_id")
        _check_outputs(history.items, own_items(request.body))
        return history

    async def _read_history(self, store: ResponseStore, previous: str, owner: str) -> ResponseHistory:
        responses = await store.conversation(previous, owner, self._max_size)
        if not responses:
            return ResponseHistory()
        if (earlier := responses[0].previous) and await store.find(earlier, owner) is None:
            raise _not_found(earlier)
        items: list[Any] = []
        for each in responses:
            items += _decode_items(each.input)
            items += _decode_body(each.body).output
        # A missing earlier response means that the conversation is too large.
        size = self._max_size + 1 if earlier else sum([each.size for each in responses])
        return ResponseHistory(previous, items, size)

    async def _make(self, request: ReplyRequest, history: ResponseHistory) -> Exchange:
        try:
            return await self._make_exchange(replace(request, size=request.size + history.size))
        except HttpError as error:
            match = _INPUT_PATH.match(error.path)
            if match is None or not history.items:
                raise
            index = int(match[1]) - len(history.items)
            path = f"input[{index}]{error.path[match.end() :]}" if index >= 0 else "previous_response_id"
            raise HttpError(error.failure.code, str(error), path=path, headers=error.headers) from None

    async def _save(self, turn: _Turn, body: dict[str, Any]) -> None:
        """Store a response. The client waits for this, so that it can continue at once."""
        if body["status"] not in {"completed", "incomplete"}:
            return
        identifier: str = body["id"]
        items = complete_items(turn.input, identifier.removeprefix("resp_"))
        response = StoredResponse(identifier, turn.owner, turn.history.identifier, _encode(body), _encode(items))
        if turn.is_stored and self.store is not None:
            try:
                body["store"] = await self.store.save(response)
            except HttpError:
                body["store"] = False  # too late for a stream; the store has logged the reason
        if turn.memory is not None:
            items = [*turn.history.items, *items, *body["output"]]
            turn.memory.last = ResponseHistory(identifier, items, turn.history.size + response.size)


async def _reply_nothing(exchange: Exchange, batches: Batches) -> Batches:
    """Ask no model. The response of a warm-up is empty, and can be continued."""
    async with aclosing(batches):
        events: list[Event] = [ReplyStarted(), ReplyEnded("stop")]
        exchange.record.set_end(events)
        yield events


def own_items(body: Mapping[str, Any]) -> list[Any]:
    """Return the items of a body's own input. Raises an HttpError."""
    items = body.get("input")
    if items is not None and not isinstance(items, str | list):
        raise HttpError("invalid_request", "neither a text nor a list of items", path="input")
    return input_items(items)


def _not_found(identifier: str) -> HttpError:
    message = f"Previous response with id {identifier[:_MAX_SHOWN]!r} not found."
    return HttpError("previous_response_not_found", message, path="previous_response_id")


def _check_outputs(history: Sequence[Any], own: Sequence[Any]) -> None:
    """Refuse an output whose call is not in the conversation, which is complete here."""
    called = {_call_id(item) for item in (*history, *own) if not _is_output(item)}
    for index, item in enumerate(own):
        if _is_output(item) and (call := _call_id(item)) and call not in called:
            message = f"No tool call found for function call output with call_id {call[:_MAX_SHOWN]}."
            raise HttpError("invalid_request", message, path=f"input[{index}]")


def _is_output(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_output")


def _call_id(item: Any) -> str:
    call = item.get("call_id") if isinstance(item, dict) else None
    return call if isinstance(call, str) else ""
