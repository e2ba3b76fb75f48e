"""Encode events as the chunks that a client of Chat Completions reads.

Laws: `[DONE]` last and once, after a failure too; what was sent is never taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    ReplyExtra,
    ReplyFailed,
    ReplyStarted,
    Request,
    TextPiece,
    Usage,
    Why,
)
from callboard.text.sse import Payload
from callboard.wires.chat.errors import error_body
from callboard.wires.common.reply_stream import BROKEN_OFF, DONE, ending, vendor_field
from callboard.wires.common.tool_calls import ended_arguments

_encode = msgspec.json.Encoder().encode
_REASONS: dict[Ending, str] = {
    "stop": "stop",
    "invocations": "tool_calls",
    "length": "length",
    "filter": "content_filter",
    "refusal": "content_filter",
    "no_call": "length",
    "retry": "stop",
}


_DONE: Payload = (b"", DONE.encode())
_TEXT = b'{"index":0,"delta":{"content":'
_END_OF_TEXT = b'},"finish_reason":null}]}'


class StreamEncoder:
    """A Stage: events in, payloads out, at last `[DONE]`.

    Of Notes only the reason of an incomplete reply is sent, of reasoning only the text. A retry cannot be sent either:
    where one may come, hold the events until the reply has ended.

    Args:
        identifier: Of the reply.
        model: The name that the client asked for.
        created: Seconds since 1970.
        request: The client's request.
        include_usage: Whether the usage is sent, in a chunk without choices as OpenAI's.
    """

    def __init__(
        self, *, identifier: str, model: str, created: int, request: Request | None = None, include_usage: bool = True
    ) -> None:
        head = {"id": identifier, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = _encode(head)[:-1] + b',"choices":['
        self._include_usage = include_usage
        self._usage: Usage | None = None
        self._refused = False
        self._with_arguments: set[int] = set()
        """Calls whose arguments came in pieces."""
        self._open: set[int] = set()
        """Calls that have not ended."""
        self._is_cut = False
        self._warnings: list[str] = []
        self._over = False

    def feed(self, event: Event, /) -> list[Payload]:
        if self._over:
            return []
        match event:
            case TextPiece(text=text):
                # By far the most events are this one, so that it is not encoded as a dict.
                return [(b"", self._head + _TEXT + _encode(text) + _END_OF_TEXT)] if text else []
            case ArgumentsPiece(index=index, json=json):
                self._with_arguments.add(index)
                return [self._call({"index": index, "function": {"arguments": json}})]
            case ReasoningPiece(text=text):
                return [self._chunk({"reasoning_content": text})] if text else []
            case ReplyStarted():
                return [self._chunk({"role": "assistant", "content": ""})]
            case Logprobs(tokens=tokens, is_refusal=is_refusal):
                logprobs = {"content": None, "refusal": None, "refusal" if is_refusal else "content": tokens}
                return [self._chunk({}, logprobs=logprobs)]
            case ReplyExtra(wire="chat"):
                return self._extra(event)
            case RefusalPiece(text=text):
                self._refused = True
                return [self._chunk({"refusal": text})]
            case InvocationStarted(index=index, identifier=identifier, name=name):
                self._is_cut = self._is_cut or index in self._open
                self._open.add(index)
                function = {"name": name, "arguments": ""}
                return [self._call({"index": index, "id": identifier, "type": "function", "function": function})]
            case InvocationEnded(index=index):
                self._open.discard(index)
                if index in self._with_arguments:
                    return []
                return [self._call({"index": index, "function": {"arguments": ended_arguments(event)}})]
            case InvocationIncomplete():
                self._is_cut = True
            case Usage():
                self._usage = event
            case Note(code="incomplete", text=text):
                self._warnings.append(text)
            case ReplyEnded(reason=reason) if reason != "retry":
                return self._end(reason)
            case ReplyFailed():
                return self._fail(event)
            case _:
                pass
        return []

    def finish(self, why: Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; an error and `[DONE]` where the events broke off."""
        return [] if self._over else self._fail(BROKEN_OFF)

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None, **fields: Any) -> Payload:
        more = b"," + _encode(vendor_field(self._warnings))[1:] if reason and self._warnings else b"}"
        choice = _encode({"index": 0, "delta": delta, "finish_reason": reason, **fields})
        return b"", self._head + choice + b"]" + more

    def _extra(self, extra: ReplyExtra) -> list[Payload]:
        """A chunk of its own. Single values, such as the fingerprint, are repeated in each chunk from then on."""
        single = {name: value for name, value in extra.fields.items() if isinstance(value, str | int | float)}
        if single:
            self._head = self._head.replace(b'"choices":[', _encode(single)[1:-1] + b',"choices":[')
        others = {name: value for name, value in extra.fields.items() if name not in single}
        name, data = self._chunk(extra.message, **extra.choice)
        return [(name, data if not others else data[:-1] + b"," + _encode(others)[1:])]

    def _call(self, call: dict[str, Any]) -> Payload:
        return self._chunk({"tool_calls": [call]})

    def _end(self, reason: Ending) -> list[Payload]:
        is_cut = self._is_cut or bool(self._open)
        reason = ending(reason, is_cut=is_cut)
        payloads = [self._chunk({}, finish_reason(reason, refused=self._refused and not is_cut))]
        if self._include_usage and self._usage is not None:
            payloads.append((b"", self._head + b'],"usage":' + _encode(usage_body(self._usage)) + b"}"))
        self._over = True
        return [*payloads, _DONE]

    def _fail(self, failure: ReplyFailed) -> list[Payload]:
        self._over = True
        return [(b"", _encode(error_body(failure))), _DONE]


def finish_reason(reason: Ending, *, refused: bool) -> str:
    """OpenAI's word for an ending; a refusal that was spelled out is a plain stop there."""
    return "stop" if reason == "refusal" and refused else _REASONS[reason]


def usage_body(usage: Usage) -> dict[str, Any]:
    """The usage as OpenAI writes it: no null among its details, which some clients cannot read."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            **({"cache_write_tokens": usage.cache_write} if usage.cache_write else {}),
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
