"""Encode canisters as messages.

Laws: user and assistant take turns; a turn's results are in one message, before what the user says; a call's
identifier is one that the API accepts and that no other call has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
    join_texts,
    result_contents,
)
from callboard.wires.common.contents import content_kind
from callboard.wires.common.group_turns import Turn, group_turns, tag_instructions
from callboard.wires.common.request_encoder import EncodedMessages
from callboard.wires.common.tool_calls import arguments_object
from callboard.wires.common.tool_declarations import ToolNames
from callboard.wires.messages.content import encode_content, encode_document, encode_extra, is_blank

AS_SYSTEM: Mapping[str, Any] = {"role": "system"}
"""The `extra` of instructions that stood among the messages as a message of their own."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_UNCACHED = frozenset({"thinking", "redacted_thinking"})
_encode = msgspec.json.Encoder().encode


class EncodedPrefix(msgspec.Struct, frozen=True):
    """What the encoding of messages has to know of those before them."""

    role: str = ""
    """Of the last message; "" while there is none but system."""
    started: bool = False
    """Whether there was more than leading instructions."""
    identifiers: Mapping[str, int] = MappingProxyType({})
    """Of the calls."""
    has_breakpoint: bool = False
    """Whether a block came with a breakpoint."""
    trailing_bytes: int | None = None
    """Bytes of the last message's JSON after its last block that can be a breakpoint; None without such a block."""


NO_PREFIX = EncodedPrefix()


def encode_messages(
    canisters: Sequence[Canister], request: Request, names: ToolNames, after: EncodedPrefix | None = None
) -> EncodedMessages:
    """The messages of canisters; `after` is the state that those before them left."""
    messages = MessageEncoder(canisters, model=request.model, on_wire=names.on_wire, before=after or NO_PREFIX)
    return EncodedMessages(messages.body, messages.dropped, messages.more, messages.system, messages.prefix)


class MessageEncoder:
    """The messages of canisters and their `system` blocks; `dropped` names what they could not carry.

    Instructions before all else are `system`. Later ones are a message with the role system if they came as one,
    which not every model accepts, else a text of the user's between tags. Blocks of the same role as the message
    before all of these are `more` of that one.
    """

    def __init__(
        self,
        canisters: Sequence[Canister],
        *,
        model: str,
        on_wire: Callable[[str], str],
        before: EncodedPrefix = NO_PREFIX,
    ) -> None:
        self.system: list[dict[str, Any]] = []
        self.more: list[dict[str, Any]] = []
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = model
        self._on_wire = on_wire
        self._before = before
        self._role = before.role
        self._blocks = self.more
        self._used = dict(before.identifiers)
        first = 0 if before.started else _leading(canisters)
        self._started = before.started or first < len(canisters)
        for canister in canisters[:first]:
            self.system += self._instructions(canister)
        rest = canisters[first:]
        spoken = iter([c for c in rest if isinstance(c, AssistantCanister | InvocationCanister)])
        for step in group_turns(rest):
            match step:
                case Turn():
                    count = len(step.texts) + len(step.invocations)
                    self._turn([next(spoken) for _ in range(count)], step.results)
                case UserCanister(content=content):
                    self._add("user", encode_content(content, self.dropped))
                case ResultCanister():
                    self._add("user", encode_content(result_contents(step), self.dropped))
                case DocumentCanister():
                    block = encode_document(step, self.dropped)
                    self._add("user", [] if block is None else [block])
                case SupervisorCanister(extra=extra):
                    blocks = self._instructions(step)
                    if extra and extra.get("role") == "system":
                        self._add("system", blocks)
                    elif blocks:
                        text = join_texts([part for part in step.content if not is_blank(part)])
                        self._add("user", [{"type": "text", "text": tag_instructions(text)}])

    @property
    def prefix(self) -> EncodedPrefix:
        """What the messages after these have to know."""
        blocks = [*self.system, *self.more, *[block for message in self.body for block in message["content"]]]
        return EncodedPrefix(
            self._role,
            self._started,
            self._used,
            self._before.has_breakpoint or any(map(has_breakpoint, blocks)),
            _bytes_after_last(self._blocks, None if self.body else self._before.trailing_bytes),
        )

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """The blocks as a message, or at the end of the last one if its role is the same."""
        if not blocks:
            return
        if role == self._role != "system":
            self._blocks += blocks
        else:
            self.body.append({"role": role, "content": blocks})
            self._role, self._blocks = role, blocks

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
                        "input": arguments_object(canister.arguments, canister.raw),
                    }
                    blocks.append(call | encode_extra(extra) if extra else call)
                case AssistantCanister(content=content):
                    blocks += encode_content(content, self.dropped, self._model)
                case _:
                    pass
        self._add("assistant", blocks)
        self._add("user", [self._result(*pair) for pair in zip(identifiers, results, strict=True)])

    def _result(self, identifier: str, result: ResultCanister) -> dict[str, Any]:
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

    def _instructions(self, canister: Canister) -> list[dict[str, Any]]:
        content = canister.content if isinstance(canister, SupervisorCanister) else ()
        self.dropped += [content_kind(part) for part in content if not isinstance(part, TextualContent)]
        return encode_content([part for part in content if isinstance(part, TextualContent)], self.dropped)


def has_breakpoint(block: Mapping[str, Any]) -> bool:
    """Whether there is a breakpoint on the block, or on one inside it."""
    if "cache_control" in block:
        return True
    source = block.get("source")
    inner = source.get("content") if isinstance(source, Mapping) else block.get("content")
    return isinstance(inner, list) and any(isinstance(each, Mapping) and "cache_control" in each for each in inner)


def _leading(canisters: Sequence[Canister]) -> int:
    """How many supervisors are before all else."""
    return next((i for i, c in enumerate(canisters) if not isinstance(c, SupervisorCanister)), len(canisters))


def _bytes_after_last(blocks: Sequence[Mapping[str, Any]], trailing_bytes: int | None) -> int | None:
    """`EncodedPrefix.trailing_bytes` with these blocks at the end of the message."""
    for block in blocks:
        if block.get("type") not in _UNCACHED:
            trailing_bytes = 0
        elif trailing_bytes is not None:
            trailing_bytes += len(b",") + len(_encode(block))
    return trailing_bytes
