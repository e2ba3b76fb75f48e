"""The one end of a reply that is decoded.

Owns what is told last, and what it means that a stream broke off or cannot be read. Knows no wire.
Law: one terminal event last, behind the usage; `_over` from then on.
"""

from __future__ import annotations

from collections.abc import Mapping

from callboard.core import Event, ReplyFailed, Usage, Why
from callboard.wires.chat.failure import EXCERPT

CUT: Mapping[Why, ReplyFailed] = {
    "cut": ReplyFailed("provider", "cut", "the stream broke off in the middle of the reply"),
    "cancelled": ReplyFailed("caller", "cancelled", "the reply was cancelled"),
}
"""What a reply has failed of that did not say how it ends."""


class EndsOnce:
    """What stream decoders share: whether they have begun and ended, and the usage that they tell before the end."""

    _started = False
    _over = False
    _usage: Usage | None = None

    def _last(self, events: list[Event], terminal: Event) -> list[Event]:
        self._over = True
        if self._usage is not None:
            events.append(self._usage)
        events.append(terminal)
        return events


def unreadable(payload: str, error: Exception) -> ReplyFailed:
    """The failure of a reply whose frame is not of its wire."""
    excerpt = payload[:EXCERPT].encode("utf-8", "replace").decode()
    return ReplyFailed("provider", "malformed", f"a frame is not of this wire: {error}", excerpt)
