"""Whether anything of a call went out.

Owns the one mark that a transport makes while it sends for a call; the task of the call carries it. Knows nothing
of transports.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final


class Sending:
    """`sent`: the server may have the call. `refused`: it said that it did not look at it, for want of a session."""

    __slots__ = ("refused", "sent")

    def __init__(self) -> None:
        self.sent = False
        self.refused = False


SENDING: Final[ContextVar[Sending | None]] = ContextVar("SENDING", default=None)
