"""Encode the requests of conversations that grow, and keep the JSON of what does not change from one to the next.

`ConversationEncoder` is every wire's `encode_request` for such conversations: a wire gives it the names of tools, the
messages of canisters and the body around them. An agent sends the same canisters in every round, so a settled
canister is encoded once; a request costs a comparison of identities and a copy of the bytes besides.

Laws: the body encodes to the bytes of the wire's `encode_request`, whatever was kept; a canister is encoded once while
its conversation is kept; `EncodedRequest.dropped` names nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from callboard.core import Canister, Request
from callboard.wires.common.group_turns import settled
from callboard.wires.common.tool_declarations import called_names

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Every name on the wire is the declared one."""
NO_TOOLS: Mapping[str, Any] = MappingProxyType({})
KEPT = 16 * 1024 * 1024
"""Bytes that are kept, about: the conversations that were longest without a request are forgotten first."""
_CANISTER = 1024
"""Bytes of a canister in memory, about."""

_encode = msgspec.json.Encoder().encode


class EncodedRequest(msgspec.Struct, frozen=True):
    """A request in a provider's words.

    `names` maps a tool's name on the wire to the declared one, where they differ. `dropped` names each kind of
    thing that the wire could not carry. `nullable` are the tools, by their declared names, whose calls may have a
    null where an optional member is left out, and the schemas that they were declared with; `respelled` those whose
    arguments have other names on the wire.
    """

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    dropped: tuple[str, ...] = ()
    nullable: Mapping[str, Mapping[str, Any]] = NO_TOOLS
    respelled: Mapping[str, Fitted] = NO_TOOLS

    def __post_init__(self) -> None:
        if self.dropped:
            msgspec.structs.force_setattr(self, "dropped", dedupe(self.dropped))

    @property
    def rewritten(self) -> frozenset[str]:
        """The tools whose calls come otherwise than they were declared."""
        return frozenset({*self.nullable, *self.respelled})

    def restored(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call as the tool was declared."""
        if tool in self.respelled:
            from callboard.schema.provider_limits import restored  # noqa: PLC0415 - few tools have such names

            arguments = restored(arguments, self.respelled[tool])
        if tool in self.nullable:
            from callboard.schema.strict import without_nulls  # noqa: PLC0415 - few schemas are made strict

            arguments = without_nulls(arguments, self.nullable[tool])
        return arguments


def dedupe(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))


class Names(Protocol):
    """What the tools of one request are called."""

    def on_wire(self, name: str, /) -> Any:
        """All that the words of a call take from the request's tools; not equal to itself where that is too much."""

    def add(self, names: Iterable[str], /) -> None:
        """Names that are called after all others."""


Named = TypeVar("Named", bound=Names)


class EncodedMessages(msgspec.Struct, frozen=True):
    """Canisters as a wire says them, as values or as msgspec.Raw of lists.

    `more` belongs to the end of the last message before these, whose last field is a list. `system` stands apart
    from the messages. `after` is what the words behind have to know of these; it is None before the first.
    """

    messages: Any
    dropped: Iterable[str] = ()
    more: Sequence[Any] = ()
    system: Any = ()
    after: Any = None


class _Said(msgspec.Struct, frozen=True):
    """EncodedMessages in JSON: lists without their brackets."""

    messages: bytes = b""
    system: bytes = b""
    dropped: tuple[str, ...] = ()
    after: Any = None

    def then(self, words: EncodedMessages) -> _Said:
        messages = self.messages
        if words.more:
            messages = b"%b,%b]}" % (messages[:-2], _listed(words.more))
        return _Said(
            _joined(messages, _listed(words.messages)),
            _joined(self.system, _listed(words.system)),
            dedupe((*self.dropped, *words.dropped)),
            words.after,
        )

    def words(self) -> EncodedMessages:
        system = msgspec.Raw(b"[%b]" % self.system) if self.system else ()
        return EncodedMessages(msgspec.Raw(b"[%b]" % self.messages), self.dropped, system=system, after=self.after)


class _Beginning(msgspec.Struct, frozen=True, eq=False):
    """A conversation's settled canisters and all that follows from them."""

    canisters: tuple[Canister, ...] = ()
    model: str = ""
    names: Mapping[str, Any] = MappingProxyType({})
    """The called names and what they are on the wire."""
    said: _Said = _Said()

    @property
    def weight(self) -> int:
        return len(self.said.messages) + len(self.said.system) + _CANISTER * len(self.canisters)

    def begins(self, request: Request) -> bool:
        canisters = request.canisters
        return (
            self.model == request.model
            and len(self.canisters) <= len(canisters)
            and all(map(is_, self.canisters, canisters))
        )


_NOTHING = _Beginning()


class ConversationEncoder(Generic[Named]):
    """A wire's `encode_request` for conversations that grow. The messages of its bodies are msgspec.Raw.

    `names` gives the names of a request whose conversation calls those of the second argument, `words` the words of
    canisters behind those that gave this `after`, and `around` the body. `most` is how many bytes are kept; the
    conversation of the last request is kept whatever its size.
    """

    def __init__(
        self,
        names: Callable[[Request, Iterable[str]], Named],
        words: Callable[[Sequence[Canister], Request, Named, Any], EncodedMessages],
        around: Callable[[EncodedMessages, Request, Named], EncodedRequest],
        most: int = KEPT,
    ) -> None:
        self._names = names
        self._words = words
        self._around = around
        self._most = most
        self._weight = 0
        self._kept: dict[int, _Beginning] = {}
        """By the identity of their last canisters, the one that was asked with last at the end."""

    def encode(self, request: Request) -> EncodedRequest:
        begun = self._take(request)
        names = self._names(request, begun.names)
        if any(names.on_wire(name) != wire for name, wire in begun.names.items()):
            begun, names = _NOTHING, self._names(request, ())
        rest = request.canisters[len(begun.canisters) :]
        names.add(called_names(rest))
        count = settled(rest)
        begun = self._grown(begun, rest[:count], request, names)
        self._keep(begun)
        return self._around(self._more(begun.said, rest[count:], request, names).words(), request, names)

    def _grown(self, begun: _Beginning, canisters: Sequence[Canister], request: Request, names: Named) -> _Beginning:
        if not canisters:
            return begun
        called = {name: names.on_wire(name) for name in called_names(canisters) if name not in begun.names}
        return _Beginning(
            (*begun.canisters, *canisters),
            request.model,
            {**begun.names, **called} if called else begun.names,
            self._more(begun.said, canisters, request, names),
        )

    def _more(self, said: _Said, canisters: Sequence[Canister], request: Request, names: Named) -> _Said:
        return said.then(self._words(canisters, request, names, said.after)) if canisters else said

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


def _listed(values: Sequence[Any]) -> bytes:
    return _encode(values)[1:-1] if values else b""


def _joined(*lists: bytes) -> bytes:
    return b",".join([each for each in lists if each])
