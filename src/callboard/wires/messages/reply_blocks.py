"""Assemble the blocks of a reply from its events.

Law: blocks are in the order in which they begin, and a piece is kept once; constant work an event.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReasoningPiece,
    RefusalPiece,
    TextPiece,
)
from callboard.text.string_builder import StringBuilder
from callboard.wires.common.sealed_reasoning import seal_for_client
from callboard.wires.common.tool_calls import arguments_object, parse_arguments
from callboard.wires.messages.schema import REDACTED


class ReplyBlock:
    """A block of a reply; `kind` is its type on the wire, `opaque` a signature or what was redacted."""

    __slots__ = ("ended", "identifier", "kind", "name", "opaque", "parsed", "pieces", "sent", "started")

    def __init__(self, kind: str, identifier: str = "", name: str = "") -> None:
        self.kind = kind
        self.identifier = identifier
        self.name = name
        self.opaque = ""
        self.pieces = StringBuilder()
        self.sent = 0
        self.started = False
        self.ended = False
        self.parsed = False

    def take_unsent(self) -> str:
        """What was not taken before; the pieces of a call are kept, because its whole input is parsed."""
        if self.kind != "tool_use":
            pieces, self.pieces = self.pieces, StringBuilder()
            return pieces.build()
        piece = self.pieces.build(self.sent)
        self.sent = len(self.pieces)
        return piece

    def is_whole(self) -> bool:
        """Whether nothing can follow in this block once another has begun; a call's input is parsed once."""
        if self.ended or self.kind != "tool_use":
            return True
        if self.parsed:
            return False
        self.parsed = True
        raw = self.pieces.build()
        return bool(raw) and not raw.isspace() and parse_arguments(raw) is not None

    def opening(self) -> dict[str, Any]:
        """The block as it begins."""
        match self.kind:
            case "tool_use":
                return {"type": "tool_use", "id": self.identifier, "name": self.name, "input": {}}
            case "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.opaque}
            case _:
                return {"type": "text", "text": ""}

    def body(self) -> dict[str, Any]:
        """The block as it is in the end."""
        text = self.pieces.build()
        match self.kind:
            case "tool_use":
                return self.opening() | {"input": arguments_object(parse_arguments(text), text)}
            case "thinking":
                return {"type": "thinking", "thinking": text, "signature": self.opaque}
            case "redacted_thinking":
                return self.opening()
            case _:
                return {"type": "text", "text": text}


class ReplyBlocks:
    """The blocks of a reply so far; a stream takes those that it has sent from the left.

    The client takes the reply to be of `model`: reasoning of another one is sealed.
    """

    def __init__(self, model: str) -> None:
        self.blocks: deque[ReplyBlock] = deque()
        self._model = model
        self._origin = ""
        """Of the last reasoning."""
        self._calls: dict[int, ReplyBlock] = {}
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        """Whether a call never became whole."""
        return self._is_cut or bool(self._calls)

    def add(self, event: Event) -> bool:
        """Whether the event added to a block, or ended one. A refusal is a text here."""
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text):
                if not text:
                    return False
                self._open_block("text").pieces.append(text)
            case ReasoningPiece(text="", opaque=opaque, origin=origin) if opaque.startswith(REDACTED):
                block = self._new(ReplyBlock("redacted_thinking"))
                block.opaque = seal_for_client(opaque[len(REDACTED) :], origin, self._model)
                block.ended = True
            case ReasoningPiece(text=text, opaque=opaque, origin=origin):
                if not text and not opaque:
                    return False
                block = self._thinking(origin)
                if text:
                    block.pieces.append(text)
                if opaque:
                    block.opaque = seal_for_client(opaque, origin, self._model)
                    block.ended = True
            case InvocationStarted(index=index, identifier=identifier, name=name):
                self._is_cut = self._is_cut or index in self._calls
                self._calls[index] = self._new(ReplyBlock("tool_use", identifier, name))
            case ArgumentsPiece(index=index, json=json):
                call = self._calls.get(index)
                if call is None or call.ended or not json:
                    return False
                call.pieces.append(json)
            case InvocationEnded(index=index) | InvocationIncomplete(index=index):
                self._is_cut = self._is_cut or isinstance(event, InvocationIncomplete)
                call = self._calls.pop(index, None)
                if call is None or call.ended:
                    return False
                if not call.pieces and (json := _late_input(event)):
                    call.pieces.append(json)
                call.ended = True
            case _:
                return False
        return True

    def _open_block(self, kind: str) -> ReplyBlock:
        if self.blocks and self.blocks[-1].kind == kind and not self.blocks[-1].ended:
            return self.blocks[-1]
        return self._new(ReplyBlock(kind))

    def _thinking(self, origin: str) -> ReplyBlock:
        """The open block of that model's reasoning."""
        origin = origin or self._model
        if origin != self._origin and self.blocks and self.blocks[-1].kind == "thinking":
            self.blocks[-1].ended = True
        block = self._open_block("thinking")
        if origin != self._origin or not block.pieces:
            self._origin = origin
            block.opaque = seal_for_client("", origin, self._model)
        return block

    def _new(self, block: ReplyBlock) -> ReplyBlock:
        self.blocks.append(block)
        return block


def _late_input(call: InvocationEnded | InvocationIncomplete) -> str:
    """The input of a call that came without pieces; an empty object has none on this wire."""
    if isinstance(call, InvocationIncomplete) or call.arguments is None:
        return call.raw
    return msgspec.json.encode(call.arguments).decode() if call.arguments else ""
