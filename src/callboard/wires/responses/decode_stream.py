"""A backend's frames become events.

Owns what a frame says, whether the backend sends all of the official events or a part of them, and the one end
that a reply has. Knows nothing of framing, HTTP or tools; calls are put together in `calls`, all else that is said in `speech`.
Law: ReplyStarted first and once, one terminal event last, nothing after it; what comes more than once, as deltas
and whole, is told once; never an exception for what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from callboard.core import (
    Ending,
    Event,
    Identify,
    Note,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    Usage,
    Why,
)
from callboard.wires.chat.calls import Trust
from callboard.wires.chat.errors import EXCERPT, read_error
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import EndsOnce, unreadable
from callboard.wires.responses.decode_calls import KINDS, Calls
from callboard.wires.responses.decode_text import Speech
from callboard.wires.responses.schema import DONE, Frame, Item, ResponseShape

_decode = msgspec.json.Decoder(Frame).decode
_Read = Callable[["StreamDecoder", Frame], list[Event]]

_TRUST: Mapping[Ending, Trust] = {"length": "whole", "filter": "whole"}
_REASONS: Mapping[Any, Ending] = {"max_output_tokens": "length", "content_filter": "filter"}
_TERMINALS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}
_ENDED = frozenset(_TERMINALS.values())


class StreamDecoder(EndsOnce):
    """A Stage: the payload of one frame in, events out.

    `names` maps a tool's name on the wire to the declared one; `declared` are the names that count as known,
    all where it is None. `identify` gives an identifier to a call that has none, or another call's. Reasoning
    is marked with `origin`, by default the model's name in the reply.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = NO_NAMES,
        identify: Identify,
        declared: frozenset[str] | None = None,
        origin: str = "",
    ) -> None:
        self._calls = Calls(names, identify, declared)
        self._speech = Speech(origin)
        self._noted: set[str] = set()

    def feed(self, payload: str, /) -> list[Event]:
        if self._over or not payload:
            return []
        if payload.startswith(DONE):
            return self._end("stop", "whole") if self._started else self.finish()
        try:
            frame = self._read(_decode, payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return self._fail(unreadable(payload, error))
        reads = self._reads.get(frame.type) if isinstance(frame.type, str) else None
        if reads is not None:
            return reads(self, frame)
        if frame.error or frame.type == "error":
            error_said = frame.error or {"code": frame.code, "message": frame.message}
            return self._fail(read_error(error_said, 0, payload[:EXCERPT]))
        return []

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """The end of the reply as far as it is known.

        A reply without a terminal event or `[DONE]` was cut.
        """
        if self._over:
            return []
        if why == "length" and self._started:
            return self._end("length", "whole")
        return self._fail(self._broken_off(why))

    def take(self, response: ResponseShape, status: str, excerpt: str = "") -> list[Event]:
        """The events of a reply that has ended: what its output says and was not told, and its end."""
        if self._over:
            return []
        events = self._start(response)
        status = said if (said := _string(response.status)) in _ENDED else status
        if response.error or status == "failed":
            return events + self._fail(read_error(response.error or {}, 0, excerpt))
        for place, item in enumerate(response.output or ()):
            if item is not None:
                events += self._done(item, place, late=True)
        if status == "cancelled":
            return events + self._fail(ReplyFailed("provider", "cancelled", "the provider cancelled the reply"))
        if status == "incomplete":
            details = response.incomplete_details
            reason = details.get("reason") if isinstance(details, dict) else None
            return events + self._end(_REASONS.get(reason, "length") if isinstance(reason, str) else "length", "whole")
        return events + self._end("stop", "all")

    def _start(self, response: ResponseShape) -> list[Event]:
        if response.usage is not None:
            self._usage = _usage(response.usage) or self._usage
        if self._started:
            return []
        self._started = True
        self._speech.origin = self._speech.origin or _string(response.model)
        return [ReplyStarted(_string(response.id), _string(response.model))]

    def _lifecycle(self, frame: Frame) -> list[Event]:
        return self._start(frame.response or ResponseShape())

    def _terminal(self, frame: Frame) -> list[Event]:
        response = frame.response or ResponseShape()
        if frame.error and not response.error:
            response.error = frame.error
        return self.take(response, _TERMINALS[frame.type])

    def _text(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.piece(frame, TextPiece)

    def _refusal(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.piece(frame, RefusalPiece)

    def _text_done(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.whole(frame, TextPiece, frame.text)

    def _refusal_done(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.whole(frame, RefusalPiece, frame.refusal)

    def _thought(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.thought(frame, frame.delta, whole=False)

    def _thought_done(self, frame: Frame) -> list[Event]:
        return self._begin() + self._speech.thought(frame, frame.text, whole=True)

    def _arguments(self, frame: Frame) -> list[Event]:
        return self._begin() + self._calls.piece(frame, custom=False)

    def _arguments_done(self, frame: Frame) -> list[Event]:
        return self._begin() + self._calls.whole(frame, custom=False)

    def _input(self, frame: Frame) -> list[Event]:
        return self._begin() + self._calls.piece(frame, custom=True)

    def _input_done(self, frame: Frame) -> list[Event]:
        return self._begin() + self._calls.whole(frame, custom=True)

    def _item_added(self, frame: Frame) -> list[Event]:
        item = frame.item
        if item is None or not isinstance(item.type, str):
            return []
        if item.type in {"message", "reasoning"}:
            self._speech.added(item, frame.output_index)
        elif item.type in KINDS and not _ran_there(item):
            return self._begin() + self._calls.added(item, frame.output_index)
        return self._begin()

    def _item_done(self, frame: Frame) -> list[Event]:
        return [] if frame.item is None else self._begin() + self._done(frame.item, frame.output_index)

    def _done(self, item: Item, place: Any, *, late: bool = False) -> list[Event]:
        """What an item that is whole says and was not told; `late` is one of the terminal event's."""
        match item.type:
            case "message":
                return self._speech.message(item, place, late=late)
            case "reasoning":
                return self._speech.reasoning(item, place)
            case "function_call" | "custom_tool_call" | "tool_search_call" if not _ran_there(item):
                return self._calls.done(item, place, late=late)
            case str(kind) if kind not in self._noted:
                self._noted.add(kind)
                return [Note("dropped", f"item {kind}")]
            case _:
                return []

    def _begin(self) -> list[Event]:
        if self._started:
            return []
        self._started = True
        return [ReplyStarted()]

    def _end(self, reason: Ending, trust: Trust) -> list[Event]:
        events = self._begin() + self._closed(self._calls.close(_TRUST.get(reason, trust), reason))
        if reason == "stop":
            reason = "invocations" if self._calls.count else "refusal" if self._speech.refused else "stop"
        return self._last(events, ReplyEnded(reason))

    def _fail(self, failure: ReplyFailed) -> list[Event]:
        return self._last(self._calls.close("none", failure.code), failure)

    _reads: ClassVar[Mapping[str, _Read]] = {
        "response.created": _lifecycle,
        "response.queued": _lifecycle,
        "response.in_progress": _lifecycle,
        **dict.fromkeys(_TERMINALS, _terminal),
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.output_text.delta": _text,
        "response.output_text.done": _text_done,
        "response.refusal.delta": _refusal,
        "response.refusal.done": _refusal_done,
        "response.reasoning_summary_text.delta": _thought,
        "response.reasoning_summary_text.done": _thought_done,
        "response.reasoning_text.delta": _thought,
        "response.reasoning_text.done": _thought_done,
        "response.reasoning.delta": _thought,
        "response.reasoning.done": _thought_done,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _arguments_done,
        "response.custom_tool_call_input.delta": _input,
        "response.custom_tool_call_input.done": _input_done,
    }


def _ran_there(item: Item) -> bool:
    """Whether the provider itself ran the search."""
    return item.type == "tool_search_call" and not (isinstance(item.call_id, str) and item.execution != "server")


def _usage(usage: Any) -> Usage | None:
    """The usage; None where it says nothing."""
    if not isinstance(usage, dict):
        return None
    counted = Usage(
        _count(usage.get("input_tokens")),
        _count(usage.get("output_tokens")),
        _count(usage.get("input_tokens_details"), "cached_tokens"),
        _count(usage.get("output_tokens_details"), "reasoning_tokens"),
    )
    return None if counted == Usage() else counted


def _count(value: Any, key: str = "") -> int:
    if key:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else 0


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
