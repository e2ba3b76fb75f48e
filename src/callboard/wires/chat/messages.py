"""Canisters become messages.

Owns the order and form of a request's messages. Knows nothing of tools, controls or names: `on_wire` is given.
Law: every call is followed at once by its result, and every result follows its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from callboard.core import (
    Canister,
    Content,
    DocumentCanister,
    FileContent,
    InvocationCanister,
    PictureContent,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
)
from callboard.wires.chat.parts import encode_content, encode_part, kind
from callboard.wires.turns import Turn, turns

_encode = msgspec.json.Encoder().encode


class Messages:
    """The messages of a conversation; `dropped` names what they could not carry."""

    def __init__(self, canisters: Sequence[Canister], *, model: str, on_wire: Callable[[str], str]) -> None:
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = model
        self._on_wire = on_wire
        for step in turns(canisters):
            match step:
                case Turn():
                    self._turn(step)
                case SupervisorCanister(content=content):
                    self._add("system", self._text(content))
                case UserCanister(content=content) | ResultCanister(content=content):
                    self._add("user", encode_content(content, self.dropped))
                case DocumentCanister(content=content, title=title):
                    head = (TextualContent(f"{title}\n\n"),) if title else ()
                    self._add("user", encode_content(head + content, self.dropped))

    def _add(self, role: str, content: Any, **fields: Any) -> None:
        self.body.append({"role": role, "content": content, **fields})

    def _turn(self, turn: Turn) -> None:
        text: list[str] = []
        reasoning: list[str] = []
        refusal: list[str] = []
        for canister in turn.said:
            for content in canister.content:
                match content:
                    case TextualContent(text=said):
                        text.append(said)
                    case RefusalContent(text=said):
                        refusal.append(said)
                    case ReasoningContent(text=said, origin=origin) if said and origin == self._model:
                        reasoning.append(said)
                    case _:
                        self.dropped.append(kind(content))
        fields: dict[str, Any] = {}
        if reasoning:
            fields["reasoning_content"] = "".join(reasoning)
        if refusal:
            fields["refusal"] = "".join(refusal)
        if turn.invocations:
            fields["tool_calls"] = [self._call(call) for call in turn.invocations]
        said = "".join(text)
        self._add("assistant", None if not said and (refusal or turn.invocations) else said, **fields)
        self._results(turn.results)

    def _call(self, call: InvocationCanister) -> dict[str, Any]:
        arguments = call.raw or "{}" if call.arguments is None else _encode(dict(call.arguments)).decode()
        function = {"name": self._on_wire(call.name), "arguments": arguments}
        return {"id": call.identifier, "type": "function", "function": function}

    def _results(self, results: Iterable[ResultCanister]) -> None:
        """A tool message for each; what only a user's message can hold follows after all of them."""
        carried: list[dict[str, Any]] = []
        for result in results:
            texts: list[str] = []
            parts: list[dict[str, Any]] = []
            for content in result.content:
                part = encode_part(content)
                if isinstance(content, TextualContent):
                    texts.append(content.text)
                elif part is not None and isinstance(content, PictureContent | FileContent):
                    texts.append(f"[{kind(content)}: in the next message]")
                    parts.append(part)
                else:
                    self.dropped.append(kind(content))
            if parts:
                carried += [{"type": "text", "text": f"From the result of {result.invocation_id}:"}, *parts]
            text = ("\n" if parts else "").join(texts)
            if not result.content and result.error is not None:
                text = result.error.message
            self._add("tool", text, tool_call_id=result.invocation_id)
        if carried:
            self._add("user", carried)

    def _text(self, content: Iterable[Content]) -> str:
        texts: list[str] = []
        for item in content:
            if isinstance(item, TextualContent):
                texts.append(item.text)
            else:
                self.dropped.append(kind(item))
        return "".join(texts)
