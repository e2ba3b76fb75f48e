"""A timeout that signs of life extend, and a limit for the whole call."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Self

Expired = Literal["idle", "timeout"]


class Deadline:
    """An async context that raises TimeoutError `idle` seconds after the last `extend`, and after `timeout` seconds at the
    latest; `expired` then says which. While it is paused, as when a person is asked, only the latter counts.
    """

    __slots__ = ("_clock", "_idle", "_latest", "_open", "_pauses", "_scope", "expired")

    def __init__(self, idle: float, timeout: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._idle = idle
        self._latest = self._clock() + timeout
        self._pauses = 0
        self._open = False
        self._scope = asyncio.timeout_at(self._next())
        self.expired: Expired | None = None

    def extend(self, within: float | None = None) -> None:
        """Restart the idle timeout after a sign of life; the next one may take `within` seconds, by default `idle`."""
        if self._open and not self._scope.expired():
            self._scope.reschedule(self._next(within))

    def pause(self) -> None:
        self._pauses += 1
        self.extend()

    def resume(self) -> None:
        self._pauses -= 1
        self.extend()

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if self._scope.expired():
            self.expired = "timeout" if self._clock() >= self._latest else "idle"
        await self._scope.__aexit__(kind, error, trace)

    def _next(self, within: float | None = None) -> float:
        return self._latest if self._pauses else min(self._clock() + (within or self._idle), self._latest)
