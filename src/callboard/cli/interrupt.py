"""Ctrl-C: cancel the command's task, then end the process, whatever still runs in it.

Law: the command cleans up and reports first; after that nothing holds up the exit for long.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

EXIT_CODE = 130
EXIT_SECONDS = 2.0
"""Seconds that threads and tasks have to end, once the command's own task has ended."""

T = TypeVar("T")


def run(command: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """As `asyncio.run`; at ctrl-C the command is cancelled, `on_cancel` is called, and KeyboardInterrupt is raised.

    asyncio and Python wait for ever for threads that do not end and tasks that ignore cancellation, which tools may have.
    EXIT_SECONDS later, or at the next ctrl-C, the process ends without them: exit code 130.
    """
    interrupts = 0
    is_ours = _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    async def cancellable() -> T:
        if is_ours:
            watch(asyncio.get_running_loop(), asyncio.current_task())
        try:
            return await command
        except asyncio.CancelledError:
            _exit_soon()
            on_cancel()
            raise

    def watch(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            if interrupts > 1 or task is None:
                raise KeyboardInterrupt
            task.cancel()

        # asyncio's own handler does not wake a loop that was just about to wait when the signal came.
        with suppress(NotImplementedError):  # on Windows
            loop.add_signal_handler(signal.SIGINT, interrupt)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if interrupts:
            raise KeyboardInterrupt from None
        raise


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit_soon() -> None:
    if not _is_main_thread():
        return  # no ctrl-C comes here, and the process is another's
    with suppress(NotImplementedError):  # on Windows
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    timer = threading.Timer(EXIT_SECONDS, os._exit, (EXIT_CODE,))
    timer.daemon = True
    timer.start()
