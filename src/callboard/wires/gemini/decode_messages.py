"""Decode a client's contents into canisters, and find the call of a result whose identifier is missing.

Law: a reply that a client sends back decodes to what its events fold to; constant work a part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from callboard import core
from callboard.wires.common.contents import unseal
from callboard.wires.gemini.content import FOLLOWING, decode_media, decode_result, signature_from_client
from callboard.wires.gemini.schema import ContentShape, FunctionCall, FunctionResponse, Instruction, Part

_encode = msgspec.json.Encoder().encode


def instructions(instruction: Instruction | None) -> list[core.Canister]:
    parts = instruction.parts or [] if instruction is not None else []
    return [core.SupervisorCanister((core.TextualContent(part.text),)) for part in parts if part.text]


class MessageDecoder:
    """The `canisters` of a conversation; reasoning that is not sealed is taken to be the model's own.

    Raises CallerError with the index.
    """

    def __init__(self, turns: Iterable[ContentShape], *, model: str) -> None:
        self.canisters: list[core.Canister] = []
        self._model = model
        self._fold = core.Fold()
        self._count = 0
        self._used: set[str] = set()
        self._waiting: set[str] = set()
        """Identifiers of the turn's calls without result."""
        self._by_name: dict[str, deque[str]] = {}
        """The turn's calls by their names, answered ones too."""
        replying = False  # a client may keep each chunk of a stream as a content
        for index, turn in enumerate(turns):
            parts = turn.parts or []
            path = f"contents[{index}]"
            if turn.role == "model":
                if not replying:
                    self._waiting, self._by_name = set(), {}
                self._model_turn(parts, path)
            else:
                self.canisters += self._fold.finish()
                self._user_turn(parts, path)
            replying = turn.role == "model"
        self.canisters += self._fold.finish()

    def _model_turn(self, parts: Iterable[Part], path: str) -> None:
        for index, part in enumerate(parts):
            signature, origin = unseal(signature_from_client(part.thought_signature or ""), self._model)
            if part.thought:
                self._fold.feed(core.ReasoningPiece(part.text or "", signature, origin))
                continue
            if signature:
                self._fold.feed(core.ReasoningPiece("", FOLLOWING + signature, origin))
            if part.function_call is not None:
                self._call(part.function_call)
            elif part.text:
                self._fold.feed(core.TextPiece(part.text))
            elif media := decode_media(part, f"{path}.parts[{index}]"):
                self.canisters += [*self._fold.finish(), core.AssistantCanister(tuple(media))]

    def _call(self, call: FunctionCall) -> None:
        identifier = call.id or f"call_{self._count}"
        while not call.id and identifier in self._used:
            identifier += "_"
        self._count += 1
        self._used.add(identifier)
        self._waiting.add(identifier)
        self._by_name.setdefault(call.name, deque()).append(identifier)
        arguments = call.args or {}
        raw = _encode(arguments).decode()
        self.canisters += self._fold.feed(core.InvocationEnded(0, identifier, call.name, arguments, raw))

    def _user_turn(self, parts: Iterable[Part], path: str) -> None:
        contents: list[core.Content] = []
        result: core.ResultCanister | None = None  # pictures and files that follow at once belong to it
        for index, part in enumerate(parts):
            where = f"{path}.parts[{index}]"
            if (response := part.function_response) is not None:
                self._close_turn(result, contents)
                result = decode_result(response, self._call_identifier(response), f"{where}.functionResponse")
                contents = []
            elif part.text:
                if result is not None:
                    self._close_turn(result, contents)
                    result, contents = None, []
                contents.append(core.TextualContent(part.text))
            else:
                contents += decode_media(part, where)
        self._close_turn(result, contents)

    def _close_turn(self, result: core.ResultCanister | None, contents: list[core.Content]) -> None:
        if result is not None:
            content = (*result.content, *contents)
            self.canisters.append(msgspec.structs.replace(result, content=content) if contents else result)
        elif contents:
            self.canisters.append(core.UserCanister(tuple(contents)))

    def _call_identifier(self, response: FunctionResponse) -> str:
        """Return the identifier of the call: the response's own, or else the first waiting call's with its name."""
        identifier = response.id or ""
        if identifier not in self._waiting and identifier not in self._used:
            named = self._by_name.get(response.name, deque())
            while named and named[0] not in self._waiting:
                named.popleft()
            identifier = named[0] if named else identifier or response.name
        self._waiting.discard(identifier)
        return identifier
