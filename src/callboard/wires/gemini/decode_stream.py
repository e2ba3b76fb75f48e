"""A backend's chunks become events.

Owns what a chunk says and the one end that a reply has. Knows nothing of frames, HTTP or tools.
Law: ReplyStarted first and once, one terminal event last, nothing after it; never an exception for what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Ending,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
    Note,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    Why,
)
from callboard.wires.chat.calls import parse_arguments
from callboard.wires.chat.errors import EXCERPT
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import EndsOnce, unreadable
from callboard.wires.common.tool_names import Callees
from callboard.wires.gemini.errors import read_error
from callboard.wires.gemini.finish_reasons import ENDINGS, FAILURES, read_usage
from callboard.wires.gemini.schema import CallShape, Candidate, Chunk, ReplyPart, Said
from callboard.wires.gemini.thought_signatures import FOLLOWING

_decode = msgspec.json.Decoder(Said).decode
_encode = msgspec.json.Encoder().encode

_DONE = "[DONE]"
"""What some proxies end a stream with; Google does not."""
_NO_REASON = "FINISH_REASON_UNSPECIFIED"


class StreamDecoder(EndsOnce):
    """A Stage: the payload of one frame in, events out.

    `names` maps a tool's name on the wire to the declared one; `declared` are the names that count as known,
    all where it is None. `identify` gives an identifier to a call that has none, or another call's. Reasoning
    is marked with `origin`, by default the model's name in the reply. What stands in its `opaque`, `signatures`
    says.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = NO_NAMES,
        identify: Identify,
        declared: frozenset[str] | None = None,
        origin: str = "",
    ) -> None:
        self._callees = Callees(names, declared)
        self._identify = identify
        self._origin = origin
        self._said = False
        self._count = 0
        self._used: set[str] = set()
        self._reason: Ending | None = None
        self._failure: ReplyFailed | None = None

    def feed(self, payload: str, /) -> list[Event]:
        if self._over or not payload:
            return []
        if payload.startswith(_DONE):
            return self.finish_whole()
        try:
            said = self._read(_decode, payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return self._fail(unreadable(payload, error))
        return self.take(said, payload)

    def take(self, said: Said, payload: str = "") -> list[Event]:
        """The events of a chunk, or of several, that are decoded already; `payload` is for the excerpt."""
        if type(said) is list:
            return [event for chunk in said for event in self.take(chunk, payload)]
        if self._over or not isinstance(said, Chunk):
            return []
        if said.error:
            return self._fail(read_error(said.error, payload[:EXCERPT]))
        if said.usage_metadata is not None:
            self._usage = read_usage(said.usage_metadata)
        events: list[Event] = []
        for candidate in said.candidates or ():
            if type(candidate.index) is int and candidate.index > 0:
                continue  # the reply is the first candidate
            self._start(said, events)
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._say(part, events)
            if candidate.finish_reason and isinstance(candidate.finish_reason, str):
                self._close(candidate, payload)
        if said.prompt_feedback is not None and said.prompt_feedback.block_reason:
            self._start(said, events)
            self._reason = "filter"
        return events

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """The end of the reply as far as it is known.

        A stream without finishReason broke off, for Google ends each with one.
        """
        if self._over:
            return []
        if self._failure is not None:
            return self._fail(self._failure)
        if self._reason is not None:
            return self._end(self._reason)
        if why == "length" and self._said:
            return self._end("length")
        return self._fail(self._broken_off(why))

    def finish_whole(self) -> list[Event]:
        """The end of a reply whose body came whole: one that said something ends with it."""
        if self._said and self._reason is None and self._failure is None:
            self._reason = "stop"
        return self.finish()

    def _start(self, chunk: Chunk, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            model = _string(chunk.model_version)
            self._origin = self._origin or model
            events.append(ReplyStarted(_string(chunk.response_id), model))

    def _say(self, part: ReplyPart, events: list[Event]) -> None:
        text, signature = part.text, part.thought_signature
        if not signature and part.function_call is None and part.thought is not True:  # the usual piece, quickly
            if text and isinstance(text, str):
                self._said = True
                events.append(TextPiece(text))
            elif part.inline_data is not None:
                events.append(Note("dropped", "inlineData in the reply"))
            return
        text, signature = _string(text), _string(signature)
        if part.thought is True:
            if text or signature:
                events.append(ReasoningPiece(text, signature, self._origin))
                self._said = True
            return
        if signature:
            events.append(ReasoningPiece("", FOLLOWING + signature, self._origin))
            self._said = True
        if part.function_call is not None:
            self._call(part.function_call, events)
        elif text:
            events.append(TextPiece(text))
            self._said = True

    def _call(self, call: CallShape, events: list[Event]) -> None:
        on_wire = _string(call.name)
        in_pieces = bool(call.partial_args or call.will_continue)
        if not on_wire and (in_pieces or not (call.args or call.id)):
            return  # a further piece of a call that is incomplete already
        name = self._callees.named(on_wire)
        index = self._count
        self._count += 1
        self._said = True
        identifier = _string(call.id)
        if not identifier or identifier in self._used:
            identifier = self._identify(index, name)
        while identifier in self._used:  # the backend uses what we would mint
            identifier += "_"
        self._used.add(identifier)
        raw = _spelled(call.args)
        arguments = call.args if isinstance(call.args, dict) else parse_arguments(raw)
        if not on_wire:
            events += self._closed([InvocationIncomplete(index, identifier, "", raw, "no name")])
            return
        events += self._callees.begin(index, identifier, on_wire)
        if in_pieces:
            events += self._closed([InvocationIncomplete(index, identifier, name, "", "arguments in pieces")])
            return
        if raw:
            events.append(ArgumentsPiece(index, raw))
        events.append(InvocationEnded(index, identifier, name, arguments, raw))

    def _close(self, candidate: Candidate, payload: str) -> None:
        reason = candidate.finish_reason
        if reason == _NO_REASON:
            return
        self._failure = None  # some models give a reason in every chunk: the last counts
        if reason in FAILURES:
            message = _string(candidate.finish_message) or f"the reply ended with {reason}"
            self._failure = ReplyFailed("provider", reason.lower(), message[:EXCERPT], payload[:EXCERPT])
        else:
            self._reason = ENDINGS.get(reason, "stop")

    def _end(self, reason: Ending) -> list[Event]:
        if reason == "stop" and self._count:
            reason = "invocations"
        return self._last([] if self._started else [ReplyStarted()], ReplyEnded(reason))

    def _fail(self, failure: ReplyFailed) -> list[Event]:
        return self._last([], failure)


def _spelled(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return _encode({} if arguments is None else arguments).decode()
    except (RecursionError, UnicodeError):
        return "null"  # no object, as any other nonsense


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
