"""Decode a backend's frames into events (OpenAI Responses).

One `StreamDecoder` per reply; what all wires share is in `common.reply_stream`, `decode_calls` assembles the calls,
and `TextDecoder` everything else. Some backends send all of the official events, others a part of them.

Backends send a text as deltas, as a whole part, in the finished item and in the terminal event, or in some of these.
So the number of characters that were emitted is counted for each part, and a whole text adds only the rest.

Laws: what comes more than once, as deltas and whole, is emitted once; constant work a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec

from callboard import core
from callboard.wires.common.contents import unseal
from callboard.wires.common.errors import EXCERPT, excerpt_of, malformed_reply, read_error
from callboard.wires.common.reply_stream import BaseStreamDecoder, DecodeContext, count, string
from callboard.wires.common.tool_calls import Completeness
from callboard.wires.responses.decode_calls import KINDS, Calls
from callboard.wires.responses.schema import Frame, Item, ResponseShape

Kind: TypeAlias = type[core.TextPiece | core.RefusalPiece]


class _Item:
    """A message or reasoning: how many characters of each of its parts were emitted."""

    __slots__ = ("channel", "has_logprobs", "over", "parts")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int | None], int] = {}
        self.channel = ""
        """Source of the reasoning's text: the summary or the content, depending on which comes first."""
        self.has_logprobs: set[int | None] = set()
        """The parts whose logprobs were emitted."""
        self.over = False


class TextDecoder:
    """Frames about messages and reasoning in, events out. Reasoning is marked with `origin`."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.refused = False
        self._streamed = False
        """Whether a message came before the terminal event."""
        self._by_id: dict[tuple[str, str], _Item] = {}
        self._by_position: dict[tuple[str, int | None], _Item] = {}

    def start(self, item: Item, position: Any) -> None:
        """A message or reasoning begins."""
        self._new(item.type, item.id, position)

    def feed(self, frame: Frame, kind: Kind) -> list[core.Event]:
        """The next piece of a message's part."""
        text = frame.delta
        if not (isinstance(text, str) and (text or frame.logprobs)):
            return []
        entry = self._find("message", frame.item_id, frame.output_index)
        key = (kind.__name__, _index(frame.content_index))
        entry.parts[key] = entry.parts.get(key, 0) + len(text)
        self._streamed = True
        return [*([self._piece(kind, text)] if text else []), *self._logprobs(entry, key[1], frame.logprobs)]

    def feed_whole(self, frame: Frame, kind: Kind, text: Any) -> list[core.Event]:
        """A message's part is whole."""
        entry = self._find("message", frame.item_id, frame.output_index)
        self._streamed = True
        position = _index(frame.content_index)
        return self._rest(entry, kind, position, text) + self._logprobs(entry, position, frame.logprobs, whole=True)

    def feed_reasoning(self, frame: Frame, text: Any, *, whole: bool) -> list[core.Event]:
        """The next piece of reasoning, or a part of it that is whole."""
        entry = self._find("reasoning", frame.item_id, frame.output_index)
        summary = "summary" in frame.type
        position = _index(frame.summary_index if summary else frame.content_index)
        return self._reason(entry, "summary" if summary else "content", position, text, whole=whole)

    def end_message(self, item: Item, position: Any, *, late: bool) -> list[core.Event]:
        """A message is whole; `late` is one of the terminal event's."""
        entry = self._known("message", item.id, position)
        if entry is None and late and self._streamed:  # it came under another identifier
            return []
        nameless = not (late or item.id) and _index(position) is None
        if entry is None or (entry.over and nameless):
            entry = self._new("message", item.id, position)
        self._streamed = self._streamed or not late
        content = [{"type": "output_text", "text": item.content}] if isinstance(item.content, str) else item.content
        events: list[core.Event] = []
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                kind: Kind = core.RefusalPiece if part.get("type") == "refusal" else core.TextPiece
                text = part.get("refusal" if kind is core.RefusalPiece else "text")
                at = None if (kind.__name__, None) in entry.parts else index
                events += self._rest(entry, kind, at, text)
                events += self._logprobs(entry, at, part.get("logprobs"), whole=True)
        entry.over = True
        return events

    def end_reasoning(self, item: Item, position: Any) -> list[core.Event]:
        """Reasoning is whole, and sealed if the provider seals it."""
        entry = self._find("reasoning", item.id, position)
        if entry.over:
            return []
        events: list[core.Event] = []
        for channel, parts in (("content", item.content), ("summary", item.summary)):
            for index, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    at = None if (channel, None) in entry.parts else index
                    events += self._reason(entry, channel, at, part.get("text"), whole=True)
        entry.over = True
        if isinstance(item.encrypted_content, str) and item.encrypted_content:
            opaque, origin = unseal(item.encrypted_content, self.origin)
            if origin != self.origin:  # a gateway's; only it can open what it sealed
                opaque = item.encrypted_content
            if opaque:
                events.append(core.ReasoningPiece("", opaque, self.origin))
        return events

    def _piece(self, kind: Kind, text: str) -> core.Event:
        self.refused = self.refused or kind is core.RefusalPiece
        return kind(text)

    def _logprobs(self, entry: _Item, position: int | None, tokens: Any, *, whole: bool = False) -> list[core.Event]:
        """Return the logprobs. Use a whole part's only if its pieces had none."""
        if not (isinstance(tokens, list) and tokens) or (whole and (entry.over or position in entry.has_logprobs)):
            return []
        entry.has_logprobs.add(position)
        return [core.Logprobs(tuple([each for each in tokens if isinstance(each, dict)]))]

    def _rest(self, entry: _Item, kind: Kind, position: int | None, text: Any) -> list[core.Event]:
        """Return the text of a whole part that was not emitted yet."""
        key = (kind.__name__, position)
        sent = entry.parts.get(key, 0)
        if entry.over or not isinstance(text, str) or len(text) <= sent:
            return []
        entry.parts[key] = len(text)
        return [self._piece(kind, text[sent:])]

    def _reason(self, entry: _Item, channel: str, position: int | None, text: Any, *, whole: bool) -> list[core.Event]:
        if not isinstance(text, str):
            return []
        sent = entry.parts.get((channel, position))
        text = text[sent or 0 :] if whole else text
        if entry.over or not text or channel != (entry.channel or channel):
            return []
        separator = "\n\n" if sent is None and entry.parts else ""
        entry.channel = channel
        entry.parts[channel, position] = (sent or 0) + len(text)
        return [core.ReasoningPiece(separator + text, origin=self.origin)]

    def _known(self, kind: str, item_id: Any, position: Any) -> _Item | None:
        if isinstance(item_id, str) and (kind, item_id) in self._by_id:
            return self._by_id[kind, item_id]
        return self._by_position.get((kind, _index(position)))

    def _find(self, kind: str, item_id: Any, position: Any) -> _Item:
        return self._known(kind, item_id, position) or self._new(kind, item_id, position)

    def _new(self, kind: str, item_id: Any, position: Any) -> _Item:
        entry = self._by_position[kind, _index(position)] = _Item()
        if isinstance(item_id, str) and item_id:
            self._by_id[kind, item_id] = entry
        return entry


def _index(position: Any) -> int | None:
    return position if type(position) is int else None


_decode = msgspec.json.Decoder(ResponseShape).decode
_FrameDecoder = Callable[["StreamDecoder", Frame], list[core.Event]]

_COMPLETENESS: Mapping[core.Ending, Completeness] = {"length": "objects", "filter": "objects"}
_REASONS: Mapping[Any, core.Ending] = {"max_output_tokens": "length", "content_filter": "filter"}
_TERMINALS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}
_ENDED = frozenset(_TERMINALS.values())


class StreamDecoder(BaseStreamDecoder[Frame]):
    """A Stage: the payload of one frame in, events out."""

    decode_payload = staticmethod(msgspec.json.Decoder(Frame).decode)

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._calls = Calls(context)
        self._text = TextDecoder(context.origin)
        self._noted: set[str] = set()

    def decode(self, decoded: Frame, payload: str = "") -> list[core.Event]:
        kind = string(decoded.type)
        if (decode := self._part_decoders.get(kind)) is not None:
            return self._ensure_started() + decode(self, decoded)
        if (decode := self._decoders.get(kind)) is not None:
            return decode(self, decoded)
        if decoded.error or decoded.type == "error":
            error = decoded.error or {"code": decoded.code, "message": decoded.message}
            return self._fail(read_error(error, 0, payload[:EXCERPT]))
        return []

    def _finish(self, why: core.Why) -> list[core.Event]:
        """A reply without a terminal event or `[DONE]` was cut."""
        if why == "length" and self._started:
            return self._end("length", "objects")
        return self._fail(self._cut_failure(why))

    def decode_response(self, response: ResponseShape, status: str, excerpt: str = "") -> list[core.Event]:
        """The events of a reply that has ended: what its output has besides what came before, and the end."""
        events = self._start(response)
        status = own if (own := string(response.status)) in _ENDED else status
        if response.error or status == "failed":
            return events + self._fail(read_error(response.error or {}, 0, excerpt))
        for position, item in enumerate(response.output or ()):
            if item is not None:
                events += self._end_item(item, position, late=True)
        if status == "cancelled":
            return events + self._fail(core.ReplyFailed("provider", "cancelled", "the provider cancelled the reply"))
        if status == "incomplete":
            details = response.incomplete_details
            reason = details.get("reason") if isinstance(details, dict) else None
            ending = _REASONS.get(reason, "length") if isinstance(reason, str) else "length"
            return events + self._end(ending, "objects")
        return events + self._end("stop", "all")

    def _done(self) -> list[core.Event]:
        return self._end("stop", "objects") if self._started else self.finish()

    def _start(self, response: ResponseShape) -> list[core.Event]:
        if response.usage is not None:
            self._usage = _usage(response.usage) or self._usage
        if self._started:
            return []
        self._started = True
        self._text.origin = self._text.origin or string(response.model)
        return [core.ReplyStarted(string(response.id), string(response.model))]

    def _lifecycle(self, frame: Frame) -> list[core.Event]:
        return self._start(frame.response or ResponseShape())

    def _terminal(self, frame: Frame) -> list[core.Event]:
        response = frame.response or ResponseShape()
        if frame.error and not response.error:
            response.error = frame.error
        return self.decode_response(response, _TERMINALS[frame.type])

    def _item_added(self, frame: Frame) -> list[core.Event]:
        item = frame.item
        if item is None or not isinstance(item.type, str):
            return []
        if item.type in {"message", "reasoning"}:
            self._text.start(item, frame.output_index)
        elif item.type in KINDS and not _ran_at_provider(item):
            return self._ensure_started() + self._calls.start(item, frame.output_index)
        return self._ensure_started()

    def _item_done(self, frame: Frame) -> list[core.Event]:
        return [] if frame.item is None else self._ensure_started() + self._end_item(frame.item, frame.output_index)

    def _end_item(self, item: Item, position: Any, *, late: bool = False) -> list[core.Event]:
        """Return the events of a whole item that its earlier events lacked; `late` if the terminal event has it."""
        match item.type:
            case "message":
                return self._text.end_message(item, position, late=late)
            case "reasoning":
                return self._text.end_reasoning(item, position)
            case str(kind) if kind in KINDS and not _ran_at_provider(item):
                return self._calls.end(item, position, late=late)
            case str(kind) if kind not in self._noted:
                self._noted.add(kind)
                return [core.Note("dropped", f"item {kind}")]
            case _:
                return []

    def _ensure_started(self) -> list[core.Event]:
        return [] if self._started else self._start(ResponseShape())

    def _end(self, reason: core.Ending, completeness: Completeness) -> list[core.Event]:
        calls = self._calls.close(_COMPLETENESS.get(reason, completeness), reason)
        events = self._ensure_started() + self._note_incomplete(calls)
        if reason == "stop":
            reason = "invocations" if self._calls.count else "refusal" if self._text.refused else "stop"
        return self._end_with(events, core.ReplyEnded(reason))

    def _fail(self, failure: core.ReplyFailed) -> list[core.Event]:
        return self._end_with(self._calls.close("none", failure.code), failure)

    _decoders: ClassVar[Mapping[str, _FrameDecoder]] = {
        "response.created": _lifecycle,
        "response.queued": _lifecycle,
        "response.in_progress": _lifecycle,
        **dict.fromkeys(_TERMINALS, _terminal),
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
    }
    _part_decoders: ClassVar[Mapping[str, _FrameDecoder]] = {
        "response.output_text.delta": lambda self, frame: self._text.feed(frame, core.TextPiece),
        "response.output_text.done": lambda self, frame: self._text.feed_whole(frame, core.TextPiece, frame.text),
        "response.refusal.delta": lambda self, frame: self._text.feed(frame, core.RefusalPiece),
        "response.refusal.done": lambda self, frame: self._text.feed_whole(frame, core.RefusalPiece, frame.refusal),
        **dict.fromkeys(
            [f"response.{each}.delta" for each in ("reasoning_summary_text", "reasoning_text", "reasoning")],
            lambda self, frame: self._text.feed_reasoning(frame, frame.delta, whole=False),
        ),
        **dict.fromkeys(
            [f"response.{each}.done" for each in ("reasoning_summary_text", "reasoning_text", "reasoning")],
            lambda self, frame: self._text.feed_reasoning(frame, frame.text, whole=True),
        ),
        "response.function_call_arguments.delta": lambda self, frame: self._calls.feed(frame, custom=False),
        "response.function_call_arguments.done": lambda self, frame: self._calls.feed_whole(frame, custom=False),
        "response.custom_tool_call_input.delta": lambda self, frame: self._calls.feed(frame, custom=True),
        "response.custom_tool_call_input.done": lambda self, frame: self._calls.feed_whole(frame, custom=True),
    }


def _ran_at_provider(item: Item) -> bool:
    """Whether the provider itself ran the search."""
    return item.type == "tool_search_call" and not (isinstance(item.call_id, str) and item.execution != "server")


def _usage(usage: Any) -> core.Usage | None:
    """The usage; None where all counts are zero or missing."""
    if not isinstance(usage, dict):
        return None
    counted = core.Usage(
        count(usage.get("input_tokens")),
        count(usage.get("output_tokens")),
        count(usage.get("input_tokens_details"), "cached_tokens"),
        count(usage.get("output_tokens_details"), "reasoning_tokens"),
        count(usage.get("input_tokens_details"), "cache_write_tokens"),
    )
    return None if counted == core.Usage() else counted


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[core.Event]:
    """The events of a reply that came whole, as JSON or decoded."""
    try:
        response = msgspec.convert(body, ResponseShape) if isinstance(body, Mapping) else _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return [malformed_reply(f"the reply is not of this wire: {error}", excerpt_of(body))]
    if response.output is None and response.status is None:
        if response.error:
            return [read_error(response.error, 0, excerpt_of(body))]
        return [malformed_reply("the reply is not of this wire: no output", excerpt_of(body))]
    if response.status in ("queued", "in_progress"):
        return [malformed_reply(f"the reply has not ended: {response.status}", excerpt_of(body))]
    return StreamDecoder(context).decode_response(response, "completed", excerpt_of(body))
