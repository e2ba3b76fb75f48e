"""A conversation's messages as bytes, kept from one request to the next.

Owns what was encoded once, and for how long. Knows nothing of what messages look like.
Laws: what it gives encodes to the bytes of `encode_request`, whatever was kept; a canister is encoded once while
its conversation is kept. A request costs a comparison of identities and a copy of the bytes besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from types import MappingProxyType

import msgspec

from callboard.core import Canister, Request
from callboard.wires.chat.messages import Messages
from callboard.wires.chat.request import around
from callboard.wires.lowered import Lowered
from callboard.wires.naming import Naming, called_names
from callboard.wires.turns import settled

KEPT = 16 * 1024 * 1024
"""Bytes that are kept, about: the conversations that were longest without a request are forgotten first."""
_CANISTER = 1024
"""Bytes of a canister in memory, about."""

_encode = msgspec.json.Encoder().encode


class _Beginning(msgspec.Struct, frozen=True, eq=False):
    """A conversation's settled canisters and all that follows from them."""

    canisters: tuple[Canister, ...] = ()
    model: str = ""
    names: Mapping[str, str] = MappingProxyType({})
    """The called names and what they are on the wire."""
    messages: bytes = b""
    """Without the brackets."""
    dropped: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        return len(self.messages) + _CANISTER * len(self.canisters)

    def begins(self, request: Request) -> bool:
        canisters = request.canisters
        return (
            self.model == request.model
            and len(self.canisters) <= len(canisters)
            and all(map(is_, self.canisters, canisters))
        )


_NOTHING = _Beginning()


class RequestEncoder:
    """`encode_request` for conversations that grow. The messages of its bodies are msgspec.Raw.

    `most` is how many bytes it keeps; the conversation of the last request is kept whatever its size.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._weight = 0
        self._kept: dict[int, _Beginning] = {}
        """By the identity of their last canisters, the one that was asked with last at the end."""

    def encode(self, request: Request) -> Lowered:
        begun = self._take(request)
        naming = Naming(request, begun.names)
        if any(naming.on_wire(name) != wire for name, wire in begun.names.items()):
            begun, naming = _NOTHING, Naming(request, ())
        rest = request.canisters[len(begun.canisters) :]
        naming.add(called_names(rest))
        count = settled(rest)
        begun = _grown(begun, rest[:count], request, naming)
        self._keep(begun)
        tail, dropped = _encoded(rest[count:], request, naming)
        messages = msgspec.Raw(b"[%b]" % _joined(begun.messages, tail))
        return around(messages, (*begun.dropped, *dropped), request, naming)

    def _take(self, request: Request) -> _Beginning:
        """The longest beginning of the request's conversation, no longer kept: what it grows to will be."""
        for canister in reversed(request.canisters):
            begun = self._kept.get(id(canister))
            if begun is not None and begun.begins(request):
                del self._kept[id(canister)]
                self._weight -= begun.weight
                return begun
        return _NOTHING

    def _keep(self, begun: _Beginning) -> None:
        if not begun.canisters:
            return
        self._forget(id(begun.canisters[-1]))
        self._kept[id(begun.canisters[-1])] = begun
        self._weight += begun.weight
        while self._weight > self._most and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: int) -> None:
        begun = self._kept.pop(key, _NOTHING)
        self._weight -= begun.weight


def _grown(begun: _Beginning, canisters: Sequence[Canister], request: Request, naming: Naming) -> _Beginning:
    if not canisters:
        return begun
    messages, dropped = _encoded(canisters, request, naming)
    called = {name: naming.on_wire(name) for name in called_names(canisters) if name not in begun.names}
    return _Beginning(
        (*begun.canisters, *canisters),
        request.model,
        {**begun.names, **called} if called else begun.names,
        _joined(begun.messages, messages),
        (*begun.dropped, *dropped),
    )


def _encoded(canisters: Sequence[Canister], request: Request, naming: Naming) -> tuple[bytes, list[str]]:
    """The messages without their brackets, and what they could not carry."""
    messages = Messages(canisters, model=request.model, on_wire=naming.on_wire)
    return _encode(messages.body)[1:-1], messages.dropped


def _joined(*messages: bytes) -> bytes:
    return b",".join([each for each in messages if each])
