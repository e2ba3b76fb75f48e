"""Canisters become the items of a request's input.

Owns the order and form of a request's items. Knows nothing of the rest of its body.
Law: items stand in the order of their canisters; every call's output follows its turn, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from callboard.core import (
    CUSTOM_KEY,
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
)
from callboard.wires.chat.parts import kind
from callboard.wires.responses.parts import encode_content, encode_spoken
from callboard.wires.responses.tools import Spelling
from callboard.wires.turns import Turn, turns

ITEM = "item"
"""The key of a content's `extra` that holds an item as it came: what the provider's own tools did, or a compaction."""
_encode = msgspec.json.Encoder().encode


class Items:
    """The input of a conversation; `instructions` is what the first supervisor said, where that is one text.

    `dropped` names what the items could not carry.
    """

    def __init__(self, canisters: Sequence[Canister], *, model: str, spelling: Spelling) -> None:
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self.instructions = _instructions(canisters)
        self._model = model
        self._spelling = spelling
        said = iter(
            [canister for canister in canisters if isinstance(canister, AssistantCanister | InvocationCanister)]
        )
        for place, step in enumerate(turns(canisters)):
            match step:
                case Turn():
                    self._turn(step, said)
                case SupervisorCanister(content=content):
                    if place or not self.instructions:
                        self._message("system", encode_content(content, self.dropped))
                case UserCanister(content=content) | ResultCanister(content=content):
                    self._message("user", encode_content(content, self.dropped))
                case DocumentCanister(content=content, title=title):
                    head = (TextualContent(f"{title}\n\n"),) if title else ()
                    self._message("user", encode_content(head + content, self.dropped))

    def _message(self, role: str, content: Any, **fields: Any) -> None:
        self.body.append({"type": "message", "role": role, "content": content, **fields})

    def _turn(self, turn: Turn, said: Iterator[AssistantCanister | InvocationCanister]) -> None:
        for _ in range(len(turn.said) + len(turn.invocations)):
            canister = next(said)
            if isinstance(canister, InvocationCanister):
                self.body.append(self._call(canister))
            else:
                self._said(canister)
        for call, result in zip(turn.invocations, turn.results, strict=True):
            self._result(call, result)

    def _said(self, canister: AssistantCanister) -> None:
        phase = {"phase": canister.extra["phase"]} if canister.extra and canister.extra.get("phase") else {}
        spoken: list[TextualContent | RefusalContent] = []
        for content in canister.content:
            match content:
                case TextualContent() | RefusalContent():
                    spoken.append(content)
                case ReasoningContent():
                    self._speak(spoken, phase)
                    self._reasoning(content)
                case _:
                    self.dropped.append(kind(content))
        self._speak(spoken, phase)

    def _speak(self, spoken: list[TextualContent | RefusalContent], phase: dict[str, Any]) -> None:
        if spoken:
            self._message("assistant", encode_spoken(spoken), **phase)
            spoken.clear()

    def _reasoning(self, content: ReasoningContent) -> None:
        if content.extra and isinstance(item := content.extra.get(ITEM), dict):
            self.body.append(item)
        elif content.origin != self._model:
            self.dropped.append(kind(content))
        elif content.opaque:
            summary = [{"type": "summary_text", "text": content.text}] if content.text else []
            self.body.append({"type": "reasoning", "summary": summary, "encrypted_content": content.opaque})
        elif content.text:
            thought = {"type": "reasoning_text", "text": content.text}
            self.body.append({"type": "reasoning", "summary": [], "content": [thought]})

    def _call(self, call: InvocationCanister) -> dict[str, Any]:
        head = {"call_id": call.identifier, **self._spelling.called(call.name)}
        if self._spelling.is_custom(call.name):
            return {"type": "custom_tool_call", **head, "input": custom_input(call)}
        arguments = call.raw or "{}" if call.arguments is None else _encode(dict(call.arguments)).decode()
        return {"type": "function_call", **head, "arguments": arguments}

    def _result(self, call: InvocationCanister, result: ResultCanister) -> None:
        output: Any = encode_content(result.content, self.dropped)
        if not result.content and result.error is not None:
            output = result.error.message
        what = "custom_tool_call_output" if self._spelling.is_custom(call.name) else "function_call_output"
        self.body.append({"type": what, "call_id": call.identifier, "output": output})


def custom_input(call: InvocationCanister) -> str:
    """The text that a custom tool was called with; what the model wrote, where that is none."""
    text = (call.arguments or {}).get(CUSTOM_KEY)
    return text if isinstance(text, str) else call.raw


def _instructions(canisters: Sequence[Canister]) -> str:
    match canisters[:1]:
        case [SupervisorCanister(content=(TextualContent(text=text),))]:
            return text
        case _:
            return ""


def once(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))
