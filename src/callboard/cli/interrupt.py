"""Ctrl-C.

Owns what it does to a command that runs: its task is cancelled, then the process ends, whatever still runs in
it. Knows nothing of what is cancelled.
Law: what was done is put in order and told first; after that nothing holds the process for long.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

EXIT_CODE = 130
EXIT_SECONDS = 2.0
"""Seconds that threads and tasks have to end by themselves, once the command's own task has."""

T = TypeVar("T")


def run(command: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """`asyncio.run`; at ctrl-C the command is cancelled, `tell` is called, and KeyboardInterrupt raised.

    asyncio and Python wait for ever for threads that do not end and tasks that will not be cancelled, which
    tools may have. PATIENCE later, or at the next ctrl-C, the process ends without them: exit code 130.
    """

    async def cancellable() -> T:
        try:
            return await command
        except asyncio.CancelledError:
            _exit_soon()
            on_cancel()
            raise

    return asyncio.run(cancellable())


def _exit_soon() -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # no ctrl-C comes here, and the process is another's
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    timer = threading.Timer(EXIT_SECONDS, os._exit, (EXIT_CODE,))
    timer.daemon = True
    timer.start()
