"""Encode canisters as contents.

Laws: neighbours of one role are one content; the results of a turn follow it at once, in one content; a signature
stays on the part that had it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    DocumentCanister,
    InvocationCanister,
    ReasoningContent,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
    result_contents,
)
from callboard.wires.common.contents import content_kind, contents_with_title
from callboard.wires.common.group_turns import Turn, group_turns, tag_instructions
from callboard.wires.common.request_encoder import EncodedMessages
from callboard.wires.common.tool_calls import arguments_object
from callboard.wires.common.tool_declarations import ToolNames
from callboard.wires.gemini.content import encode_part, encode_result
from callboard.wires.gemini.thought_signatures import split


def encode_messages(
    canisters: Sequence[Canister], request: Request, names: ToolNames, after: Any = None, *, dummy_signature: str = ""
) -> EncodedMessages:
    """The contents of canisters; the state that those after them need is the role of the last content."""
    contents = MessageEncoder(
        canisters, model=request.model, on_wire=names.on_wire, role=after or "", dummy_signature=dummy_signature
    )
    return EncodedMessages(contents.body, contents.dropped, contents.more, contents.system, contents.role)


class MessageEncoder:
    """The contents of canisters in `body`, and their `system` parts; `dropped` names what they could not carry.

    `role` is that of the last content; it begins as that of the content before these, and parts in the same role are
    `more` of that content. `dummy_signature` signs the first call of a turn whose own signature is not known: models
    refuse a call without one.
    """

    def __init__(
        self,
        canisters: Sequence[Canister],
        *,
        model: str,
        on_wire: Callable[[str], str],
        role: str = "",
        dummy_signature: str = "",
    ) -> None:
        self.body: list[dict[str, Any]] = []
        self.more: list[dict[str, Any]] = []
        self.system: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self.role = role
        self._parts = self.more
        self._model = model
        self._on_wire = on_wire
        self._dummy_signature = dummy_signature
        # A turn has texts and calls apart; a signature needs their order, which the canisters have.
        spoken = (each for each in canisters if isinstance(each, AssistantCanister | InvocationCanister))
        for step in group_turns(canisters):
            match step:
                case Turn(texts=texts, invocations=invocations):
                    self._turn(islice(spoken, len(texts) + len(invocations)))
                    for call, result in zip(invocations, step.results, strict=True):
                        self._result(call, result)
                case SupervisorCanister():
                    self._instructions(step)
                case UserCanister(content=content):
                    self._add_all("user", content)
                case ResultCanister():
                    self._add_all("user", result_contents(step))
                case DocumentCanister():
                    self._add_all("user", contents_with_title(step))

    def _add(self, role: str, part: dict[str, Any]) -> None:
        if role == self.role:
            self._parts.append(part)
        else:
            self.role, self._parts = role, [part]
            self.body.append({"role": role, "parts": self._parts})

    def _add_all(self, role: str, content: Iterable[Content]) -> None:
        for item in content:
            if (part := encode_part(item, self.dropped)) is not None:
                self._add(role, part)

    def _instructions(self, supervisor: SupervisorCanister) -> None:
        if supervisor.text and self.role:  # later ones stay where they are
            self._add("user", {"text": tag_instructions(supervisor.text)})
        elif supervisor.text:
            self.system.append({"text": supervisor.text})
        for content in supervisor.content:
            if not isinstance(content, TextualContent):
                self.dropped.append(content_kind(content))

    def _turn(self, spoken: Iterable[AssistantCanister | InvocationCanister]) -> None:
        signature, dummy_signature = "", self._dummy_signature
        for canister in spoken:
            if isinstance(canister, InvocationCanister):
                self._add_signed(self._call(canister), signature or dummy_signature)
                signature = dummy_signature = ""
                continue
            for content in canister.content:
                if isinstance(content, ReasoningContent):
                    signature = self._reasoning(content, signature)
                elif (part := encode_part(content, self.dropped)) is not None:
                    self._add_signed(part, signature)
                    signature = ""
        if signature:
            self._add_signed({"text": ""}, signature)

    def _reasoning(self, content: ReasoningContent, signature: str) -> str:
        """The signature of the part that follows."""
        if content.origin != self._model:
            self.dropped.append("reasoning")
            return signature
        own, following = split(content.opaque)
        if content.text or own:
            self._add_signed({"text": content.text, "thought": True}, own)
        if signature and following:
            self._add_signed({"text": ""}, signature)
        return following or signature

    def _add_signed(self, part: dict[str, Any], signature: str) -> None:
        if signature:
            part["thoughtSignature"] = signature
        self._add("model", part)

    def _call(self, call: InvocationCanister) -> dict[str, Any]:
        arguments = arguments_object(call.arguments, call.raw)
        return {"functionCall": {"id": call.identifier, "name": self._on_wire(call.name), "args": arguments}}

    def _result(self, call: InvocationCanister, result: ResultCanister) -> None:
        response, parts = encode_result(result, self.dropped)
        name = self._on_wire(call.name)
        self._add("user", {"functionResponse": {"id": call.identifier, "name": name, "response": response}})
        for part in parts:
            self._add("user", part)
