"""The one end of a reply that is decoded.

Owns what is told last, and what it means that a stream broke off or cannot be read. Knows no wire.
Laws: one terminal event last, behind the usage; `_over` from then on. A stream has ended where its backend says so;
a reply with a call that was cut is not told as whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from callboard.core import Ending, Event, InvocationIncomplete, Note, ReplyEnded, ReplyFailed, Usage, Why
from callboard.wires.chat.errors import EXCERPT

T = TypeVar("T")

CUT: Mapping[Why, ReplyFailed] = {
    "cut": ReplyFailed("provider", "cut", "the stream broke off in the middle of the reply"),
    "cancelled": ReplyFailed("caller", "cancelled", "the reply was cancelled"),
}
"""What a reply has failed of that did not say how it ends."""
_UNENDED = ReplyFailed("provider", "cut", "the stream ended before the reply did")
_NO_FRAME = ReplyFailed("provider", "malformed", "the stream ended before the model said anything")
_NAMELESS = "arguments came of a call whose name never did: the call is lost"
_HALF = "half a character came, and its other half never did"
_WHOLE = frozenset({"stop", "invocations"})


def ending(reason: Ending, *, is_cut: bool) -> Ending:
    """The reason, but `length` for a reply that would pass as whole although a call in it was cut."""
    return "length" if is_cut and reason in _WHOLE else reason


def vendor_field(warnings: Sequence[str]) -> dict[str, Any]:
    """Why a reply is incomplete, as the field that Chat Completions and Messages get of ours; nothing without a reason."""
    return {"x_callboard": {"incomplete": warnings}} if warnings else {}


class EndsOnce:
    """What stream decoders share: whether they have begun and ended, and the usage that they tell before the end."""

    _started = False
    _over = False
    _usage: Usage | None = None
    _half = ""
    """Of a character that two frames were cut through."""
    _lost_half = False
    """Whether there was one whose other half never came."""
    _is_cut = False
    """Whether a call was cut."""

    def _last(self, events: list[Event], terminal: Event) -> list[Event]:
        self._over = True
        if self._lost_half or self._half:
            events.append(Note("dropped", _HALF))
        if self._usage is not None:
            events.append(self._usage)
        if isinstance(terminal, ReplyEnded) and self._is_cut:
            terminal = ReplyEnded(ending(terminal.reason, is_cut=True))
        events.append(terminal)
        return events

    def _read(self, decode: Callable[[str], T], payload: str) -> T:
        """The frame. Raises what `decode` does, unless all that is wrong are halves of characters."""
        try:
            return decode(payload)
        except msgspec.MsgspecError:
            from callboard.text.surrogates import join_halves  # noqa: PLC0415 - few frames have one

            mended, half, alone = join_halves(payload, self._half)
            self._lost_half = self._lost_half or bool(half and alone)
            self._half = half or alone
            if mended == payload:
                raise
            return decode(mended)

    def _broken_off(self, why: Why) -> ReplyFailed:
        """What a stream has failed of that ended without an end."""
        return CUT.get(why, _UNENDED if self._started else _NO_FRAME)

    def _closed(self, events: list[Event]) -> list[Event]:
        """The ends of calls; a call that never had a name is told."""
        incomplete = [event for event in events if isinstance(event, InvocationIncomplete)]
        self._is_cut = self._is_cut or bool(incomplete)
        notes = [Note("alert", _NAMELESS, code="incomplete") for event in incomplete if not event.name]
        return [*events, *notes]


def unreadable(payload: str, error: Exception) -> ReplyFailed:
    """The failure of a reply whose frame is not of its wire."""
    excerpt = payload[:EXCERPT].encode("utf-8", "replace").decode()
    return ReplyFailed("provider", "malformed", f"a frame is not of this wire: {error}", excerpt)
