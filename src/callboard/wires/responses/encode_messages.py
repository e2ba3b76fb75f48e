"""Encode canisters as the items of a request's input.

Law: items are in the order of their canisters; every call's output follows its turn, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
    result_contents,
)
from callboard.wires.common.contents import ITEM, content_kind, contents_with_title
from callboard.wires.common.custom_tools import custom_text
from callboard.wires.common.group_turns import Turn, group_turns
from callboard.wires.common.tool_calls import arguments_object
from callboard.wires.responses.content import encode_content, encode_output_text
from callboard.wires.responses.tool_declarations import ToolEncoder

_OUTPUTS = {"function": "function_call_output", "custom": "custom_tool_call_output"}
_encode = msgspec.json.Encoder().encode


def instructions(canisters: Sequence[Canister]) -> str:
    """The text of the first supervisor, which is no item where it is one text."""
    match canisters[:1]:
        case [SupervisorCanister(content=(TextualContent(text=text),))]:
            return text
        case _:
            return ""


class MessageEncoder:
    """The items of canisters in `body`; `dropped` names what they could not carry."""

    def __init__(self, canisters: Sequence[Canister], *, model: str, tools: ToolEncoder) -> None:
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = model
        self._tools = tools
        for step in group_turns(canisters):
            match step:
                case Turn():
                    self._turn(step)
                case SupervisorCanister(content=content):
                    self._message("system", encode_content(content, self.dropped))
                case UserCanister(content=content):
                    self._message("user", encode_content(content, self.dropped))
                case ResultCanister():
                    self._message("user", encode_content(result_contents(step), self.dropped))
                case DocumentCanister():
                    self._message("user", encode_content(contents_with_title(step), self.dropped))

    def _message(self, role: str, content: Any, **fields: Any) -> None:
        self.body.append({"type": "message", "role": role, "content": content, **fields})

    def _turn(self, turn: Turn) -> None:
        for canister in turn.reply:
            if isinstance(canister, InvocationCanister):
                self.body.append(self._call(canister))
            else:
                self._assistant(canister)
        for call, result in zip(turn.invocations, turn.results, strict=True):
            self._result(call, result)

    def _assistant(self, canister: AssistantCanister) -> None:
        phase = {"phase": canister.extra["phase"]} if canister.extra and canister.extra.get("phase") else {}
        texts: list[TextualContent | RefusalContent] = []
        for content in canister.content:
            match content:
                case TextualContent() | RefusalContent():
                    texts.append(content)
                case ReasoningContent():
                    self._flush(texts, phase)
                    self._reasoning(content)
                case _:
                    self.dropped.append(content_kind(content))
        self._flush(texts, phase)

    def _flush(self, texts: list[TextualContent | RefusalContent], phase: dict[str, Any]) -> None:
        if texts:
            self._message("assistant", encode_output_text(texts), **phase)
            texts.clear()

    def _reasoning(self, content: ReasoningContent) -> None:
        if content.extra and isinstance(item := content.extra.get(ITEM), dict):
            self.body.append(item)
        elif content.origin != self._model:
            self.dropped.append(content_kind(content))
        elif content.opaque:
            summary = [{"type": "summary_text", "text": content.text}] if content.text else []
            self.body.append({"type": "reasoning", "summary": summary, "encrypted_content": content.opaque})
        elif content.text:
            thought = {"type": "reasoning_text", "text": content.text}
            self.body.append({"type": "reasoning", "summary": [], "content": [thought]})

    def _call(self, call: InvocationCanister) -> dict[str, Any]:
        head = {"call_id": call.identifier, **self._tools.name_fields(call.name)}
        match self._tools.kind(call.name):
            case "custom":
                return {"type": "custom_tool_call", **head, "input": custom_text(call.arguments, call.raw)}
            case "search":
                arguments = arguments_object(call.arguments, call.raw)
                return {"type": "tool_search_call", **_search_fields(call), "arguments": arguments}
            case "function":
                json = _encode(arguments_object(call.arguments, call.raw)).decode()
                return {"type": "function_call", **head, "arguments": json}

    def _result(self, call: InvocationCanister, result: ResultCanister) -> None:
        tool_kind = self._tools.kind(call.name)
        if tool_kind == "search":
            tools, whole = self._tools.encode_search_output(result)
            if not whole:
                self.dropped.append("text of a tool search's result")
            self.body.append({"type": "tool_search_output", **_search_fields(call), "tools": tools})
            return
        output = encode_content(result_contents(result), self.dropped)
        self.body.append({"type": _OUTPUTS[tool_kind], "call_id": call.identifier, "output": output})


def _search_fields(call: InvocationCanister) -> dict[str, Any]:
    return {"call_id": call.identifier, "execution": "client", "status": "completed"}
