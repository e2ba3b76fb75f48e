"""Decode a backend's chunks into events (Gemini's generateContent).

One `StreamDecoder` per reply; what all wires share is in `common.reply_stream`. Calls come whole here. How thought
signatures fit into the `opaque` of reasoning, `content` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.wires.common.errors import EXCERPT, excerpt_of, malformed_reply
from callboard.wires.common.reply_stream import BaseStreamDecoder, DecodeContext, count, string
from callboard.wires.common.tool_calls import arguments_text, parse_arguments
from callboard.wires.gemini.content import FOLLOWING
from callboard.wires.gemini.errors import read_error
from callboard.wires.gemini.schema import Body, CallShape, Candidate, Chunk, ReplyPart, UsageShape

ENDINGS: Mapping[str, core.Ending] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_OTHER",
            "NO_IMAGE",
        ),
        "filter",
    ),
}
"""A reason that is in no table is a plain stop."""
FAILURES = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "OTHER",
    }
)
"""Reasons that are the provider's failure; the code is the reason in lower case."""
_NO_REASON = "FINISH_REASON_UNSPECIFIED"


class StreamDecoder(BaseStreamDecoder[Body]):
    """A Stage: the payload of one frame in, events out."""

    decode_payload = staticmethod(msgspec.json.Decoder(Body).decode)

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._has_content = False
        self._count = 0
        self._reason: core.Ending | None = None
        self._failure: core.ReplyFailed | None = None

    def decode(self, decoded: Body, payload: str = "") -> list[core.Event]:
        """The events of a chunk, or of a list of them."""
        if type(decoded) is list:
            return [event for chunk in decoded for event in self.decode(chunk, payload)]
        if self._over or not isinstance(decoded, Chunk):
            return []
        if decoded.error:
            return self._fail(read_error(decoded.error, payload[:EXCERPT]))
        if decoded.usage_metadata is not None:
            self._usage = read_usage(decoded.usage_metadata)
        events: list[core.Event] = []
        for candidate in decoded.candidates or ():
            if type(candidate.index) is int and candidate.index > 0:
                continue  # the reply is the first candidate
            self._start(decoded, events)
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._decode_part(part, events)
            if candidate.finish_reason and isinstance(candidate.finish_reason, str):
                self._decode_ending(candidate, payload)
        if decoded.prompt_feedback is not None and decoded.prompt_feedback.block_reason:
            self._start(decoded, events)
            self._reason = "filter"
        return events

    def _finish(self, why: core.Why) -> list[core.Event]:
        """A stream without finishReason broke off, because Google ends each stream with one."""
        if self._failure is not None:
            return self._fail(self._failure)
        if self._reason is not None:
            return self._end(self._reason)
        if why == "length" and self._has_content:
            return self._end("length")
        return self._fail(self._cut_failure(why))

    def finish_whole(self) -> list[core.Event]:
        """The end of a reply whose body came whole: one with content needs no finishReason."""
        if self._has_content and self._reason is None and self._failure is None:
            self._reason = "stop"
        return self.finish()

    def _done(self) -> list[core.Event]:  # some proxies send it, Google does not
        return self.finish_whole()

    def _start(self, chunk: Chunk, events: list[core.Event]) -> None:
        if not self._started:
            self._started = True
            model = string(chunk.model_version)
            self._origin = self._origin or model
            events.append(core.ReplyStarted(string(chunk.response_id), model))

    def _decode_part(self, part: ReplyPart, events: list[core.Event]) -> None:
        text, signature = part.text, part.thought_signature
        if not signature and part.function_call is None and part.thought is not True:  # the usual piece, quickly
            if text and isinstance(text, str):
                self._has_content = True
                events.append(core.TextPiece(text))
            elif part.inline_data is not None:
                events.append(core.Note("dropped", "inlineData in the reply"))
            return
        text, signature = string(text), string(signature)
        if part.thought is True:
            if text or signature:
                events.append(core.ReasoningPiece(text, signature, self._origin))
                self._has_content = True
            return
        if signature:
            events.append(core.ReasoningPiece("", FOLLOWING + signature, self._origin))
            self._has_content = True
        if part.function_call is not None:
            self._call(part.function_call, events)
        elif text:
            events.append(core.TextPiece(text))
            self._has_content = True

    def _call(self, call: CallShape, events: list[core.Event]) -> None:
        wire_name = string(call.name)
        in_pieces = bool(call.partial_args or call.will_continue)
        if not wire_name and (in_pieces or not (call.args or call.id)):
            return  # a further piece of a call that is incomplete already
        index = self._count
        self._count += 1
        self._has_content = True
        identifier = self._tools.identifier(index, string(call.id), wire_name)
        raw = arguments_text(call.args, missing="{}")
        if not wire_name:
            events += self._note_incomplete([core.InvocationIncomplete(index, identifier, "", raw, "no name")])
            return
        name = self._tools.declared_name(wire_name)
        events += self._tools.start(index, identifier, wire_name)
        if in_pieces:
            events += self._note_incomplete(
                [core.InvocationIncomplete(index, identifier, name, "", "arguments in pieces")]
            )
            return
        if raw:
            events.append(core.ArgumentsPiece(index, raw))
        arguments = call.args if isinstance(call.args, dict) else parse_arguments(raw)
        events.append(core.InvocationEnded(index, identifier, name, arguments, raw))

    def _decode_ending(self, candidate: Candidate, payload: str) -> None:
        reason = candidate.finish_reason
        if reason == _NO_REASON:
            return
        self._failure = None  # some models give a reason in every chunk: the last counts
        if reason in FAILURES:
            message = string(candidate.finish_message) or f"the reply ended with {reason}"
            self._failure = core.ReplyFailed("provider", reason.lower(), message[:EXCERPT], payload[:EXCERPT])
        else:
            self._reason = ENDINGS.get(reason, "stop")

    def _end(self, reason: core.Ending) -> list[core.Event]:
        if reason == "stop" and self._count:
            reason = "invocations"
        return self._end_with([] if self._started else [core.ReplyStarted()], core.ReplyEnded(reason))

    def _fail(self, failure: core.ReplyFailed) -> list[core.Event]:
        return self._end_with([], failure)


def decode_response(body: bytes | str | Mapping[str, Any] | list[Any], context: DecodeContext) -> list[core.Event]:
    """The events of a reply that came whole, as JSON or decoded.

    A list of chunks, which a stream without `alt=sse` is, is read as the stream.
    """
    decoder = StreamDecoder(context)
    if isinstance(body, Mapping | list):
        try:
            decoded: Body = msgspec.convert(body, Body)
        except (msgspec.MsgspecError, RecursionError) as error:
            return [malformed_reply(f"the reply is not of this wire: {error}", excerpt_of(body))]
        events = decoder.decode(decoded)
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    return events + decoder.finish_whole()


def read_usage(usage: UsageShape) -> core.Usage:
    thoughts = count(usage.thoughts_token_count)
    return core.Usage(
        count(usage.prompt_token_count) + count(usage.tool_use_prompt_token_count),
        count(usage.candidates_token_count) + thoughts,
        count(usage.cached_content_token_count),
        thoughts,
    )
