"""Encode canisters as contents.

Laws: neighbours of one role are one content; the results of a turn follow it at once, in one content; a signature
stays on the part that had it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callboard import core
from callboard.core import result_contents
from callboard.wires.common.contents import content_kind, contents_with_title
from callboard.wires.common.group_turns import Turn, group_turns, tag_instructions
from callboard.wires.common.tool_calls import arguments_object
from callboard.wires.common.tool_declarations import ToolNames
from callboard.wires.gemini.content import encode_part, encode_result, split_signature


class MessageEncoder:
    """The contents of a request's canisters in `body`, and their `system` parts; `dropped` names what they could not carry.

    `dummy_signature` signs the first call of a turn whose own signature is not known: models refuse a call without
    one.
    """

    def __init__(self, request: core.Request, names: ToolNames, dummy_signature: str) -> None:
        self.body: list[dict[str, Any]] = []
        self.system: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._role = ""
        self._parts: list[dict[str, Any]] = []
        self._model = request.model
        self._on_wire = names.on_wire
        self._dummy_signature = dummy_signature
        for step in group_turns(request.canisters):
            match step:
                case Turn():
                    self._reply(step.reply)
                    for call, result in zip(step.invocations, step.results, strict=True):
                        self._result(call, result)
                case core.SupervisorCanister():
                    self._instructions(step)
                case core.UserCanister(content=content):
                    self._add_all("user", content)
                case core.ResultCanister():
                    self._add_all("user", result_contents(step))
                case core.DocumentCanister():
                    self._add_all("user", contents_with_title(step))

    def _add(self, role: str, part: dict[str, Any]) -> None:
        if role == self._role:
            self._parts.append(part)
        else:
            self._role, self._parts = role, [part]
            self.body.append({"role": role, "parts": self._parts})

    def _add_all(self, role: str, content: Iterable[core.Content]) -> None:
        for item in content:
            if (part := encode_part(item, self.dropped)) is not None:
                self._add(role, part)

    def _instructions(self, supervisor: core.SupervisorCanister) -> None:
        if supervisor.text and self._role:  # later ones stay where they are
            self._add("user", {"text": tag_instructions(supervisor.text)})
        elif supervisor.text:
            self.system.append({"text": supervisor.text})
        for content in supervisor.content:
            if not isinstance(content, core.TextualContent):
                self.dropped.append(content_kind(content))

    def _reply(self, reply: Iterable[core.AssistantCanister | core.InvocationCanister]) -> None:
        signature, dummy_signature = "", self._dummy_signature
        for canister in reply:
            if isinstance(canister, core.InvocationCanister):
                self._add_signed(self._call(canister), signature or dummy_signature)
                signature = dummy_signature = ""
                continue
            for content in canister.content:
                if isinstance(content, core.ReasoningContent):
                    signature = self._reasoning(content, signature)
                elif (part := encode_part(content, self.dropped)) is not None:
                    self._add_signed(part, signature)
                    signature = ""
        if signature:
            self._add_signed({"text": ""}, signature)

    def _reasoning(self, content: core.ReasoningContent, signature: str) -> str:
        """The signature of the part that follows."""
        if content.origin != self._model:
            self.dropped.append("reasoning")
            return signature
        own, following = split_signature(content.opaque)
        if content.text or own:
            self._add_signed({"text": content.text, "thought": True}, own)
        if signature and following:
            self._add_signed({"text": ""}, signature)
        return following or signature

    def _add_signed(self, part: dict[str, Any], signature: str) -> None:
        if signature:
            part["thoughtSignature"] = signature
        self._add("model", part)

    def _call(self, call: core.InvocationCanister) -> dict[str, Any]:
        arguments = arguments_object(call.arguments, call.raw)
        return {"functionCall": {"id": call.identifier, "name": self._on_wire(call.name), "args": arguments}}

    def _result(self, call: core.InvocationCanister, result: core.ResultCanister) -> None:
        response, parts = encode_result(result, self.dropped)
        name = self._on_wire(call.name)
        self._add("user", {"functionResponse": {"id": call.identifier, "name": name, "response": response}})
        for part in parts:
            self._add("user", part)
