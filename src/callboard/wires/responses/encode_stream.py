"""Events become the frames that a client reads.

Owns the server half of the stream: the order of its items, and its one end. Knows nothing of HTTP.
Law: `response.created` first; an item is opened when it has something to say, and a message or reasoning is closed
when the next item starts; one terminal event, then `[DONE]`. What was sent is never taken back. A call that broke
off gets no `done`, for clients run what is done; the terminal event lists it as incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Ending,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    Request,
    TextPiece,
    Usage,
    Why,
)
from callboard.text.sse import encode_frame
from callboard.wires.common.reply_stream import BROKEN_OFF, DONE, ending
from callboard.wires.responses import compat_events
from callboard.wires.responses.errors import error_body
from callboard.wires.responses.reply_items import Call, Message, PartKind, Reasoning, Status, Step, call_item, head
from callboard.wires.responses.response_object import Resource

_encode = msgspec.json.Encoder().encode
_INCOMPLETE: Mapping[Ending, str] = {
    "length": "max_output_tokens",
    "filter": "content_filter",
    "refusal": "content_filter",
    "no_call": "max_output_tokens",  # of the two reasons that clients know
}


class StreamEncoder:
    """A Stage: events in, frames out, each the bytes of one SSE frame, at last `[DONE]`.

    `created` is in seconds since 1970. `request` says of which kind and namespace a called tool is; its fields and
    those of `echo`, the client's body, are repeated in the response; `clock` says when it was completed. With `seed_events` the events of seed 002 are
    sent besides, in its order: the message first and open to the end, `response.done` last.

    Of Notes those are told that say why a reply is incomplete, in the metadata. A retry cannot be told: where one may
    come, hold the events until the reply has ended.
    """

    def __init__(
        self,
        *,
        identifier: str,
        model: str,
        created: int,
        request: Request | None = None,
        echo: Mapping[str, Any] | None = None,
        seed_events: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._resource = Resource(
            identifier=identifier, model=model, created=created, request=request, echo=echo, clock=clock
        )
        self._tools = {tool.name: tool for tool in request.tools} if request else {}
        self._base = identifier.removeprefix("resp_")
        self._model = model
        self._seed = seed_events
        self._opening = b""
        self._sequence = 0
        self._output: list[dict[str, Any] | None] = []
        self._message: Message | None = None
        self._reasoning: Reasoning | None = None
        self._calls: dict[int, Call] = {}
        self._spelling: Call | None = None
        """The call that a piece came of last."""
        self._spelled_head = b""
        """Of its deltas; kept for one, since open calls are many and pieces of two seldom alternate."""
        self._head = b""
        """Of the deltas of the message's open part."""
        self._thought = b""
        """Of the deltas of the open reasoning."""
        self._waiting: list[Mapping[str, Any]] = []
        """Probabilities of tokens whose text has not come."""
        self._refused = False
        self._is_cut = False
        """Whether a call never became whole."""
        self._usage = Usage()
        self._response: dict[str, Any] | None = None

    @property
    def response(self) -> dict[str, Any] | None:
        """The response of the terminal event; None before."""
        return self._response

    def feed(self, event: Event, /) -> list[bytes]:
        if self._response is not None:
            return []
        match event:
            case TextPiece(text=text):
                return self._say("output_text", text)
            case ArgumentsPiece(index=index, json=json):
                return self._spell(index, json)
            case ReasoningPiece():
                return self._think(event)
            case ReplyStarted():
                return self._begin()
            case RefusalPiece(text=text):
                self._refused = self._refused or bool(text)
                return self._say("refusal", text)
            case Logprobs(tokens=tokens, is_refusal=False):
                return self._weigh(tokens)
            case InvocationStarted():
                return self._call(event)
            case InvocationEnded():
                return self._called(event)
            case InvocationIncomplete(index=index):
                return self._break_off([index])
            case Usage():
                self._usage = event
            case Note(code="incomplete", text=text):
                self._resource.warn(text)
            case ReplyEnded(reason="retry"):
                return self._break_off(list(self._calls))
            case ReplyEnded(reason=reason):
                return self._end(reason)
            case ReplyFailed():
                return self._fail(event)
            case _:
                pass
        return []

    def finish(self, why: Why = "stop", /) -> list[bytes]:
        """Nothing after a whole reply; a failure where the events broke off."""
        if self._response is not None:
            return []
        return self._fail(BROKEN_OFF)

    def heartbeat(self) -> list[bytes]:
        """What tells a client that the reply goes on while nothing is said; Codex reads no comments."""
        if self._response is not None:
            return []
        frames = self._begin()
        return frames or [self._lifecycle("response.in_progress")]

    def _begin(self) -> list[bytes]:
        if self._opening:
            return []
        self._opening = _encode(self._resource.body("in_progress", []))
        frames = [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]
        if self._seed:
            self._open_message("output_text", frames)
        return frames

    def _lifecycle(self, kind: str) -> bytes:
        return self._frame((kind, {"response": msgspec.Raw(self._opening)}))

    def _frame(self, step: Step) -> bytes:
        kind, fields = step
        if self._seed and "item" in fields:
            fields = {"item_id": fields["item"]["id"], **fields}
        data = _encode({"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        return encode_frame(data, kind)

    def _frames(self, steps: Iterable[Step]) -> list[bytes]:
        return [self._frame(step) for step in steps]

    def _delta(self, beginning: bytes, text: str) -> bytes:
        sequence = self._sequence
        self._sequence = sequence + 1
        return b'%b%b,"sequence_number":%d}\n\n' % (beginning, _encode(text), sequence)

    def _say(self, kind: PartKind, text: str) -> list[bytes]:
        if not text:
            return []
        message = self._message
        if message is not None and message.kind == kind:
            message.pieces.append(text)
            return [self._delta(self._head, text)]
        frames = self._begin()
        self._open_message(kind, frames).pieces.append(text)
        return [*frames, self._delta(self._head, text)]

    def _open_message(self, kind: PartKind, frames: list[bytes]) -> Message:
        """The message, with an open part of that kind."""
        message = self._message
        if message is None:
            frames += self._settle("completed")
            self._message = message = Message(self._base, self._next())
            frames.append(self._frame(message.added()))
        if message.kind != kind:
            frames += self._frames(message.begin(kind))
            if kind == "output_text":
                message.logprobs, self._waiting = self._waiting, []
            self._head = head(message.delta())
        return message

    def _weigh(self, tokens: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Probabilities of tokens, in a delta without a text; before a text, which may follow later, they wait for it."""
        message = self._message
        if message is None or message.kind != "output_text":
            self._waiting += tokens
            return []
        message.logprobs += tokens
        kind, fields = message.delta()
        return [self._frame((kind, {**fields, "logprobs": tokens, "delta": ""}))]

    def _think(self, piece: ReasoningPiece) -> list[bytes]:
        if not (piece.text or piece.opaque):
            return []
        frames = self._begin()
        reasoning = self._reasoning
        if reasoning is None or reasoning.origin != piece.origin:
            frames += self._settle("completed")
            self._reasoning = reasoning = Reasoning(self._base, self._next(), piece.origin)
            reasoning.sealed = bool(piece.origin) and piece.origin != self._model
            frames.append(self._frame(reasoning.added()))
        if piece.text:
            if not reasoning.begun:
                frames += self._frames(reasoning.begin())
                self._thought = head(reasoning.delta())
            reasoning.pieces.append(piece.text)
            frames.append(self._delta(self._thought, piece.text))
        if piece.opaque:  # it is the seal of what was thought until here
            reasoning.opaque = piece.opaque
            frames += self._close_reasoning("completed")
        return frames

    def _call(self, started: InvocationStarted) -> list[bytes]:
        broken = [started.index] if started.index in self._calls else []
        frames = self._begin() + self._break_off(broken) + self._settle("completed")
        item = call_item(self._base, self._next(), started, self._tools.get(started.name))
        self._calls[started.index] = item
        return [*frames, self._frame(item.added()), *self._seeded(compat_events.begin(item))]

    def _spell(self, index: int, json: str) -> list[bytes]:
        if index not in self._calls:
            return []
        item = self._calls[index]
        return self._spelled(item, item.take(json))

    def _spelled(self, item: Call, text: str) -> list[bytes]:
        if not text:
            return []
        if item is not self._spelling:
            self._spelling = item
            self._spelled_head = head(item.delta())
        return [*self._seeded(compat_events.delta(item, text)), self._delta(self._spelled_head, text)]

    def _called(self, ended: InvocationEnded) -> list[bytes]:
        frames: list[bytes] = []
        if ended.index not in self._calls:
            frames += self._call(InvocationStarted(ended.index, ended.identifier, ended.name))
        item = self._calls.pop(ended.index)
        frames += self._spelled(item, item.end(ended))
        frames += self._seeded(compat_events.end(item)) + self._frames(item.close())
        self._output[item.index] = item.body("completed")
        return frames

    def _break_off(self, indices: Iterable[int]) -> list[bytes]:
        for index in indices:
            self._is_cut = True
            if index in self._calls:
                item = self._calls.pop(index)
                item.break_off()
                self._output[item.index] = item.body("incomplete")
        return []

    def _next(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _settle(self, status: Status, *, end: bool = False) -> list[bytes]:
        """Closes what is said or thought."""
        frames = self._close_reasoning(status)
        if self._message is not None and (end or not self._seed):
            message, self._message = self._message, None
            frames += self._frames(message.close(status))
            self._output[message.index] = message.body(status)
        return frames

    def _close_reasoning(self, status: Status) -> list[bytes]:
        if self._reasoning is None:
            return []
        reasoning, self._reasoning = self._reasoning, None
        frames = self._frames(reasoning.close(status))
        self._output[reasoning.index] = reasoning.body(status)
        return frames

    def _seeded(self, steps: Iterable[Step]) -> list[bytes]:
        return self._frames(steps) if self._seed else []

    def _end(self, reason: Ending) -> list[bytes]:
        is_cut = self._is_cut or bool(self._calls)
        reason = ending(reason, is_cut=is_cut)
        incomplete = None if reason == "refusal" and self._refused and not is_cut else _INCOMPLETE.get(reason)
        return self._last("incomplete" if incomplete else "completed", reason=incomplete)

    def _fail(self, failure: ReplyFailed) -> list[bytes]:
        return self._last("failed", error=error_body(failure))

    def _last(self, status: str, **details: Any) -> list[bytes]:
        frames = self._begin() + self._break_off(list(self._calls))
        frames += self._settle("completed" if status == "completed" else "incomplete", end=True)
        output = [item for item in self._output if item is not None]
        self._response = response = self._resource.body(status, output, usage=self._usage, **details)
        frames.append(self._frame((f"response.{status}", {"response": response})))
        return [*frames, *self._seeded(compat_events.done(response)), encode_frame(DONE.encode())]
