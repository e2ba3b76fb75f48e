"""Remember the reasoning before calls, for clients that do not send it back.

Some providers refuse a past call without its signature or reasoning. Many clients keep only the standard fields of
their wire, and Chat Completions has no field for either. So a worker remembers them for a while, by owner and call.
If reasoning is missing, such as after a restart or on another worker, the profile decides (`dummy_signature`,
`requires_reasoning_history`). Nothing depends on the memory.

Laws: an owner never gets another owner's reasoning; identifiers stay the backend's own; constant work per event; the
memory is bounded, and the oldest entries go first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Event,
    InvocationCanister,
    InvocationEnded,
    ReasoningContent,
    ReasoningPiece,
    Request,
    TextPiece,
    UserCanister,
)

MAX_BYTES = 16 * 1024 * 1024
"""Approximate maximum bytes of thoughts and signatures in one backend's memory."""
_ENTRY = 512
"""Approximate bytes of an entry besides its text."""
_OF_MODEL = (AssistantCanister, InvocationCanister)
_encode = msgspec.json.Encoder(order="sorted").encode

Parts = tuple[ReasoningContent, ...]


class _Thought(msgspec.Struct, frozen=True):
    """The reasoning before a call: `first` before the reply's text, `near` right before the call."""

    first: Parts
    near: Parts

    @property
    def signed(self) -> bool:
        return any(part.opaque for part in (*self.first, *self.near))

    @property
    def weight(self) -> int:
        return _ENTRY + sum([len(part.text) + len(part.opaque) for part in (*self.first, *self.near)])


class ReasoningMemory:
    """The reasoning before past calls. `most` is the maximum of remembered bytes."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._weight = 0
        self._thoughts: dict[bytes, _Thought] = {}

    def __len__(self) -> int:
        return len(self._thoughts)

    def recorder(self, owner: str, request: Request, *, unsigned: bool) -> ReasoningRecorder:
        """Return a recorder for a reply to the request. If `unsigned`, it records reasoning without a signature too."""
        words = next((each.text for each in reversed(request.canisters) if isinstance(each, UserCanister)), "")
        return ReasoningRecorder(self, owner, words, unsigned=unsigned)

    def remember(self, key: bytes, thought: _Thought) -> None:
        self._forget(key)
        self._thoughts[key] = thought
        self._weight += thought.weight
        while self._weight > self._most:
            self._forget(next(iter(self._thoughts)))

    def restore(self, owner: str, request: Request) -> Request:
        """Return the request with the reasoning before its calls that the client did not send back."""
        if not self._thoughts:
            return request
        canisters: list[Canister] = []
        words = _digest("")
        every = request.canisters
        place = 0
        while place < len(every):
            end = place
            while end < len(every) and isinstance(every[end], _OF_MODEL):
                end += 1
            if end > place:
                canisters += self._turn(owner, words, every[place:end])
                place = end
                continue
            if isinstance(each := every[place], UserCanister):
                words = _digest(each.text)
            canisters.append(each)
            place += 1
        return request if len(canisters) == len(every) else msgspec.structs.replace(request, canisters=tuple(canisters))

    def _turn(self, owner: str, words: bytes, turn: Sequence[Canister]) -> Sequence[Canister]:
        own = [part for each in turn for part in _reasoning_parts(each)]
        if any(part.opaque for part in own):
            return turn
        calls = [each for each in turn if isinstance(each, InvocationCanister)]
        thoughts_by_call = {id(call): self._thoughts.get(_key(owner, words, call)) for call in calls}
        thoughts = [thought for thought in thoughts_by_call.values() if thought is not None]
        if not thoughts or (own and not any(thought.signed for thought in thoughts)):
            return turn
        restored: list[Canister] = []
        if first := tuple([part for thought in thoughts for part in thought.first]):
            restored.append(AssistantCanister(first))
        for each in turn:
            thought = thoughts_by_call.get(id(each))
            if thought is not None and thought.near:
                restored.append(AssistantCanister(thought.near))
            restored.append(_without_reasoning(each) if own else each)
        return restored

    def _forget(self, key: bytes) -> None:
        thought = self._thoughts.pop(key, None)
        if thought is not None:
            self._weight -= thought.weight


class ReasoningRecorder:
    """Remembers the reasoning of one reply."""

    def __init__(self, thoughts: ReasoningMemory, owner: str, words: str, *, unsigned: bool) -> None:
        self._thoughts = thoughts
        self._owner = owner
        self._words = words
        self._unsigned = unsigned
        self._before_text: list[list[ReasoningPiece]] = []
        self._parts: list[list[ReasoningPiece]] = []
        """Pieces of reasoning, grouped by thought."""

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case TextPiece():
                    if event.text and self._parts:
                        self._before_text += self._parts
                        self._parts = []
                case ReasoningPiece():
                    self._think(event)
                case InvocationEnded():
                    self._call(event)
                case _:
                    pass

    def _think(self, piece: ReasoningPiece) -> None:
        last = self._parts[-1][-1] if self._parts else None
        if last is not None and not last.opaque and last.origin == piece.origin:
            self._parts[-1].append(piece)
        else:
            self._parts.append([piece])

    def _call(self, ended: InvocationEnded) -> None:
        thought = _Thought(_join_pieces(self._before_text), _join_pieces(self._parts))
        self._before_text, self._parts = [], []
        if thought.signed or (self._unsigned and (thought.first or thought.near)):
            call = InvocationCanister(ended.identifier, ended.name, ended.arguments, ended.raw)
            self._thoughts.remember(_key(self._owner, _digest(self._words), call), thought)


def _join_pieces(thoughts: Iterable[Sequence[ReasoningPiece]]) -> Parts:
    return tuple(
        [
            ReasoningContent("".join([piece.text for piece in pieces]), pieces[-1].opaque, pieces[-1].origin)
            for pieces in thoughts
        ]
    )


def _key(owner: str, words: bytes, call: InvocationCanister) -> bytes:
    """Return the key of a call as any client sends it back. Some backends count identifiers from 0."""
    arguments = call.raw if call.arguments is None else _encode(call.arguments).decode()
    return sha256(repr((owner, words, call.identifier, call.name, arguments)).encode("utf-8", "replace")).digest()


def _digest(words: str) -> bytes:
    """Return a digest of the text: many calls may follow one long message."""
    return sha256(words.encode("utf-8", "replace")).digest()


def _reasoning_parts(canister: Canister) -> list[ReasoningContent]:
    content = canister.content if isinstance(canister, AssistantCanister) else ()
    return [part for part in content if isinstance(part, ReasoningContent) and not part.extra]


def _without_reasoning(canister: Canister) -> Canister:
    if not (own := _reasoning_parts(canister)) or not isinstance(canister, AssistantCanister):
        return canister
    return msgspec.structs.replace(canister, content=tuple([part for part in canister.content if part not in own]))
