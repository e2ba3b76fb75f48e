"""A reply that runs, and can be cancelled.

Owns the moment at which a reply may be cancelled: while its backend is waited for. Knows nothing of what is said.
Law: cancelled or not, a reply ends with one event, and its connection upstream is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any

from callboard.core import Event, ReplyFailed
from callboard.servers.gateway.exchange import Batches, Exchange
from callboard.servers.gateway.http_errors import HttpError


class CancellableReply:
    """Is among `replies` by its identifier while it runs; `through` is to be around the batches of its exchange.

    `cancelled` gives the response of the reply when it was cancelled; `around` is what was around the batches.
    """

    def __init__(
        self,
        replies: MutableMapping[str, CancellableReply],
        exchange: Exchange,
        owner: str,
        cancelled: Callable[[], Awaitable[Mapping[str, Any]]],
    ) -> None:
        self._replies = replies
        self._exchange = exchange
        self._owner = owner
        self._cancelled = cancelled
        self._around = exchange.around
        self._task: asyncio.Task[Any] | None = None
        """Who waits for the backend; None while nobody does."""
        self._over = False

    async def cancel(self, owner: str) -> Mapping[str, Any] | None:
        """Ends the reply and gives its response; None for another owner's, or the second time. Raises an HttpError for one that has ended."""
        if owner != self._owner or self._over:
            return None
        if self._exchange.record.last is not None:
            raise HttpError("invalid_request", "Cannot cancel a completed response.")
        self._over = True
        if self._task is not None:
            self._task.cancel()
        return await self._cancelled()

    async def through(self, batches: Batches) -> Batches:
        """The batches, until the reply is cancelled."""
        exchange = self._exchange
        task = asyncio.current_task()
        self._replies[exchange.identifier] = self
        try:
            async with aclosing(batches if self._around is None else self._around(batches)) as inner:
                self._task = task
                async for events in inner:
                    self._task = None
                    yield events
                    if self._over:
                        break
                    self._task = task
        except asyncio.CancelledError:
            if not self._over or self._task is None or task is None:
                raise
            task.uncancel()
        finally:
            self._task = None
            del self._replies[exchange.identifier]
        if self._over and exchange.record.last is None:
            failed: list[Event] = [ReplyFailed("caller", "cancelled", "the reply was cancelled")]
            exchange.record.set_end(failed)
            yield failed
