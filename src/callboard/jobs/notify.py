"""Tell the user's commands and webhooks that a job waits for somebody, or has ended.

Laws:
- Everybody is told at least once, and twice only where a process died while it told: what is told is noted in the
  database, and a place that could not be reached is tried again for three days.
- A place that hangs holds neither a job nor the worker: each has `SECONDS`, and then its processes are killed.
- No shell reads what is told, no secret of ours goes along, and no address is printed beyond its host.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from callboard.coding.jobs.json_encoding import encode_json
from callboard.configuration.jobs import NotifySettings
from callboard.core.ports import Clock
from callboard.errors import CallboardError
from callboard.jobs.database import Database
from callboard.jobs.notifications import Notification, settle_notification, take_notifications
from callboard.programs import absolute_search_path

SECONDS: Final = 10.0
"""What a command or a webhook has."""
POLL_SECONDS: Final = 1.0
MOST: Final = 16
"""Notifications that are told at once."""

ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
)
"""The variables that a command gets: those of a session, and no key of any API."""


class Notifier:
    """Tells what is due while it is entered as an asynchronous context manager, beside a worker.

    Without anybody to tell it does nothing: a worker of another host may have somebody.
    """

    def __init__(
        self,
        database: Database,
        places: Sequence[NotifySettings],
        show: Callable[[str], None],
        *,
        seconds: float = SECONDS,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """Takes the database, who is told, and what shows a failure to the user, in one line."""
        self._database = database
        self._places = tuple(places)
        self._show = show
        self._seconds = seconds
        self._clock = clock
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._places:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Tells what is due once more; that takes `seconds` at most, as what is being told does."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            # What happened until it stops is told as well: the worker may have ended its last job just now.
            is_last = self._stopping.is_set()
            count = 0
            with suppress(CallboardError):  # the database is away, and this is tried again
                count = await self.tell_due()
            if count < MOST and not is_last:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), POLL_SECONDS)

    async def tell_due(self) -> int:
        """Tell what is due to everybody who does not know it yet; how many notifications that were.

        Raises:
            DatabaseUnavailable: What was told may be told again.
        """
        now = self._clock()
        taken = await self._database.run(lambda connection: take_notifications(connection, now, MOST))
        await asyncio.gather(*[self._tell(each) for each in taken])
        return len(taken)

    async def _tell(self, notification: Notification) -> None:
        body = encode_json({**notification.payload, "attempt": notification.attempts})
        # A place is known by its number too: two webhooks may be of one host.
        places = [(f"{number} {each.place}", each) for number, each in enumerate(self._places)]
        waiting = [(name, each) for name, each in places if name not in notification.done]
        failures = await asyncio.gather(*[self._send(each, body) for _, each in waiting])
        done = [name for (name, _), failure in zip(waiting, failures, strict=True) if not failure]
        for (_, each), failure in zip(waiting, failures, strict=True):
            if failure:
                self._show(f"{each.place} was not told of job {notification.payload['job']}: {failure}")
        settled = notification._replace(done=(*notification.done, *done))
        now = self._clock()
        await self._database.run(
            lambda connection: settle_notification(connection, settled, now, is_over=not any(failures))
        )

    async def _send(self, place: NotifySettings, body: bytes) -> str:
        """Why a place could not be told; "" if it was."""
        send = run_command(place.command, body) if place.command else post(place.url, body)
        try:
            async with asyncio.timeout(self._seconds):
                return await send
        except TimeoutError:
            return f"it took more than {self._seconds:g} s"


async def run_command(command: Sequence[str], body: bytes) -> str:
    """Run a program with the body as its standard input; why that failed, or "". Cancelled, it kills its processes."""
    path = shutil.which(command[0], path=absolute_search_path())
    if path is None:
        return "no such program"
    try:
        process = await asyncio.create_subprocess_exec(
            *(path, *command[1:]),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            cwd=Path.home(),
            env={name: value for name in ENVIRONMENT if (value := os.environ.get(name))},
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or "it cannot be run"
    try:
        await process.communicate(body)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return f"it ended with status {process.returncode}" if process.returncode else ""


async def post(url: str, body: bytes) -> str:
    """Send the body to an address; why that failed, or "". A redirect is not followed, and no answer is read."""
    import aiohttp  # noqa: PLC0415  # costs 100 ms, on first use

    headers = {"content-type": "application/json", "user-agent": "callboard"}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return "" if response.status // 100 == 2 else f"it answered with status {response.status}"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"it cannot be reached ({type(error).__name__})"
