"""Encode the calls of custom tools as a client of Chat Completions reads them.

OpenAI's clients get the text of such a call raw, as `custom.input`; inside Callboard it is a function's call with one
text. `wire.py` uses these encoders only where a request declares custom tools.

Source: the `openai` package 3.54 (`ChatCompletionMessageCustomToolCall`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callboard.core import ArgumentsPiece, Event, InvocationEnded, InvocationStarted, Request
from callboard.text.sse import Payload
from callboard.wires.chat.encode_stream import StreamEncoder
from callboard.wires.common.custom_tools import CustomInput, custom_text
from callboard.wires.common.tool_calls import parse_arguments


def custom_names(request: Request | None) -> frozenset[str]:
    """The names of the custom tools that a request declares."""
    return frozenset() if request is None else frozenset(tool.name for tool in request.tools if tool.kind == "custom")


class CustomStreamEncoder(StreamEncoder):
    """As StreamEncoder; the calls of the request's custom tools are sent as `custom`, in pieces of their text."""

    def __init__(self, *, request: Request | None = None, **options: Any) -> None:
        super().__init__(request=request, **options)
        self._custom = custom_names(request)
        self._inputs: dict[int, CustomInput] = {}

    def feed(self, event: Event, /) -> list[Payload]:
        payloads = super().feed(event)
        match event:
            case InvocationStarted(index=index, identifier=identifier, name=name) if name in self._custom:
                self._inputs[index] = CustomInput()
                called = {"name": name, "input": ""}
                return [self._call({"index": index, "id": identifier, "type": "custom", "custom": called})]
            case ArgumentsPiece(index=index, json=json) if index in self._inputs:
                return self._delta(index, self._inputs[index].feed(json))
            case InvocationEnded(index=index, arguments=arguments, raw=raw) if index in self._inputs:
                return self._delta(index, self._inputs.pop(index).finish(arguments, raw)[0])
        return payloads

    def _delta(self, index: int, text: str) -> list[Payload]:
        return [self._call({"index": index, "custom": {"input": text}})] if text else []


def encode_custom_calls(calls: Iterable[Mapping[str, Any]], custom: frozenset[str]) -> list[Mapping[str, Any]]:
    """The calls of a whole reply, those of custom tools in OpenAI's form."""
    return [_encode_call(call) if call["function"]["name"] in custom else call for call in calls]


def _encode_call(call: Mapping[str, Any]) -> dict[str, Any]:
    raw = call["function"]["arguments"]
    text = custom_text(parse_arguments(raw), raw)
    return {"id": call["id"], "type": "custom", "custom": {"name": call["function"]["name"], "input": text}}
