"""What comes back when the doctor asks through the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.core import Event, InvocationEnded, InvocationStarted, ReplyFailed
from callboard.providers.lessons import STATUSES
from callboard.text.display import collapse

State: TypeAlias = Literal["no", "partly", "yes", "not asked"]
_MAX_FAILURE = 200
"""Characters."""
REFUSED = frozenset([status for status in STATUSES if status < 500])
"""Statuses of a request that is refused for what is in it, and not because the server has broken down."""


class ProbeReply(msgspec.Struct, frozen=True):
    """A reply. `mode` is how tools were declared; `learned` are the facts that the gateway learned from refusals."""

    events: list[Event]
    status: int = 0
    dropped: tuple[str, ...] = ()
    mode: str = ""
    learned: Mapping[str, Any] = {}

    @property
    def failed(self) -> ReplyFailed | None:
        last = self.events[-1] if self.events else ReplyFailed("provider", "cut", "nothing was said")
        return last if isinstance(last, ReplyFailed) else None

    @property
    def is_answer(self) -> bool:
        """The backend replied, or refused what is in the request: it is not busy, slow or broken."""
        return self.failed is None or self.status in REFUSED

    @property
    def calls(self) -> bool:
        return any(isinstance(event, InvocationEnded) for event in self.events)

    @property
    def call_form(self) -> str:
        """How the first call was made."""
        if self.mode != "native":
            return f"the tools are in the prompt (mode {self.mode})"
        started = next(event for event in self.events if isinstance(event, InvocationStarted))
        return "native" if started.found_in == "wire" else "written into the text"

    @property
    def fault(self) -> str:
        """The failure on one line, "" for none."""
        if self.failed is None:
            return ""
        text = collapse(self.failed.message, _MAX_FAILURE)
        status = f"{self.status}: " if self.status >= 400 and str(self.status) not in text else ""
        return f"{status}{text}"
