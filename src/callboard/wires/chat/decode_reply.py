"""Decode a backend's chunks into events (Chat Completions).

One `StreamDecoder` per reply; what all wires share is in `common.reply_stream`, and `Calls` assembles the
calls. It takes what servers make of this format: reasoning under two names, usage before, after or in the last chunk,
whole messages instead of deltas, `function_call` from before tools, and streams without a finish_reason.

Which call a delta belongs to follows from its index, its identifier or the call before it: LM Studio and vLLM
interleave parallel calls, some servers send every call at index 0, others reuse identifiers or repeat the name in
every delta. So a delta is matched by rules (`_find`, `_differs`, `_Call.is_repeated`) and not by the index alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from callboard import core
from callboard.text.json_value import Brackets
from callboard.wires.chat.schema import READ, CallDelta, Chunk, Delta, FunctionDelta, KnownChunk, UsageShape
from callboard.wires.common.errors import EXCERPT, excerpt_of, malformed_reply, read_error
from callboard.wires.common.reply_stream import CUT, DONE, BaseStreamDecoder, DecodeContext, count, string
from callboard.wires.common.tool_calls import CallTable, Completeness, OpenCall, arguments_text

_NOTHING = FunctionDelta()


class _Call(OpenCall):
    __slots__ = ("_brackets", "_is_broken", "_is_whole", "_read", "is_named_again")

    def __init__(self) -> None:
        super().__init__()
        self.is_named_again = False
        """Whether its name came once more after arguments that were whole."""
        self._brackets = Brackets()
        self._read = 0
        self._is_whole = False
        self._is_broken = False

    def is_repeated(self, name: str, json: str) -> bool:
        """Whether a delta that leads here begins another call of this tool: the name again, after a whole object.

        Servers that count no calls send each of them at index 0. Others repeat the name in every delta, so the name
        alone says nothing.
        """
        if self.closed or not (name or self.is_named_again) or not self._has_whole_object():
            return False
        if json:
            return json.lstrip().startswith("{")
        self.is_named_again = True
        return False

    def _has_whole_object(self) -> bool:
        """Whether the arguments are an object that is closed. Each character is read once."""
        text = self.pieces.build(self._read)
        begins, self._read = self._read == 0, len(self.pieces)
        if begins:
            self._is_broken = not text.lstrip().startswith("{")
        at = 0
        if not self._is_whole and not self._is_broken:
            self._is_whole, at = self._brackets.step(text, 0)
        self._is_broken = self._is_broken or self._brackets.broken or bool(self._is_whole and text[at:].strip())
        return self._is_whole and not self._is_broken


class Calls(CallTable[_Call]):
    """Call deltas in, events out."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._by_key: dict[int | str, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None

    def feed(self, delta: CallDelta) -> list[core.Event]:
        function = delta.function or _NOTHING
        name = string(function.name)
        json = arguments_text(function.arguments)
        identifier = string(delta.id)
        if not (name or json or identifier):
            return []
        key = delta.index if isinstance(delta.index, (int, str)) else None
        events: list[core.Event] = []
        call = self._find(key, identifier, name)
        if call is not None and call.is_repeated(name, json):
            if identifier and identifier == call.id and json == call.pieces.build():
                return []  # the same call, sent once more as a whole
            name, call = name or call.name, None
        if call is None:
            events += self.release()
            call = self.add(_Call())
        if key is not None:
            self._by_key[key] = call
        if identifier:
            call.id = call.id or identifier
            self._by_id[identifier] = call
        self._last = call
        if call.closed:
            return events
        if name and call.index is None and not (call.name and call.pieces):
            # A name is repeated whole, or grows, or comes in fragments.
            call.name = name if name.startswith(call.name) else call.name + name
        if json:
            events += self.grow(call, json)
        if call.index is None and call.name and call.pieces:
            events += self.announce(call)
        return events

    def release(self) -> list[core.Event]:
        """Announces the last call if it has a name: something else follows, so the name is whole."""
        if self._last is None or not self._last.name or self._last.index is not None:
            return []
        return self.announce(self._last)

    def _find(self, key: int | str | None, identifier: str, name: str) -> _Call | None:
        if key is not None:
            call = self._by_key.get(key)
        elif identifier in self._by_id:
            call = self._by_id[identifier]
        elif not (identifier or name):
            call = self._last
        else:
            last = self._last
            completes = last is not None and not last.name and not (identifier and last.id)
            call = last if completes else None
        return None if call is not None and name and _differs(call, key, identifier, name) else call


def _differs(call: _Call, key: int | str | None, identifier: str, name: str) -> bool:
    """Whether a delta that leads to this call begins another: backends reuse indices and identifiers."""
    if not call.name:
        return False
    if identifier and call.id and identifier != call.id:
        return True
    begun = bool(call.pieces) or call.closed
    return begun and name != call.name and not (key is not None and identifier)


_decode_known = msgspec.json.Decoder(KnownChunk).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_METADATA = ("system_fingerprint", "service_tier")

_ENDINGS: Mapping[str, core.Ending] = {
    "stop": "stop",
    "tool_calls": "invocations",
    "function_call": "invocations",
    "length": "length",
    "content_filter": "filter",
}
_COMPLETENESS: Mapping[core.Ending, Completeness] = {"length": "objects", "filter": "objects"}
_Fields: TypeAlias = Mapping[str, Any]


class StreamDecoder(BaseStreamDecoder[tuple[Chunk, _Fields | None]]):
    """A Stage: the payload of one frame in, events out."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._calls = Calls(context)
        self._has_content = False
        self._refused = False
        self._reason: core.Ending | None = None
        self._signed_off = False
        """Whether the usage came, which servers send last, and no content after it."""
        self._is_known = True
        """Whether no chunk had a field of its server's own so far: reading those takes longer."""
        self._sent_fields: dict[str, Any] = {}
        """The fields without a name here that were passed on."""
        self._early_fields: dict[str, Any] = {}
        """Fields that arrived before the reply began."""

    def decode_payload(self, payload: str, /) -> tuple[Chunk, _Fields | None]:
        """The chunk, and all of its fields where it has some without a name here."""
        if self._is_known:
            try:
                return _decode_known(payload), None
            except msgspec.ValidationError:
                self._is_known = False
        fields = _decode_any(payload)
        return msgspec.convert(fields, Chunk), fields

    def decode(self, decoded: tuple[Chunk, _Fields | None], payload: str = "") -> list[core.Event]:
        chunk, fields = decoded
        if chunk.error:
            return self._fail(read_error(chunk.error, 0, payload[:EXCERPT]))
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
            self._signed_off = True
        events: list[core.Event] = []
        for choice in chunk.choices or ():
            if choice.index and _is_another(choice.index):
                continue  # the reply is the first choice
            if not self._started:
                self._started = True
                self._origin = self._origin or string(chunk.model)
                events.append(core.ReplyStarted(string(chunk.id), string(chunk.model)))
            if choice.delta is not None:
                self._decode_delta(choice.delta, events)
            elif choice.message is not None and not self._has_content:
                self._decode_delta(_with_indices(choice.message), events)
                self._signed_off = True
            if choice.logprobs:
                events += _logprobs(choice.logprobs)
            if choice.finish_reason and isinstance(choice.finish_reason, str):
                self._reason = reason = _ENDINGS.get(choice.finish_reason, "stop")
                events += self._close_calls(reason)
        if fields is not None or chunk.system_fingerprint or chunk.service_tier:
            events += self._extra(chunk, fields)
        return events

    def _extra(self, chunk: Chunk, raw: _Fields | None) -> list[core.Event]:
        """The fields without a name here; those that every chunk repeats only where they are new."""
        first: _Fields = {}
        if raw is None:
            fields = {name: value for name in _METADATA if (value := getattr(chunk, name))}
        else:
            fields = _unread(raw, "chunk")
            first = next((each for each in raw.get("choices") or () if not _is_another(each.get("index"))), first)
        fields = self._early_fields | {
            name: value for name, value in fields.items() if self._sent_fields.get(name) != value
        }
        self._sent_fields |= fields
        self._early_fields = {} if self._started else fields
        if not self._started:
            return []
        choice = _unread(first, "choice")
        message = _unread(first.get("delta") or first.get("message") or {}, "message")
        return [core.ReplyExtra("chat", fields, choice, message)] if fields or choice or message else []

    def _finish(self, why: core.Why) -> list[core.Event]:
        """A reply without a finish_reason is whole if its usage or `[DONE]` came after its content. Otherwise it was cut."""
        if self._reason is not None:
            calls = self._calls.close("none" if why in CUT else "objects", why)
            return self._note_incomplete(calls) + self._end(self._reason)
        if why in CUT or not self._has_content or not (self._signed_off or why == "length"):
            return self._fail(self._cut_failure(why))
        return self._end("length" if why == "length" else "stop")

    def _done(self) -> list[core.Event]:
        return self._end(self._reason or "stop") if self._started else self.finish()

    def _decode_delta(self, delta: Delta, events: list[core.Event]) -> None:
        content = delta.content
        has_others = delta.reasoning_content or delta.reasoning or delta.refusal
        if not has_others and (content is None or type(content) is str):
            pieces: list[core.Event] = [core.TextPiece(content)] if content else []  # nearly all deltas
        else:
            pieces = [*_pieces(delta, self._origin)]
            self._refused = self._refused or any(isinstance(piece, core.RefusalPiece) for piece in pieces)
        if pieces:
            self._has_content = True
            events += self._calls.release()
            events += pieces
        self._signed_off = self._signed_off and not (pieces or delta.tool_calls or delta.function_call)
        for call in delta.tool_calls or ():
            events += self._calls.feed(call)
        if delta.function_call is not None:
            events += self._calls.feed(CallDelta("function_call", function=delta.function_call))
        self._has_content = self._has_content or self._calls.count > 0

    def _close_calls(self, reason: core.Ending) -> list[core.Event]:
        return self._note_incomplete(self._calls.close(_COMPLETENESS.get(reason, "all"), reason))

    def _end(self, reason: core.Ending) -> list[core.Event]:
        events: list[core.Event] = [] if self._started else [core.ReplyStarted()]
        events += self._close_calls(reason)
        if reason in {"stop", "invocations"}:
            reason = "invocations" if self._calls.count else "refusal" if self._refused else "stop"
        return self._end_with(events, core.ReplyEnded(reason))

    def _fail(self, failure: core.ReplyFailed) -> list[core.Event]:
        return self._end_with(self._calls.close("none", failure.code), failure)


def _is_another(index: Any) -> bool:
    """Whether a choice is not the first."""
    return type(index) is int and index > 0


def _with_indices(message: Delta) -> Delta:
    """The message with its calls numbered: in a whole message, each entry is a call of its own."""
    for index, call in enumerate(message.tool_calls or ()):
        call.index = index
    return message


def _unread(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields that are not read here and are not empty."""
    read = READ[kind]
    return {name: value for name, value in fields.items() if name not in read and value not in (None, "", [], {})}


def _logprobs(logprobs: Any) -> Iterator[core.Event]:
    for field, is_refusal in (("content", False), ("refusal", True)):
        entries = logprobs.get(field) if isinstance(logprobs, dict) else None
        if isinstance(entries, list) and (tokens := tuple([each for each in entries if isinstance(each, dict)])):
            yield core.Logprobs(tokens, is_refusal)


def _pieces(delta: Delta, origin: str) -> Iterator[core.Event]:
    if reasoning := string(delta.reasoning_content) or string(delta.reasoning):
        yield core.ReasoningPiece(reasoning, origin=origin)
    content = delta.content
    for part in content if isinstance(content, list) else [{"text": content}]:
        if isinstance(part, dict):
            if text := string(part.get("text")):
                yield core.TextPiece(text)
            if refusal := string(part.get("refusal")):
                yield core.RefusalPiece(refusal)
    if refusal := string(delta.refusal):
        yield core.RefusalPiece(refusal)


def _usage(usage: UsageShape) -> core.Usage:
    return core.Usage(
        count(usage.prompt_tokens),
        count(usage.completion_tokens),
        count(usage.prompt_tokens_details, "cached_tokens"),
        count(usage.completion_tokens_details, "reasoning_tokens"),
        count(usage.prompt_tokens_details, "cache_write_tokens"),
    )


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[core.Event]:
    """The events of a reply that came whole, as JSON or decoded."""
    decoder = StreamDecoder(context)
    if isinstance(body, Mapping):
        try:
            chunk = msgspec.convert(body, Chunk)
        except (msgspec.MsgspecError, RecursionError) as error:
            return [malformed_reply(f"the reply is not of this wire: {error}", excerpt_of(body))]
        events = decoder.decode((chunk, body))
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    return events + decoder.feed(DONE) if events else decoder.finish()
