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
from callboard.wires.common.group_turns import count_settled
from callboard.wires.common.tool_declarations import called_names

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Every name on the wire is the declared one."""
NO_TOOLS: Mapping[str, Any] = MappingProxyType({})
MAX_CACHED = 16 * 1024 * 1024
"""About the bytes that are cached; the conversations that were not used for longest are dropped first."""
_CANISTER = 1024
"""About the bytes of a canister in memory."""

_encode = msgspec.json.Encoder().encode


class EncodedRequest(msgspec.Struct, frozen=True):
    """A request as a provider's body, and what the way back needs. Tools are named as they were declared."""

    body: dict[str, Any]
    names: Mapping[str, str] = NO_NAMES
    """From a tool's name on the wire to the declared one, where they differ."""
    dropped: tuple[str, ...] = ()
    """Each kind of thing that the wire could not carry."""
    nullable: Mapping[str, Mapping[str, Any]] = NO_TOOLS
    """The declared schemas of tools whose calls may have a null for an optional member that is left out."""
    respelled: Mapping[str, Fitted] = NO_TOOLS
    """The tools whose arguments have other names on the wire."""

    def __post_init__(self) -> None:
        if self.dropped:
            msgspec.structs.force_setattr(self, "dropped", dedupe(self.dropped))

    @property
    def rewritten(self) -> frozenset[str]:
        """The tools whose arguments come back in another form than they were declared in."""
        return frozenset({*self.nullable, *self.respelled})

    def restore(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call in the form that the tool was declared in."""
        if tool in self.respelled:
            from callboard.schema.provider_limits import restore_names  # noqa: PLC0415 - few tools have such names

            arguments = restore_names(arguments, self.respelled[tool])
        if tool in self.nullable:
            from callboard.schema.strict import without_nulls  # noqa: PLC0415 - few schemas are made strict

            arguments = without_nulls(arguments, self.nullable[tool])
        return arguments


def dedupe(dropped: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
    return tuple(dict.fromkeys(dropped))


class CallNames(Protocol):
    """The names on the wire of the tools of one request."""

    def on_wire(self, name: str, /) -> Any:
        """What an encoded call takes from the request's tools. A value that equals nothing keeps it from being cached."""

    def add(self, names: Iterable[str], /) -> None:
        """Adds names of tools that were called, after all others."""


Names = TypeVar("Names", bound=CallNames)


class EncodedMessages(msgspec.Struct, frozen=True):
    """Canisters as a wire's messages."""

    messages: Any
    """A list of values, or its JSON as msgspec.Raw."""
    dropped: Iterable[str] = ()
    continuation: Sequence[Any] = ()
    """Belongs to the end of the message before these, whose last field is a list."""
    system: Any = ()
    """What the wire keeps apart from the messages; as `messages`."""
    state: Any = None
    """What the encoding of later canisters has to know of these; None before the first."""


class _EncodedJson(msgspec.Struct, frozen=True):
    """EncodedMessages as JSON: lists without their brackets."""

    messages: bytes = b""
    system: bytes = b""
    dropped: tuple[str, ...] = ()
    state: Any = None

    def extend(self, more: EncodedMessages) -> _EncodedJson:
        messages = self.messages
        if more.continuation:
            messages = b"%b,%b]}" % (messages[:-2], _list_json(more.continuation))
        return _EncodedJson(
            _join(messages, _list_json(more.messages)),
            _join(self.system, _list_json(more.system)),
            dedupe((*self.dropped, *more.dropped)),
            more.state,
        )

    def encoded_messages(self) -> EncodedMessages:
        system = msgspec.Raw(b"[%b]" % self.system) if self.system else ()
        return EncodedMessages(msgspec.Raw(b"[%b]" % self.messages), self.dropped, system=system, state=self.state)


class CachedPrefix(msgspec.Struct, frozen=True, eq=False):
    """A conversation's settled canisters, encoded."""

    canisters: tuple[Canister, ...] = ()
    model: str = ""
    names: Mapping[str, Any] = MappingProxyType({})
    """The names of called tools, and what they are on the wire."""
    json: _EncodedJson = _EncodedJson()

    @property
    def size(self) -> int:
        """About the bytes in memory."""
        return len(self.json.messages) + len(self.json.system) + _CANISTER * len(self.canisters)

    def begins(self, request: Request) -> bool:
        canisters = request.canisters
        return (
            self.model == request.model
            and len(self.canisters) <= len(canisters)
            and all(map(is_, self.canisters, canisters))
        )


_EMPTY = CachedPrefix()


class ConversationEncoder(Generic[Names]):
    """A wire's `encode_request` for conversations that grow. The messages of its bodies are msgspec.Raw.

    Args:
        make_names: The names of a request whose conversation calls the tools of the second argument.
        encode_messages: The messages of canisters; the last argument is the state that those before them left.
        encode_body: The request around its messages.
        max_cached: Bytes. The conversation of the last request is cached whatever its size.
    """

    def __init__(
        self,
        make_names: Callable[[Request, Iterable[str]], Names],
        encode_messages: Callable[[Sequence[Canister], Request, Names, Any], EncodedMessages],
        encode_body: Callable[[EncodedMessages, Request, Names], EncodedRequest],
        max_cached: int = MAX_CACHED,
    ) -> None:
        self._make_names = make_names
        self._encode_messages = encode_messages
        self._encode_body = encode_body
        self._max_cached = max_cached
        self._size = 0
        self._cache: dict[int, CachedPrefix] = {}
        """By the identity of their last canisters, the most recently used at the end."""

    def encode(self, request: Request) -> EncodedRequest:
        prefix = self._take(request)
        names = self._make_names(request, prefix.names)
        if any(names.on_wire(name) != wire for name, wire in prefix.names.items()):
            prefix, names = _EMPTY, self._make_names(request, ())
        rest = request.canisters[len(prefix.canisters) :]
        names.add(called_names(rest))
        count = count_settled(rest)
        prefix = self._extend(prefix, rest[:count], request, names)
        self._put(prefix)
        messages = self._extend_json(prefix.json, rest[count:], request, names).encoded_messages()
        return self._encode_body(messages, request, names)

    def _extend(
        self, prefix: CachedPrefix, canisters: Sequence[Canister], request: Request, names: Names
    ) -> CachedPrefix:
        if not canisters:
            return prefix
        called = {name: names.on_wire(name) for name in called_names(canisters) if name not in prefix.names}
        return CachedPrefix(
            (*prefix.canisters, *canisters),
            request.model,
            {**prefix.names, **called} if called else prefix.names,
            self._extend_json(prefix.json, canisters, request, names),
        )

    def _extend_json(
        self, json: _EncodedJson, canisters: Sequence[Canister], request: Request, names: Names
    ) -> _EncodedJson:
        return json.extend(self._encode_messages(canisters, request, names, json.state)) if canisters else json

    def _take(self, request: Request) -> CachedPrefix:
        """Removes and returns the longest cached prefix of the request's conversation: what it grows to is put back."""
        for canister in reversed(request.canisters):
            prefix = self._cache.get(id(canister))
            if prefix is not None and prefix.begins(request):
                del self._cache[id(canister)]
                self._size -= prefix.size
                return prefix
        return _EMPTY

    def _put(self, prefix: CachedPrefix) -> None:
        if not prefix.canisters:
            return
        self._drop(id(prefix.canisters[-1]))
        self._cache[id(prefix.canisters[-1])] = prefix
        self._size += prefix.size
        while self._size > self._max_cached and len(self._cache) > 1:
            self._drop(next(iter(self._cache)))

    def _drop(self, key: int) -> None:
        self._size -= self._cache.pop(key, _EMPTY).size


def _list_json(values: Sequence[Any]) -> bytes:
    return _encode(values)[1:-1] if values else b""


def _join(*lists: bytes) -> bytes:
    return b",".join([each for each in lists if each])
