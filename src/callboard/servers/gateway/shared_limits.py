"""Share limits among all gateways that have the same PostgreSQL database: rates of keys, and open circuit breakers.

A request with a rate takes one statement. Breakers take none: each gateway compares its own with the table twice a
second. Times are the database's, because the clocks of machines differ. The tables are not in the write-ahead log, so no
statement waits for a disk; a crash of the database empties them.

Laws: if the database does not answer, requests pass within this gateway's part of the rate, and its own breakers hold.
A backend on the same machine has its own breaker on each machine.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from callboard.servers.gateway.circuit_breaker import MAX_OPEN_SECONDS, SharedCircuitBreaker
from callboard.servers.hosts import is_loopback

if TYPE_CHECKING:
    from callboard.servers.gateway.auth import TokenBucket
    from callboard.servers.gateway.backend import Backend
    from callboard.servers.gateway.response_store import ResponseStore

log = logging.getLogger("callboard.gateway")

_T = TypeVar("_T")

SHARED_TABLES: Final = (
    """
    CREATE UNLOGGED TABLE IF NOT EXISTS callboard_rates (
        name TEXT PRIMARY KEY, full_at DOUBLE PRECISION NOT NULL, wait DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE UNLOGGED TABLE IF NOT EXISTS callboard_pauses (name TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)
    """,
)
"""Rates: when the bucket of a key is full again, and what its last request waits. Pauses: open breakers by `_Pause`,
and the gateways that run.
"""
_NOW: Final = "CAST(extract(epoch FROM statement_timestamp()) AS double precision)"
_WAIT: Final = f"rate.full_at + :step - :window - {_NOW}"
_TAKE: Final = text(f"""
    INSERT INTO callboard_rates AS rate (name, full_at, wait) VALUES (:name, {_NOW} + :step, 0)
    ON CONFLICT (name) DO UPDATE SET
        wait = greatest({_WAIT}, 0),
        full_at = CASE WHEN {_WAIT} <= 0 THEN greatest(rate.full_at, {_NOW}) + :step ELSE rate.full_at END
    RETURNING wait
""")  # noqa: S608  # constants
"""Takes a token, or says the seconds until there is one."""
_PAUSE: Final = text(f"""
    INSERT INTO callboard_pauses (name, until) VALUES (:name, {_NOW} + :seconds)
    ON CONFLICT (name) DO UPDATE SET until = excluded.until
""")  # noqa: S608  # as above
_END_PAUSE: Final = text("DELETE FROM callboard_pauses WHERE name = :name")
_DELETE_OLD: Final = text(f"DELETE FROM callboard_pauses WHERE until < {_NOW} - 60")  # noqa: S608  # as above
_PAUSES: Final = text(
    f"SELECT name, until - {_NOW} AS seconds FROM callboard_pauses WHERE until > {_NOW} LIMIT 10000"  # noqa: S608
)

_ANSWER_SECONDS: Final = 2.0
"""Seconds that a request waits for the database, before this gateway decides alone."""
_POLL_SECONDS: Final = 0.5
_PRESENT_SECONDS: Final = 5.0
"""Seconds without a sign of life after which a gateway has no part of the rate."""
_TOLERANCE: Final = 1.0
"""Seconds by which two ends of the same pause may differ."""
_PRESENCE: Final = "gateway "
_MAX_DISORDER: Final = 0.05
"""Seconds by which statements that wait for each other may run in another order than that of their times."""


class _Pause(msgspec.Struct, frozen=True, array_like=True):
    """The name of an open breaker: its backend, its model ("" for all), and its client (None for all)."""

    backend: str
    model: str
    owner: str | None


class SharedLimits:
    """The limits that this gateway shares through its store."""

    def __init__(self, store: ResponseStore, backends: Sequence[Backend]) -> None:
        self._store = store
        self._backends = {_identify(each): each for each in backends}
        self._threads = ThreadPoolExecutor(2, "callboard-limits")
        self._presence = _PRESENCE + secrets.token_hex(8)
        self._gateways = 1
        self._is_reachable = True
        self._refused_until: dict[str, float] = {}
        """When the next request of a key may pass. Until then no statement is needed to refuse it."""
        self._known: dict[str, float] = {}
        """The ends of the pauses that this gateway has in common with the table."""

    async def take(self, name: str, bucket: TokenBucket) -> float:
        """Return 0 if a request of the key may pass, else the seconds until one may.

        Args:
            name: The name of the key.
            bucket: The rate. This gateway's part of it applies if the database does not answer.
        """
        wait = self._refused_until.get(name, 0.0) - monotonic()
        if wait > 0:
            return wait
        if self._is_reachable:
            step = 60 / bucket.rate
            values = {"name": name, "step": step, "window": max(bucket.rate, 1.0) * step + min(step / 2, _MAX_DISORDER)}
            shared: float | None = await self._ask(lambda connection: connection.scalar(_TAKE, values))
            if shared is not None:
                self._refused_until[name] = monotonic() + shared
                return shared
        return bucket.take(self._gateways)

    async def run(self) -> None:
        """Update forever."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await self.update()

    async def update(self) -> None:
        """Write the pauses that began or ended in this gateway, and apply those of the others."""
        now = monotonic()
        own = {name: now + seconds for name, seconds in self._open_pauses(now)}
        begun = {name: until - now for name, until in own.items() if until > self._known.get(name, 0) + _TOLERANCE}
        ended = [name for name, until in self._known.items() if until > now + _TOLERANCE and name not in own]
        rows = await self._ask(partial(_exchange, {self._presence: _PRESENT_SECONDS, **begun}, ended))
        if rows is None:
            return
        if not self._is_reachable:
            self._is_reachable = True
            log.warning("the database answers again: limits are shared")
        self._gateways = max(1, len([name for name in rows if name.startswith(_PRESENCE)]))
        now, known = monotonic(), {}
        for name, seconds in rows.items():
            until = now + min(seconds, MAX_OPEN_SECONDS)
            if (target := self._find(name)) is not None:
                known[name] = until
                if until > max(own.get(name, 0), self._known.get(name, 0)) + _TOLERANCE:
                    target[0].pause(now, target[1], until - now)
        for name, until in self._known.items():
            if name in own and name not in rows and until > now + _TOLERANCE and (target := self._find(name)):
                target[0].end_pause(target[1])
        self._known = known

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    def _open_pauses(self, now: float) -> Iterator[tuple[str, float]]:
        for name, backend in self._backends.items():
            for model, breaker in backend.breakers():
                for owner, seconds in breaker.pauses(now).items():
                    yield msgspec.json.encode(_Pause(name, model, owner)).decode(), seconds

    def _find(self, name: str) -> tuple[SharedCircuitBreaker, str | None] | None:
        try:
            pause = msgspec.json.decode(name, type=_Pause)
        except msgspec.DecodeError:
            return None
        if (backend := self._backends.get(pause.backend)) is None:
            return None
        return backend.model_breaker(pause.model) if pause.model else backend.breaker, pause.owner

    async def _ask(self, work: Callable[[Connection], _T]) -> _T | None:
        """Return the result, or None if the database does not answer."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._store.run(work, self._threads)
        except (SQLAlchemyError, OSError) as error:  # includes TimeoutError, which has no message
            if self._is_reachable:
                self._is_reachable = False
                why = self._store.describe(error) or f"no answer in {_ANSWER_SECONDS:g} s"
                message = "limits are not shared until the database answers; this gateway allows 1/%d of each rate: %s"
                log.warning(message, self._gateways, why)
            return None


def _identify(backend: Backend) -> str:
    """Return the name of a backend for all gateways. A backend of this machine is not that of another."""
    settings = backend.settings
    is_near = settings.local or is_loopback(urlsplit(settings.url).hostname or "")
    return " ".join([backend.name, settings.display_url, *([socket.gethostname()] if is_near else [])])


def _exchange(begun: Mapping[str, float], ended: Sequence[str], connection: Connection) -> dict[str, float]:
    """Write pauses, each with a statement of its own, so that gateways never lock each other out. Return all."""
    for name, seconds in begun.items():
        connection.execute(_PAUSE, {"name": name, "seconds": seconds})
    for name in ended:
        connection.execute(_END_PAUSE, {"name": name})
    connection.execute(_DELETE_OLD)
    return {row.name: row.seconds for row in connection.execute(_PAUSES)}
