"""Daemon threads for blocking tools, up to a maximum.

Law: a thread that does not return in time is abandoned and takes no other work until it returns. The process ends
without waiting for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

_Work: TypeAlias = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ThreadPool:
    """At most `limit` threads, started when needed. Further work waits."""

    def __init__(self, limit: int = 32) -> None:
        self.limit = limit
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._free = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Return what the function returns, or raise what it raises. Cancelling stops the waiting, not the thread."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            # Count here and not in the thread, so that two calls never count on the same free thread.
            if self._free:
                self._free -= 1
            elif self._started < self.limit:
                self._started += 1
                threading.Thread(target=self._serve, name=f"callboard-{self._started}", daemon=True).start()
            else:
                self._free -= 1
        self._work.put((lambda: context.run(function), loop, done))
        return await done

    def _serve(self) -> None:
        while True:
            function, loop, done = self._work.get()
            value: Any = None
            error: BaseException | None = None
            try:
                # Skip work that nobody waits for any more.
                value = None if done.cancelled() else function()
            except BaseException as raised:  # noqa: BLE001  # raised again in the caller
                error = raised
            with self._lock:
                self._free += 1
            # A closed loop raises: nobody waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, done, value, error)
            del function, loop, done, value, error


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    elif isinstance(error, (StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit)):
        # None of these exceptions can pass through a future unchanged.
        done.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        done.set_exception(error)
