"""Shared parts of the stream decoders and encoders: reading payloads, and ending a reply once.

Laws of a decoder: ReplyStarted first and once; one terminal event last, after the usage, and nothing after it; never
an exception for what a backend sent. A reply has ended only where its backend says so, and one with a call that was
cut off does not end as whole.

An encoder sends only one kind of Note: the reason of an incomplete reply. An encoder cannot send a retry. If a retry may
come, hold the events until the reply has ended.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from callboard import core
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.errors import excerpt_of, malformed_reply
from callboard.wires.common.tool_calls import CalledTools

Payload = TypeVar("Payload")

DONE = "[DONE]"
"""The payload that ends a stream of OpenAI's wires; proxies send it on the others as well."""
CUT: Mapping[core.Why, core.ReplyFailed] = {
    "cut": core.ReplyFailed("provider", "cut", "the stream broke off in the middle of the reply"),
    "cancelled": core.ReplyFailed("caller", "cancelled", "the reply was cancelled"),
}
"""The failure of a reply whose stream ended for that reason, without a terminal event."""
_UNENDED = core.ReplyFailed("provider", "cut", "the provider closed the connection mid-reply")
_NO_FRAME = core.ReplyFailed("provider", "malformed", "the stream ended before the model said anything")
_NAMELESS = "arguments came of a call whose name never did: the call is lost"
_HALF = "half a character came, and its other half never did"
_WHOLE = frozenset({"stop", "invocations"})
MAX_COUNT = 10**12
"""Tokens that a backend can count at most."""
BROKEN_OFF = core.ReplyFailed("provider", "cut", "the reply broke off")
"""The failure of a reply whose events ended without a terminal event."""


class DecodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Given to a wire's `StreamDecoder` and `decode_response`."""

    identify: core.Identify
    """Returns an identifier for a call without one, or with the identifier of another call."""
    names: Mapping[str, str] = NO_NAMES
    """From a tool's name on the wire to the declared one, where the two differ."""
    declared: frozenset[str] | None = None
    """The names of tools that count as known; None for all."""
    origin: str = ""
    """The model that reasoning is marked with; by default the model's name in the reply."""


class BaseStreamDecoder(Generic[Payload]):
    """A Stage: the data of one frame in, events out. A wire says what a payload is and what its events are."""

    def __init__(self, context: DecodeContext) -> None:
        self._tools = CalledTools(context)
        self._origin = context.origin
        self._started = False
        self._over = False
        self._usage: core.Usage | None = None
        self._half = ""
        """The first half of a character (a surrogate) whose second half may come in the next frame."""
        self._lost_half = False
        self._is_cut = False
        """Whether a call was cut off."""

    def feed(self, payload: str, /) -> list[core.Event]:
        if self._over or not payload:
            return []
        if payload.startswith(DONE):
            return self._done()
        try:
            decoded = self.decode_payload(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return self._feed_odd(payload, error)
        return self.decode(decoded, payload)

    @abstractmethod
    def decode_payload(self, payload: str, /) -> Payload:
        """The JSON as the wire's shape."""

    @abstractmethod
    def decode(self, decoded: Payload, payload: str = "") -> list[core.Event]:
        """The events of a payload that is decoded already; `payload`, its text, is for the excerpt of an error."""

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """The end of the reply as far as it is known."""
        return [] if self._over else self._finish(why)

    @abstractmethod
    def _finish(self, why: core.Why) -> list[core.Event]:
        """Return the last events of a reply whose stream ended without a terminal event."""

    @abstractmethod
    def _done(self) -> list[core.Event]:
        """The events of `[DONE]`."""

    @abstractmethod
    def _fail(self, failure: core.ReplyFailed) -> list[core.Event]:
        """The end of a reply that failed."""

    def _feed_odd(self, payload: str, error: Exception) -> list[core.Event]:
        """Return the events of a frame that is not a payload, such as JSON with a surrogate that another frame completes."""
        if isinstance(error, msgspec.MsgspecError):
            from callboard.text.surrogates import join_halves  # noqa: PLC0415 - few frames have one

            mended, half, alone = join_halves(payload, self._half)
            self._lost_half = self._lost_half or bool(half and alone)
            self._half = half or alone
            if mended != payload:
                try:
                    return self.decode(self.decode_payload(mended), payload)
                except (msgspec.MsgspecError, RecursionError, UnicodeError) as still:
                    error = still
        return self._unreadable(payload, error)

    def _unreadable(self, payload: str, error: Exception) -> list[core.Event]:
        return self._fail(malformed_reply(f"a frame is not of this wire: {error}", excerpt_of(payload)))

    def _end_with(self, events: list[core.Event], terminal: core.ReplyEnded | core.ReplyFailed) -> list[core.Event]:
        """The events with what comes last: notes, the usage, and the terminal event."""
        self._over = True
        if self._lost_half or self._half:
            events.append(core.Note("dropped", _HALF))
        if self._usage is not None:
            events.append(self._usage)
        if isinstance(terminal, core.ReplyEnded) and self._is_cut:
            terminal = core.ReplyEnded(ending(terminal.reason, is_cut=True))
        events.append(terminal)
        return events

    def _cut_failure(self, why: core.Why) -> core.ReplyFailed:
        """The failure of a reply whose stream ended without saying how the reply ends."""
        return CUT.get(why, _UNENDED if self._started else _NO_FRAME)

    def _note_incomplete(self, events: list[core.Event]) -> list[core.Event]:
        """The ends of calls, with an alert for each call that never had a name."""
        incomplete = [event for event in events if isinstance(event, core.InvocationIncomplete)]
        self._is_cut = self._is_cut or bool(incomplete)
        alerts = [core.Note("alert", _NAMELESS, code="incomplete") for event in incomplete if not event.name]
        return [*events, *alerts]


def string(value: Any) -> str:
    """Return a backend's field if it is text, else ""."""
    return value if isinstance(value, str) else ""


def count(value: Any, key: str = "") -> int:
    """Return a number of tokens, or 0 if the value is not one. With `key`, read that member of `value`.

    More than `MAX_COUNT` is taken for so many: sums, metrics and databases have room for 64 bits.
    """
    if key:
        value = value.get(key) if isinstance(value, dict) else None
    return min(value, MAX_COUNT) if type(value) is int and value > 0 else 0


def ending(reason: core.Ending, *, is_cut: bool) -> core.Ending:
    """The reason, but `length` for a reply that would pass as whole although a call in it was cut off."""
    return "length" if is_cut and reason in _WHOLE else reason


def vendor_field(warnings: Sequence[str]) -> dict[str, Any]:
    """Why a reply is incomplete, as a field that we add to Chat Completions and Messages; {} without a reason."""
    return {"x_callboard": {"incomplete": warnings}} if warnings else {}


def last_attempt(events: Iterable[core.Event]) -> tuple[list[core.Event], core.ReplyEnded | core.ReplyFailed]:
    """Return the events of the last attempt, and the end. Earlier attempts count only for their usage."""
    attempt: list[core.Event] = []
    for event in events:
        match event:
            case core.ReplyEnded(reason="retry"):
                attempt = [each for each in attempt if isinstance(each, core.Usage)]
            case core.ReplyEnded() | core.ReplyFailed():
                return attempt, event
            case _:
                attempt.append(event)
    return attempt, BROKEN_OFF
