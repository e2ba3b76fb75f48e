"""Ctrl-C: cancel the command's task, then end the process even if threads still run.

Rule: the command cleans up and reports first. After that nothing delays the exit for long.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

EXIT_CODE = 130
EXIT_SECONDS = 2.0
"""Seconds for threads and tasks to end after the command's own task has ended."""

T = TypeVar("T")


def run(command: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Run the command like `asyncio.run`. Ctrl-C cancels it, calls `on_cancel` and raises KeyboardInterrupt.

    Tools may leave threads that do not end and tasks that ignore cancellation, and Python would wait for them forever.
    After EXIT_SECONDS, or at the next ctrl-C, the process ends without them, with exit code 130.
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


@contextmanager
def intercept(is_handled: Callable[[], bool]) -> Iterator[None]:
    """While this is open, ctrl-C first calls `is_handled`, and does nothing else if it returns True."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: None if is_handled() else handler(number, frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _wake_at_ctrl_c() -> None:
    """Let ctrl-C wake the loop. asyncio's handler does not, if the signal arrives just before the loop waits.

    That handler stays, because only it interrupts a tool that blocks the loop.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not isinstance(handler, partial):
        return  # not asyncio's handler
    with suppress(NotImplementedError):  # on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        signal.signal(signal.SIGINT, handler)


def _exit_soon() -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # ctrl-C does not arrive here, and another thread owns the process
    with suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    timer = threading.Timer(EXIT_SECONDS, os._exit, (EXIT_CODE,))
    timer.daemon = True
    timer.start()
