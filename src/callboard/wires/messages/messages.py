"""Canisters become messages.

Owns the order and form of a request's messages. Knows nothing of tools, controls or names: `on_wire` is given.
Laws: user and assistant take turns; a turn's results are in one message, before whatever the user says; a call's
identifier is one that the API accepts and that no other call has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
)
from callboard.wires.messages.blocks import carried, encode_blocks, encode_document, kind
from callboard.wires.turns import Turn, turns

AS_SYSTEM: Mapping[str, Any] = {"role": "system"}
"""The `extra` of instructions that stood among the messages as a message of their own."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


class Messages:
    """The messages of a conversation and its `system` blocks; `dropped` names what they could not carry.

    Instructions before all else are `system`. Later ones are a message with the role system if they came as one,
    which not every model accepts, else a text of the user's between tags.
    """

    def __init__(self, canisters: Sequence[Canister], *, model: str, on_wire: Callable[[str], str]) -> None:
        self.system: list[dict[str, Any]] = []
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = model
        self._on_wire = on_wire
        self._used: dict[str, int] = {}
        first = next((i for i, c in enumerate(canisters) if not isinstance(c, SupervisorCanister)), len(canisters))
        for canister in canisters[:first]:
            self.system += self._instructions(canister)
        rest = canisters[first:]
        spoken = iter([c for c in rest if isinstance(c, AssistantCanister | InvocationCanister)])
        for step in turns(rest):
            match step:
                case Turn():
                    count = len(step.said) + len(step.invocations)
                    self._turn([next(spoken) for _ in range(count)], step.results)
                case UserCanister(content=content) | ResultCanister(content=content):
                    self._add("user", encode_blocks(content, self.dropped))
                case DocumentCanister():
                    block = encode_document(step, self.dropped)
                    self._add("user", [] if block is None else [block])
                case SupervisorCanister(extra=extra):
                    blocks = self._instructions(step)
                    if extra and extra.get("role") == "system":
                        self._add("system", blocks)
                    elif blocks:
                        text = "".join([block["text"] for block in blocks])
                        self._add("user", [{"type": "text", "text": f"<system>\n{text}\n</system>"}])

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """The blocks as a message, or at the end of the last one if its role is the same."""
        if not blocks:
            return
        if self.body and self.body[-1]["role"] == role != "system":
            self.body[-1]["content"] += blocks
        else:
            self.body.append({"role": role, "content": blocks})

    def _turn(self, spoken: Sequence[Canister], results: Sequence[ResultCanister]) -> None:
        """The turn in the order in which it was said: thinking belongs to what follows it."""
        blocks: list[dict[str, Any]] = []
        identifiers: list[str] = []
        for canister in spoken:
            match canister:
                case InvocationCanister(identifier=identifier, name=name, extra=extra):
                    identifiers.append(self._identifier(identifier))
                    call = {
                        "type": "tool_use",
                        "id": identifiers[-1],
                        "name": self._on_wire(name),
                        "input": object_input(canister.arguments, canister.raw),
                    }
                    blocks.append(call | carried(extra) if extra else call)
                case AssistantCanister(content=content):
                    blocks += encode_blocks(content, self.dropped, self._model)
                case _:
                    pass
        self._add("assistant", blocks)
        self._add("user", [self._result(*pair) for pair in zip(identifiers, results, strict=True)])

    def _result(self, identifier: str, result: ResultCanister) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identifier}
        content = encode_blocks(result.content, self.dropped)
        if result.error is not None:
            block["is_error"] = True
            if not content and result.error.message:
                content = [{"type": "text", "text": result.error.message}]
        if content:
            block["content"] = content
        return block | carried(result.extra) if result.extra else block

    def _identifier(self, identifier: str) -> str:
        """One of a-z, A-Z, 0-9, _ and - that no call before has."""
        safe = _UNSAFE.sub("_", identifier) or "call"
        wire = safe
        while wire in self._used:
            self._used[safe] += 1
            wire = f"{safe}_{self._used[safe]}"
        self._used[wire] = 1
        return wire

    def _instructions(self, canister: Canister) -> list[dict[str, Any]]:
        content = canister.content if isinstance(canister, SupervisorCanister) else ()
        self.dropped += [kind(part) for part in content if not isinstance(part, TextualContent)]
        return encode_blocks([part for part in content if isinstance(part, TextualContent)], self.dropped)


def object_input(arguments: Mapping[str, Any] | None, raw: str) -> dict[str, Any]:
    """A call's input, which is an object here whatever the model wrote."""
    if arguments is not None:
        return dict(arguments)
    return {"raw": raw} if raw else {}
