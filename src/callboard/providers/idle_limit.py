"""How long a server may be silent, before and within its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

_MAX_PATIENCE: Final = 3600.0
"""Seconds after which a server that lives but sends no token has failed. The longest reported wait was 1,298 s."""


class IdleLimit:
    """The seconds of silence after which an answer has failed.

    While `is_patient`, a server that shows a sign of life may be silent for longer: before the first token, a large
    model may read a long prompt for many minutes. Hosted APIs show no such sign.
    """

    def __init__(self, seconds: float, is_alive: Callable[[], Awaitable[bool]] | None = None) -> None:
        self.seconds = seconds
        self.is_patient = is_alive is not None
        self._is_alive = is_alive
        self._end = asyncio.get_running_loop().time() + _MAX_PATIENCE

    def watch(self) -> AbstractAsyncContextManager[object]:
        """Return what raises TimeoutError if the body of its `async with` is silent for too long."""
        if self.is_patient and self._is_alive is not None:
            return self._watch_patiently(self._is_alive)
        return asyncio.timeout(self.seconds)

    @asynccontextmanager
    async def _watch_patiently(self, is_alive: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        pending: list[asyncio.TimerHandle | asyncio.Task[None]] = []
        async with asyncio.timeout(None) as limit:

            async def probe() -> None:
                if loop.time() < self._end and await is_alive():
                    wait()
                else:
                    limit.reschedule(loop.time())

            def wait() -> None:
                pending[:] = [loop.call_later(self.seconds, lambda: pending.append(loop.create_task(probe())))]

            wait()
            try:
                yield
            finally:
                for each in pending:
                    each.cancel()
