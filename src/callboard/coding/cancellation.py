"""Work that a cancellation or a signal ends in good order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


async def finish_despite_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work` to its end. A cancellation during the wait is raised afterwards; an exception of `work` goes first."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


@contextmanager
def cancel_on_signals() -> Iterator[list[int]]:
    """SIGTERM, and SIGHUP of a closed terminal, cancel the current task, unless they are ignored. Yields those that came."""
    received: list[int] = []
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def cancel(number: int) -> None:
        # Once: a second signal must not interrupt the cleaning up.
        if task is not None and not received:
            task.cancel()
        received.append(number)

    for number in handled:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, cancel, number)
    try:
        yield received
    finally:
        for number in handled:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(number)
