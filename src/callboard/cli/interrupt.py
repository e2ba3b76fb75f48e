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
from functools import partial
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

    async def cancellable() -> T:
        _wake_at_ctrl_c()
        try:
            return await command
        except asyncio.CancelledError:
            _exit_soon()
            on_cancel()
            raise

    return asyncio.run(cancellable())


def _wake_at_ctrl_c() -> None:
    """Let ctrl-C wake the loop, which asyncio's handler does not where the signal comes just before the loop waits.

    That handler stays: it alone interrupts a tool that holds the loop.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not isinstance(handler, partial):
        return  # it is not asyncio's
    with suppress(NotImplementedError):  # on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        signal.signal(signal.SIGINT, handler)


def _exit_soon() -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # no ctrl-C comes here, and the process is another's
    with suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    timer = threading.Timer(EXIT_SECONDS, os._exit, (EXIT_CODE,))
    timer.daemon = True
    timer.start()
