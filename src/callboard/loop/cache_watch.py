"""Notice when a provider's prompt cache stops holding, and find out why.

Two requests belong to one conversation if they begin with the same messages, up to the model's first ones; one that
goes on begins with all of the earlier one. Where the cached tokens collapse, the two are compared.
Laws: hashes are kept, never texts; a collapse is reported once; memory is bounded, and the oldest conversation goes
first. An observed request costs one pass over its canisters, as its encoding does; of a conversation without a known
cache only the first messages are hashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    InvocationCanister,
    Request,
    SupervisorCanister,
    Usage,
    UserCanister,
)

TOKENS: Final = 2_000
SHARE: Final = 0.05
"""A collapse loses more cached tokens than these, and than this share of them."""
_CONVERSATIONS: Final = 256
_BRANCHES: Final = 16
"""Conversations that begin alike, or were gone back in."""
_MESSAGES: Final = 1024
"""Canisters of a conversation that are compared."""
_SIZE: Final = 8
"""Bytes of a hash."""
_MODELS: Final = (AssistantCanister, InvocationCanister)
_NOT_SENT: Final = frozenset({"timestamp", "by_agent", "quoted_from", "extra"})
"""Fields that are not sent, or say where the client wants the cache to begin anew, as `cache_control` does."""

Cause = Literal["model", "tools", "instructions", "history", "idle", "settings", "unknown"]
_COMPARED: Final[tuple[Cause, ...]] = ("model", "tools", "instructions")
_CAUSES: Final[Mapping[Cause, str]] = {
    "model": "another model was asked",
    "tools": "the tools changed",
    "instructions": "the instructions changed",
    "history": "the history changed before its end, at message {message}",
    "idle": "{seconds:.0f} s passed since the last request, and the endpoint is known to keep a cache {lifetime:g} s",
    "settings": "the choice of a tool, the effort or the format of the answer changed",
    "unknown": "nothing of the request changed, so the provider dropped it",
}


class Collapse(msgspec.Struct, frozen=True):
    """`before` cached tokens became `after`. `message` counts from 1, behind the instructions."""

    cause: Cause
    before: int
    after: int
    message: int = 0
    seconds: float = 0.0
    lifetime: float = 0.0

    @property
    def text(self) -> str:
        """What happened, and why in all likelihood."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return f"the prompt cache collapsed from {self.before} tokens to {self.after}: {_CAUSES[self.cause]}".format(
            **fields
        )


class _Fingerprint(msgspec.Struct, frozen=True):
    """A request, as hashes. `conversation` is of all of it, `shown` of the part that the model is shown."""

    model: str
    tools: bytes
    instructions: bytes
    settings: bytes
    conversation: bytes
    shown: bytes
    turns: int
    cached: int
    at: float


class CacheWatch:
    """Remembers the last request of each conversation."""

    def __init__(self) -> None:
        self._conversations: dict[bytes, list[_Fingerprint]] = {}

    def observe(
        self,
        request: Request,
        usage: Usage,
        *,
        model: str,
        now: float,
        lifetime: float,
        owner: str = "",
    ) -> Collapse | None:
        """What became of the cache, None where it holds.

        Args:
            request: What was asked.
            usage: What the reply's end told of it.
            model: Who replied. Another one has a cache of its own.
            now: Seconds of any clock that only goes forward.
            lifetime: Seconds for which the endpoint keeps a cache.
            owner: Whose conversation it is. Those of two owners are never compared.
        """
        if not usage.input:
            return None
        messages = _messages(request.conversation or request.canisters)
        beginning = b"".join(map(_hash, messages[: _beginning(messages)]))
        key = _hash((owner, beginning))
        branches = self._conversations.pop(key, [])
        if not branches and usage.cached <= TOKENS:
            return None
        seen = _fingerprint_of(request, messages, beginning, model=model, cached=usage.cached, at=now)
        before = _before(branches, seen)
        if before is not None and (before.turns or not seen.turns):
            branches.remove(before)
        self._conversations[key] = [*branches, seen][-_BRANCHES:]
        while len(self._conversations) > _CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        if before is None or before.cached - seen.cached <= max(TOKENS, before.cached * SHARE):
            return None
        return _collapse(before, seen, request, lifetime)


def _before(branches: Sequence[_Fingerprint], seen: _Fingerprint) -> _Fingerprint | None:
    """The request that this one goes on from.

    From a first request only a second one goes on: others with its beginning are of a conversation that was changed.
    """
    whole = [
        each for each in branches if seen.conversation.startswith(each.conversation) and (each.turns or seen.turns <= 1)
    ]
    if whole:
        return max(whole, key=lambda each: len(each.conversation))
    known = [each for each in branches if each.turns and seen.turns]
    nearest = max(known, key=lambda each: _common(each.conversation, seen.conversation), default=None)
    # Who goes back to an earlier message has lost nothing.
    return None if nearest is None or nearest.conversation.startswith(seen.conversation) else nearest


def _collapse(before: _Fingerprint, seen: _Fingerprint, request: Request, lifetime: float) -> Collapse:
    tokens, passed = (before.cached, seen.cached), seen.at - before.at
    for cause in _COMPARED:
        if getattr(before, cause) != getattr(seen, cause):
            return Collapse(cause, *tokens)
    if not seen.shown.startswith(before.shown):
        place = _common(before.shown, seen.shown)
        return Collapse("history", *tokens, message=_number(_messages(request.canisters), place))
    if passed > lifetime:
        return Collapse("idle", *tokens, seconds=passed, lifetime=lifetime)
    return Collapse("settings" if before.settings != seen.settings else "unknown", *tokens)


def _fingerprint_of(
    request: Request, messages: Sequence[Canister], beginning: bytes, *, model: str, cached: int, at: float
) -> _Fingerprint:
    hashes = (beginning + b"".join(map(_hash, messages[len(beginning) // _SIZE : _MESSAGES])))[: _MESSAGES * _SIZE]
    shown = _messages(request.canisters)
    instructions = request.canisters[: len(request.canisters) - len(shown)]
    is_all = not request.conversation or request.canisters is request.conversation
    controls = request.controls
    return _Fingerprint(
        model,
        _hash((request.tools, request.hosted, request.namespaces)),
        b"".join(map(_hash, instructions)),
        _hash((request.tool_choice, request.constraint, controls.effort, request.parallel)),
        hashes,
        hashes if is_all else b"".join(map(_hash, shown[:_MESSAGES])),
        sum(_is_turn(messages, place) for place in range(len(messages))),
        cached,
        at,
    )


def _messages(canisters: Sequence[Canister]) -> Sequence[Canister]:
    """Those behind the instructions at the beginning."""
    is_said = (place for place, each in enumerate(canisters) if not isinstance(each, SupervisorCanister))
    return canisters[next(is_said, len(canisters)) :]


def _beginning(messages: Sequence[Canister]) -> int:
    """How many stand before the model's first reply to a user."""
    has_question = False
    for place, each in enumerate(messages):
        if has_question and isinstance(each, _MODELS):
            return place
        has_question = has_question or isinstance(each, UserCanister)
    return len(messages)


def _is_turn(messages: Sequence[Canister], place: int) -> bool:
    """Whether a reply of the model begins there."""
    return isinstance(messages[place], _MODELS) and not (place and isinstance(messages[place - 1], _MODELS))


def _number(messages: Sequence[Canister], place: int) -> int:
    """Which message the canister there is of, as clients count them: a reply is one, with its calls."""
    upto = messages[: place + 1]
    within = sum(isinstance(each, _MODELS) and not _is_turn(upto, at) for at, each in enumerate(upto))
    return max(1, place + 1 - within)


def _common(one: bytes, other: bytes) -> int:
    """How many hashes they begin with that are the same."""
    most = min(len(one), len(other))
    places = range(0, most, _SIZE)
    return next((at for at in places if one[at : at + _SIZE] != other[at : at + _SIZE]), most) // _SIZE


def _sent_fields(value: Any) -> Any:
    """What of a value is sent."""
    if isinstance(value, msgspec.Struct):
        fields = [name for name in value.__struct_fields__ if name not in _NOT_SENT]
        return (type(value).__name__, *[_sent_fields(getattr(value, name)) for name in fields])
    return tuple(map(_sent_fields, value)) if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def _hash(value: Any) -> bytes:
    try:
        encoded = _encode(_sent_fields(value))
    except UnicodeError:  # half a character
        encoded = repr(value).encode("utf-8", "backslashreplace")
    except RecursionError:  # a model may nest arguments as deep as Python's own limit
        encoded = b""
    return blake2b(encoded, digest_size=_SIZE).digest()
