"""Encode events as the chunks that a client of Chat Completions reads.

Laws: `[DONE]` last and once, after a failure too; what was sent is never taken back; a whole
reply says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.core import TextPiece
from callboard.text.sse import Payload
from callboard.wires.common.custom_tools import CustomInput
from callboard.wires.common.errors import openai_error_body as error_body
from callboard.wires.common.reply_stream import BROKEN_OFF, DONE, ending, last_attempt, vendor_field
from callboard.wires.common.tool_calls import ended_arguments

_GROWING = frozenset({"data", "transcript"})
"""Texts of `audio` that come in pieces."""
_encode = msgspec.json.Encoder().encode
_REASONS: dict[core.Ending, str] = {
    "stop": "stop",
    "invocations": "tool_calls",
    "length": "length",
    "filter": "content_filter",
    "refusal": "content_filter",
    "no_call": "length",
    "retry": "stop",
}
_DONE: Payload = (b"", DONE.encode())
_END_OF_TEXT = b'},"finish_reason":null}]}'


class StreamEncoder:
    """A Stage: events in, payloads out, at last `[DONE]`.

    Only the text of reasoning is sent. The call of a custom tool is sent as OpenAI's clients read it: as `custom`, in
    pieces of its text.

    Args:
        identifier: The reply's identifier.
        model: The name that the client asked for.
        created: Seconds since 1970.
        request: The client's request.
        include_usage: Whether the usage is sent, in a chunk without choices as OpenAI's.
    """

    def __init__(
        self,
        *,
        identifier: str,
        model: str,
        created: int,
        request: core.Request | None = None,
        include_usage: bool = True,
    ) -> None:
        self._head = {"id": identifier, "object": "chat.completion.chunk", "created": created, "model": model}
        self._text_head = self._head_of_text()
        self._custom = frozenset([tool.name for tool in request.tools if tool.kind == "custom"] if request else ())
        self._inputs: dict[int, CustomInput] = {}
        self._include_usage = include_usage
        self._usage: core.Usage | None = None
        self._refused = False
        self._with_arguments: set[int] = set()
        """Calls whose arguments came in pieces."""
        self._open: set[int] = set()
        """Calls that have not ended."""
        self._is_cut = False
        self._warnings: list[str] = []
        self._over = False

    def feed(self, event: core.Event, /) -> list[Payload]:
        if self._over:
            return []
        if type(event) is TextPiece:  # nearly all events are this one
            return [(b"", self._text_head + _encode(event.text) + _END_OF_TEXT)] if event.text else []
        if isinstance(event, core.ReplyFailed):
            return self._fail(event)
        payloads: list[Payload] = [(b"", _encode(self._head | chunk)) for chunk in self.chunks(event)]
        if isinstance(event, core.ReplyExtra) and event.wire == "chat":
            # Single values, such as the fingerprint, are repeated in each chunk from then on.
            self._head |= {name: value for name, value in event.fields.items() if isinstance(value, str | int | float)}
            self._text_head = self._head_of_text()
        if isinstance(event, core.ReplyEnded) and event.reason != "retry":
            self._over = True
            payloads.append(_DONE)
        return payloads

    def finish(self, why: core.Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; an error and `[DONE]` where the events broke off."""
        return [] if self._over else self._fail(BROKEN_OFF)

    def chunks(self, event: core.Event) -> list[dict[str, Any]]:
        """The chunks of an event, without what is the same in all."""
        match event:
            case core.TextPiece(text=text):
                return [_chunk({"content": text})] if text else []
            case core.ArgumentsPiece(index=index, json=json) if index in self._inputs:
                return _custom_delta(index, self._inputs[index].feed(json))
            case core.ArgumentsPiece(index=index, json=json):
                self._with_arguments.add(index)
                return [_call({"index": index, "function": {"arguments": json}})]
            case core.ReasoningPiece(text=text):
                return [_chunk({"reasoning_content": text})] if text else []
            case core.ReplyStarted():
                return [_chunk({"role": "assistant", "content": ""})]
            case core.Logprobs(tokens=tokens, is_refusal=is_refusal):
                logprobs = {"content": None, "refusal": None, "refusal" if is_refusal else "content": tokens}
                return [_chunk({}, logprobs=logprobs)]
            case core.ReplyExtra(wire="chat"):
                return [{**_chunk(event.message, **event.choice), **event.fields}]
            case core.RefusalPiece(text=text):
                self._refused = True
                return [_chunk({"refusal": text})]
            case core.InvocationStarted(index=index, identifier=identifier, name=name):
                self._is_cut = self._is_cut or index in self._open
                self._open.add(index)
                if name in self._custom:
                    self._inputs[index] = CustomInput()
                    custom = {"name": name, "input": ""}
                    return [_call({"index": index, "id": identifier, "type": "custom", "custom": custom})]
                function = {"name": name, "arguments": ""}
                return [_call({"index": index, "id": identifier, "type": "function", "function": function})]
            case core.InvocationEnded(index=index, arguments=arguments, raw=raw):
                self._open.discard(index)
                if index in self._inputs:
                    return _custom_delta(index, self._inputs.pop(index).finish(arguments, raw)[0])
                if index in self._with_arguments:
                    return []
                return [_call({"index": index, "function": {"arguments": ended_arguments(event)}})]
            case core.InvocationIncomplete():
                self._is_cut = True
            case core.Usage():
                self._usage = event
            case core.Note(code="incomplete", text=text):
                self._warnings.append(text)
            case core.ReplyEnded(reason=reason) if reason != "retry":
                return self._end(reason)
            case _:
                pass
        return []

    def _head_of_text(self) -> bytes:
        return _encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":{"content":'

    def _end(self, reason: core.Ending) -> list[dict[str, Any]]:
        is_cut = self._is_cut or bool(self._open)
        reason = ending(reason, is_cut=is_cut)
        # A refusal that was spelled out is a plain stop.
        word = "stop" if reason == "refusal" and self._refused and not is_cut else _REASONS[reason]
        chunks = [_chunk({}, word) | vendor_field(self._warnings)]
        if self._include_usage and self._usage is not None:
            chunks.append({"choices": [], "usage": _usage_body(self._usage)})
        return chunks

    def _fail(self, failure: core.ReplyFailed) -> list[Payload]:
        self._over = True
        return [(b"", _encode(error_body(failure))), _DONE]


def _chunk(delta: Mapping[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, **fields}]}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return _chunk({"tool_calls": [call]})


def _custom_delta(index: int, text: str) -> list[dict[str, Any]]:
    return [_call({"index": index, "custom": {"input": text}})] if text else []


def _usage_body(usage: core.Usage) -> dict[str, Any]:
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


def _merge(before: Any, after: Any, name: str = "") -> Any:
    """Fields of two chunks as clients of streams put them together."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {**before, **{each: _merge(before.get(each), value, each) for each, value in after.items()}}
    if isinstance(before, list) and isinstance(after, list):
        return before + after
    return before + after if name in _GROWING and isinstance(before, str) and isinstance(after, str) else after


def encode_response(
    events: Iterable[core.Event], *, identifier: str, model: str, created: int, request: core.Request | None = None
) -> dict[str, Any]:
    """Return the chunks of a reply as one body. A failed reply becomes `{"error": …}`. `created` is in seconds since 1970."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, core.ReplyFailed):
        return error_body(terminal)
    encoder = StreamEncoder(identifier=identifier, model=model, created=created, request=request)
    body: dict[str, Any] = {"id": identifier, "object": "chat.completion", "created": created, "model": model}
    extra: dict[str, Any] = {"choice": {}, "message": {}}
    texts: dict[str, list[str]] = {"content": [], "refusal": []}
    logprobs: dict[str, list[Any]] = {"content": [], "refusal": []}
    calls: dict[int, tuple[dict[str, Any], list[str]]] = {}
    reason = ""
    for event in (*attempt, terminal):
        if isinstance(event, core.ReplyExtra):
            if event.wire == "chat":
                extra = _merge(extra, {**event.fields, "choice": event.choice, "message": event.message})
            continue
        for chunk in encoder.chunks(event):
            for choice in chunk.pop("choices"):
                delta, reason = choice["delta"], choice["finish_reason"]
                for call in delta.pop("tool_calls", ()):
                    _add_call(calls, call)
                delta.pop("role", None)
                for name, text in delta.items():
                    texts.setdefault(name, []).append(text)
                for name, more in choice.get("logprobs", {}).items():
                    logprobs[name] += more or ()
            body |= chunk
    message: dict[str, Any] = {"role": "assistant", **{name: "".join(pieces) for name, pieces in texts.items()}}
    message["refusal"] = message["refusal"] or None
    if not message["content"] and (calls or message["refusal"]):
        message["content"] = None
    message |= extra.pop("message")
    if calls:
        message["tool_calls"] = [_whole_call(call, pieces) for call, pieces in calls.values()]
    tokens = {name: each or None for name, each in logprobs.items()}
    choice = {"index": 0, "message": message, "logprobs": tokens if any(tokens.values()) else None}
    return {**body, "choices": [{**choice, "finish_reason": reason, **extra.pop("choice")}], **extra}


def _add_call(calls: dict[int, tuple[dict[str, Any], list[str]]], delta: dict[str, Any]) -> None:
    """Adds a piece of a call to those that began."""
    index = delta.pop("index")
    if "id" in delta:
        calls[index] = delta, []
    part = delta.get("custom") or delta["function"]
    calls[index][1].append(part["input" if "custom" in delta else "arguments"])


def _whole_call(call: dict[str, Any], pieces: list[str]) -> dict[str, Any]:
    kind, field = ("custom", "input") if "custom" in call else ("function", "arguments")
    return {**call, kind: {"name": call[kind]["name"], field: "".join(pieces)}}
