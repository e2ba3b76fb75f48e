"""Build the response object of a reply from its events.

`ResponseBuilder` serves the whole reply and, through its hooks, the stream: `StreamEncoder` sends every step of the
building as an event, which is why both say the same.

Laws: an item is opened when it has something to say, and a message or reasoning is closed when the next item starts.
A call that broke off gets no `done`, for clients run what is done; the response lists it as incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from callboard import core
from callboard.core import TextPiece
from callboard.text.sse import Payload
from callboard.wires.common.reply_stream import BROKEN_OFF, DONE, ending, last_attempt
from callboard.wires.responses.reply_items import Call, Message, PartKind, Reasoning, Status, Step, call_item
from callboard.wires.responses.response_object import ResponseObject, error_body

_encode = msgspec.json.Encoder().encode
_INCOMPLETE: Mapping[core.Ending, str] = {
    "length": "max_output_tokens",
    "filter": "content_filter",
    "refusal": "content_filter",
    "no_call": "max_output_tokens",  # of the two reasons that clients know
}


class ResponseBuilder:
    """Events in; `response` is the response object once the reply has ended.

    Args:
        identifier: The response's identifier.
        model: The name that the client asked for.
        created: Seconds since 1970.
        request: The client's request, which says of which kind and namespace a called tool is; its fields are repeated
            in the response.
        echo: The client's body, whose fields are repeated instead of the request's.
        compat_events: Whether the order of these events holds: the message is opened first and closed last.
        clock: Says when the response was completed, in seconds since 1970.
    """

    def __init__(
        self,
        *,
        identifier: str,
        model: str,
        created: int,
        request: core.Request | None = None,
        echo: Mapping[str, Any] | None = None,
        compat_events: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._object = ResponseObject(
            identifier=identifier, model=model, created=created, request=request, echo=echo, clock=clock
        )
        self._tools = {tool.name: tool for tool in request.tools} if request else {}
        self._base = identifier.removeprefix("resp_")
        self._model = model
        self._compat_events = compat_events
        self._started = False
        self._output: list[dict[str, Any] | None] = []
        self._message: Message | None = None
        self._reasoning: Reasoning | None = None
        self._calls: dict[int, Call] = {}
        self._early_logprobs: list[Mapping[str, Any]] = []
        """Logprobs whose text has not come."""
        self._refused = False
        self._is_cut = False
        """Whether a call never became whole."""
        self._usage = core.Usage()
        self.response: dict[str, Any] | None = None
        """The response of the terminal event; None before."""

    # Payloads of a stream.

    def _emit(self, step: Step) -> None:
        """A step of the building."""

    def _emit_delta(self, item: Message | Reasoning | Call, text: str) -> None:
        """A piece of an open item; `item.delta()` is what all of its pieces have in common."""

    def _emit_started(self) -> None:
        """The response is in progress."""

    def add(self, event: core.Event) -> None:
        if self.response is not None:
            return
        match event:
            case core.TextPiece(text=text):
                self._add_text("output_text", text)
            case core.ArgumentsPiece(index=index, json=json):
                if index in self._calls:
                    self._add_value(self._calls[index], self._calls[index].feed(json))
            case core.ReasoningPiece():
                self._add_reasoning(event)
            case core.ReplyStarted():
                self._ensure_started()
            case core.RefusalPiece(text=text):
                self._refused = self._refused or bool(text)
                self._add_text("refusal", text)
            case core.Logprobs(tokens=tokens, is_refusal=False):
                self._add_logprobs(tokens)
            case core.InvocationStarted():
                self._start_call(event)
            case core.InvocationEnded():
                self._end_call(event)
            case core.InvocationIncomplete(index=index):
                self._break_off([index])
            case core.Usage():
                self._usage = event
            case core.Note(code="incomplete", text=text):
                self._object.add_warning(text)
            case core.ReplyEnded(reason="retry"):
                self._break_off(list(self._calls))
            case core.ReplyEnded(reason=reason):
                self._end(reason)
            case core.ReplyFailed():
                self._complete("failed", error=error_body(event))
            case _:
                pass

    def _ensure_started(self) -> None:
        if not self._started:
            self._started = True
            self._emit_started()
            if self._compat_events:
                self._open_message("output_text")

    def _add_text(self, kind: PartKind, text: str) -> None:
        if text:
            self._ensure_started()
            message = self._open_message(kind)
            message.pieces.append(text)
            self._emit_delta(message, text)

    def _open_message(self, kind: PartKind) -> Message:
        """The message, with an open part of that kind."""
        message = self._message
        if message is None:
            self._close_items("completed")
            self._message = message = Message(self._base, self._next_index())
            self._emit(message.added_event())
        if message.kind != kind:
            self._emit_all(message.start_part(kind))
            if kind == "output_text":
                message.logprobs, self._early_logprobs = self._early_logprobs, []
        return message

    def _add_logprobs(self, tokens: Sequence[Mapping[str, Any]]) -> None:
        """Logprobs are sent in a delta without text; those that come before their text wait for it."""
        message = self._message
        if message is None or message.kind != "output_text":
            self._early_logprobs += tokens
            return
        message.logprobs += tokens
        kind, fields = message.delta()
        self._emit((kind, {**fields, "logprobs": tokens, "delta": ""}))

    def _add_reasoning(self, piece: core.ReasoningPiece) -> None:
        if not (piece.text or piece.opaque):
            return
        self._ensure_started()
        reasoning = self._reasoning
        if reasoning is None or reasoning.origin != piece.origin:
            self._close_items("completed")
            self._reasoning = reasoning = Reasoning(self._base, self._next_index(), piece.origin)
            reasoning.sealed = bool(piece.origin) and piece.origin != self._model
            self._emit(reasoning.added_event())
        if piece.text:
            if not reasoning.started:
                self._emit_all(reasoning.start())
            reasoning.pieces.append(piece.text)
            self._emit_delta(reasoning, piece.text)
        if piece.opaque:  # it seals the reasoning up to here
            reasoning.opaque = piece.opaque
            self._close_reasoning("completed")

    def _start_call(self, started: core.InvocationStarted) -> None:
        self._ensure_started()
        self._break_off([started.index] if started.index in self._calls else [])
        self._close_items("completed")
        item = call_item(self._base, self._next_index(), started, self._tools.get(started.name))
        self._calls[started.index] = item
        self._emit(item.added_event())
        self._emit_compat("response.output_tool_call.begin", **item.at, call_id=item.call_id, name=item.name)

    def _add_value(self, item: Call, text: str) -> None:
        if text:
            self._emit_compat("response.output_tool_call.delta", **item.at, delta=text)
            self._emit_delta(item, text)

    def _end_call(self, ended: core.InvocationEnded) -> None:
        if ended.index not in self._calls:
            self._start_call(core.InvocationStarted(ended.index, ended.identifier, ended.name))
        item = self._calls.pop(ended.index)
        self._add_value(item, item.end(ended))
        self._emit_compat("response.output_tool_call.end", **item.at, name=item.name, arguments=item.text)
        self._emit_all(item.close())
        self._output[item.index] = item.body("completed")

    def _break_off(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._is_cut = True
            if index in self._calls:
                item = self._calls.pop(index)
                item.break_off()
                self._output[item.index] = item.body("incomplete")

    def _next_index(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _close_items(self, status: Status, *, at_end: bool = False) -> None:
        """Closes the open reasoning and message."""
        self._close_reasoning(status)
        if self._message is not None and (at_end or not self._compat_events):
            message, self._message = self._message, None
            self._emit_all(message.close(status))
            self._output[message.index] = message.body(status)

    def _close_reasoning(self, status: Status) -> None:
        if self._reasoning is not None:
            reasoning, self._reasoning = self._reasoning, None
            self._emit_all(reasoning.close(status))
            self._output[reasoning.index] = reasoning.body(status)

    def _emit_all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._emit(step)

    def _emit_compat(self, kind: str, **fields: Any) -> None:
        """An event that the official API does not have: clients of the gateway's first specification ask for it."""
        if self._compat_events:
            self._emit((kind, fields))

    def _end(self, reason: core.Ending) -> None:
        is_cut = self._is_cut or bool(self._calls)
        reason = ending(reason, is_cut=is_cut)
        incomplete = None if reason == "refusal" and self._refused and not is_cut else _INCOMPLETE.get(reason)
        self._complete("incomplete" if incomplete else "completed", reason=incomplete)

    def _complete(self, status: str, **details: Any) -> None:
        self._ensure_started()
        self._break_off(list(self._calls))
        self._close_items("completed" if status == "completed" else "incomplete", at_end=True)
        output = [item for item in self._output if item is not None]
        self.response = self._object.body(status, output, usage=self._usage, **details)
        self._emit((f"response.{status}", {"response": self.response}))
        self._emit_compat("response.done", response=self.response)


class StreamEncoder(ResponseBuilder):
    """A Stage: events in, payloads out, at last `[DONE]`; parameters as of ResponseBuilder.

    With `compat_events` the events of the first specification are sent also. The reason of an incomplete reply is sent in
    the metadata.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._payloads: list[Payload] = []
        self._started_body = b""
        self._sequence = 0
        self._delta_item: Message | Reasoning | Call | None = None
        """The item whose delta was sent last: only its head is kept, since pieces of two items seldom alternate."""
        self._delta_event = self._delta_head = b""

    def feed(self, event: core.Event, /) -> list[Payload]:
        # Nearly all events of a reply are texts of the open part.
        message = self._message
        if type(event) is TextPiece and message is not None and message is self._delta_item:
            text = event.text
            if text and message.kind == "output_text":
                message.pieces.append(text)
                return [self._delta(text)]
        self.add(event)
        return self._take()

    def finish(self, why: core.Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; a failure where the events broke off."""
        if self.response is None:
            self._complete("failed", error=error_body(BROKEN_OFF))
        return self._take()

    def heartbeat(self) -> list[Payload]:
        """Return a sign for the client that a silent reply is still alive; Codex ignores SSE's comments."""
        if self.response is not None:
            return []
        self._ensure_started()
        if not self._payloads:
            self._emit(("response.in_progress", {"response": msgspec.Raw(self._started_body)}))
        return self._take()

    def _take(self) -> list[Payload]:
        payloads, self._payloads = self._payloads, []
        if self.response is not None and payloads:
            payloads.append((b"", DONE.encode()))
        return payloads

    def _emit_started(self) -> None:
        self._started_body = _encode(self._object.body("in_progress", []))
        for kind in ("response.created", "response.in_progress"):
            self._emit((kind, {"response": msgspec.Raw(self._started_body)}))

    def _emit(self, step: Step) -> None:
        kind, fields = step
        if kind == "response.content_part.added":
            self._delta_item = None
        if self._compat_events and "item" in fields:
            fields = {"item_id": fields["item"]["id"], **fields}
        data = _encode({"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        self._payloads.append((kind.encode(), data))

    def _emit_delta(self, item: Message | Reasoning | Call, text: str) -> None:
        if item is not self._delta_item:
            kind, fields = item.delta()
            self._delta_item = item
            self._delta_event = kind.encode()
            self._delta_head = _encode({"type": kind, **fields})[:-1] + b',"delta":'
        self._payloads.append(self._delta(text))

    def _delta(self, text: str) -> Payload:
        sequence = self._sequence
        self._sequence = sequence + 1
        return self._delta_event, b'%b%b,"sequence_number":%d}' % (self._delta_head, _encode(text), sequence)


def encode_response(events: Iterable[core.Event], **options: Any) -> dict[str, Any]:
    """Return the response of a reply, with `error` if the reply failed. Parameters as of ResponseBuilder."""
    attempt, terminal = last_attempt(events)
    builder = ResponseBuilder(**options)
    for event in (*attempt, terminal):
        builder.add(event)
    return builder.response or {}
