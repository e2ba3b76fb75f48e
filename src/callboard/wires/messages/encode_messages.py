"""Encode canisters as messages.

Laws: user and assistant take turns; a turn's results are in one message, before what the user says; a call's
identifier is one that the API accepts and that no other call has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from callboard import core
from callboard.core import join_texts, result_contents
from callboard.wires.common.contents import content_kind
from callboard.wires.common.group_turns import Turn, group_turns, tag_instructions
from callboard.wires.common.tool_calls import arguments_object
from callboard.wires.common.tool_declarations import ToolNames
from callboard.wires.messages.content import encode_content, encode_document, encode_extra, is_blank

AS_SYSTEM: Mapping[str, Any] = {"role": "system"}
"""The `extra` of instructions that the client sent as a separate message."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


class MessageEncoder:
    """The messages of a request's canisters in `body`, and their `system` blocks; `dropped` names what they could not carry.

    Instructions before all else are `system`. Later ones are a message with the role system if they came as one,
    which not every model accepts, else a text of the user's between tags.
    """

    def __init__(self, request: core.Request, names: ToolNames) -> None:
        self.system: list[dict[str, Any]] = []
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = request.model
        self._on_wire = names.on_wire
        self._used: dict[str, int] = {}
        canisters = request.canisters
        first = next((i for i, c in enumerate(canisters) if not isinstance(c, core.SupervisorCanister)), len(canisters))
        for canister in canisters[:first]:
            self.system += self._instructions(canister)
        for step in group_turns(canisters[first:]):
            match step:
                case Turn():
                    self._turn(step)
                case core.UserCanister(content=content):
                    self._add("user", encode_content(content, self.dropped))
                case core.ResultCanister():
                    self._add("user", encode_content(result_contents(step), self.dropped))
                case core.DocumentCanister():
                    block = encode_document(step, self.dropped)
                    self._add("user", [] if block is None else [block])
                case core.SupervisorCanister(extra=extra):
                    blocks = self._instructions(step)
                    if extra and extra.get("role") == "system":
                        self._add("system", blocks)
                    elif blocks:
                        text = join_texts([part for part in step.content if not is_blank(part)])
                        self._add("user", [{"type": "text", "text": tag_instructions(text)}])

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """The blocks as a message, or at the end of the last one if its role is the same."""
        if not blocks:
            return
        if self.body and role == self.body[-1]["role"] != "system":
            self.body[-1]["content"] += blocks
        else:
            self.body.append({"role": role, "content": blocks})

    def _turn(self, turn: Turn) -> None:
        """The turn in the order in which it was said: thinking belongs to what follows it."""
        blocks: list[dict[str, Any]] = []
        identifiers: list[str] = []
        for canister in turn.reply:
            match canister:
                case core.InvocationCanister(identifier=identifier, name=name, extra=extra):
                    identifiers.append(self._identifier(identifier))
                    call = {
                        "type": "tool_use",
                        "id": identifiers[-1],
                        "name": self._on_wire(name),
                        "input": arguments_object(canister.arguments, canister.raw),
                    }
                    blocks.append(call | encode_extra(extra) if extra else call)
                case core.AssistantCanister(content=content):
                    blocks += encode_content(content, self.dropped, self._model)
        self._add("assistant", blocks)
        self._add("user", [self._result(*pair) for pair in zip(identifiers, turn.results, strict=True)])

    def _result(self, identifier: str, result: core.ResultCanister) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identifier}
        content = encode_content(result.content, self.dropped)
        if result.error is not None:
            block["is_error"] = True
            if not content and result.error.message:
                content = [{"type": "text", "text": result.error.message}]
        if content:
            block["content"] = content
        return block | encode_extra(result.extra) if result.extra else block

    def _identifier(self, identifier: str) -> str:
        """One of a-z, A-Z, 0-9, _ and - that no call before has."""
        safe = _UNSAFE.sub("_", identifier) or "call"
        wire = safe
        while wire in self._used:
            self._used[safe] += 1
            wire = f"{safe}_{self._used[safe]}"
        self._used[wire] = 1
        return wire

    def _instructions(self, canister: core.Canister) -> list[dict[str, Any]]:
        content = canister.content if isinstance(canister, core.SupervisorCanister) else ()
        self.dropped += [content_kind(part) for part in content if not isinstance(part, core.TextualContent)]
        return encode_content([part for part in content if isinstance(part, core.TextualContent)], self.dropped)


def has_breakpoint(block: Mapping[str, Any]) -> bool:
    """Whether there is a breakpoint on the block, or on one inside it."""
    if "cache_control" in block:
        return True
    source = block.get("source")
    inner = source.get("content") if isinstance(source, Mapping) else block.get("content")
    return isinstance(inner, list) and any(isinstance(each, Mapping) and "cache_control" in each for each in inner)
