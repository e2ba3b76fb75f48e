"""How long a server may be silent, before and within its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
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
            return _PatientTimeout(self.seconds, self._is_alive, self._end)
        return asyncio.timeout(self.seconds)


class _PatientTimeout:
    """A timeout that starts again for as long as `is_alive` says so, until `end`."""

    def __init__(self, seconds: float, is_alive: Callable[[], Awaitable[bool]], end: float) -> None:
        self._seconds = seconds
        self._is_alive = is_alive
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._pending: asyncio.TimerHandle | asyncio.Task[None]

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _wait(self) -> None:
        self._pending = self._loop.call_later(self._seconds, self._begin_probe)

    def _begin_probe(self) -> None:
        self._pending = self._loop.create_task(self._probe())

    async def _probe(self) -> None:
        if self._loop.time() < self._end and await self._is_alive():
            self._wait()
        else:
            self._timeout.reschedule(self._loop.time())
