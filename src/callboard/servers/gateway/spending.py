"""Daily budgets for the costs of requests, by key and in total.

The budget is checked before a backend is asked, and the cost of a reply is added when it has ended. So requests that
are open when a budget is used up are finished, and exceed it by their own cost. No money is reserved for them: clients
allow many times the tokens that a reply needs (Claude Code allows 32,000), or do not name a limit. A reservation would
refuse most requests while little is spent. The sums are in the gateway's store, which workers share and which
survives a restart. Without a store they are in memory.

If the tokens of a reply are unknown, because the client left early or the backend does not count, an estimate is added.
Otherwise clients could evade a budget.

Laws: only names that the operator chose are stored; if the store does not answer, no backend is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from callboard.core import Event, ReplyEnded, ReplyFailed, Usage
from callboard.core.ports import Clock
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.profiles import describe_day_spent, seconds_to_next_day
from callboard.profiles.prices import is_priced
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from callboard.profiles import Pricing
    from callboard.servers.gateway.backend import Backend
    from callboard.servers.gateway.response_store import ResponseStore

log = logging.getLogger("callboard.gateway")

ALL: Final = ""
"""Name of the total over all keys. No key has this name."""
EACH: Final = "*"
"""Name in the settings for every key without its own entry."""
_BYTES_PER_TOKEN: Final = 4
_RETRY_SECONDS: Final = 5.0


class Spending:
    """The budgets of a gateway, and what has been spent.

    Args:
        settings: The settings of the gateway.
        store: The store of the sums. None keeps them in memory.
        clock: The time in UTC.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        store: ResponseStore | None,
        *,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._total = settings.budget_per_day
        self._keys = settings.key_budgets
        self._names = frozenset(settings.keys)
        self._store = store
        self._clock = clock
        self._sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        """Costs by day and name that are not in the store, or not yet."""
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def has_budget(self, owner: str) -> bool:
        return bool(self._limits(owner))

    async def check(self, owner: str) -> None:
        """Raises an HttpError if a budget of the key is used up. It names the budget and when the next day starts."""
        limits = self._limits(owner)
        if not limits:
            return
        now = self._clock()
        day = now.date().isoformat()
        stored = {} if self._store is None else await self._store.read_spending(day, list(limits))
        for name, limit in limits.items():
            spent = stored.get(name, 0.0) + self._sums.get((day, name), 0.0)
            if spent >= limit:
                minutes = max(1, -(-int(seconds_to_next_day(now)) // 60))
                reason = describe_day_spent("all keys" if name == ALL else f"the key {name}", spent, limit)
                message = f"{reason}, in {minutes // 60} h {minutes % 60} min"
                raise HttpError("insufficient_quota", message, headers={"retry-after": str(minutes * 60)})

    def select_priced(self, candidates: Sequence[tuple[Backend, str]], owner: str) -> list[tuple[Backend, str]]:
        """Return the backends with a known price, if the key has a budget. Raises an HttpError if there is none."""
        if not self.has_budget(owner):
            return [*candidates]
        now = self._clock()
        priced = [each for each in candidates if is_priced(_find_pricing(*each, owner), now)]
        if not priced:
            message = (
                f"the price of {candidates[0][1]!r} is not known, and there is a budget; the operator of this gateway "
                "can add it to [prices]"
            )
            raise HttpError("invalid_request", message, path="model")
        return priced

    def charge(self, owner: str, dollars: float) -> None:
        """Add the cost of a reply. It counts here immediately, and is in the store a moment later."""
        day = self._clock().date().isoformat()
        for name in self._limits(owner) if dollars else ():
            self._sums[day, name] += dollars
        if self._store is None:
            for key in [each for each in self._sums if each[0] != day]:
                del self._sums[key]
        elif self._sums and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.get_running_loop().create_task(self._flush(self._store))

    async def aclose(self) -> None:
        """Write the remaining costs to the store, if it answers."""
        self._closing.set()
        if self._flushing is not None:
            await self._flushing  # never cancelled, because its costs might then be written twice
        if self._store is not None and self._sums:
            log.error("the store does not have the costs of the last requests: %s", dict(self._sums))

    async def _flush(self, store: ResponseStore) -> None:
        while self._sums:
            is_last = self._closing.is_set()
            try:
                await self._write(store)
            except HttpError:  # the store has logged the reason
                if is_last:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _RETRY_SECONDS)

    async def _write(self, store: ResponseStore) -> None:
        # Costs added meanwhile stay for the next write. Until they are subtracted below, the written costs may count
        # twice, which refuses a request too many rather than one too few.
        written = dict(self._sums)
        await store.add_spending(written)
        for key, dollars in written.items():
            remaining = self._sums[key] - dollars
            if remaining > 1e-12:
                self._sums[key] = remaining
            else:
                del self._sums[key]

    def _limits(self, owner: str) -> dict[str, float]:
        """Return the budgets of a key, by the names of their sums."""
        limits = {ALL: self._total} if self._total else {}
        if owner in self._names:
            own = self._keys.get(owner, self._keys.get(EACH))
            if own is not None:
                limits[owner] = own
        return limits


class ReplyCosts:
    """The costs of all replies to one request.

    Args:
        owner: The owner of the request.
        spending: The budgets to charge. None if there are none.
        size: The bytes of the request.
    """

    def __init__(self, owner: str = "", spending: Spending | None = None, size: int = 0) -> None:
        self._owner = owner
        self._spending = spending
        self._size = size
        self._spent = 0.0
        self._is_priced: bool | None = None
        # State of the reply that is arriving.
        self._is_open = False
        self._pricing: Pricing | None = None
        self._pieces = 0

    @property
    def total(self) -> float | None:
        """The cost in US dollars, or None if the cost of any reply is not known."""
        return self._spent if self._is_priced else None

    async def check(self) -> None:
        """Raises an HttpError if another reply would exceed a budget."""
        if self._spending is not None:
            await self._spending.check(self._owner)

    def begin_reply(self, pricing: Pricing | None) -> None:
        self._is_open, self._pricing, self._pieces = True, pricing, 0

    def feed(self, events: Sequence[Event]) -> None:
        """Count events, and add the reply's cost when it ends."""
        self._pieces += len(events)
        last = events[-1]
        if isinstance(last, ReplyEnded | ReplyFailed) and self._is_open:
            self._is_open = False
            usage = next((each for each in reversed(events) if isinstance(each, Usage)), None)
            # A reply that failed before any output costs nothing.
            if usage is not None or self._pieces > 1 or isinstance(last, ReplyEnded):
                self._add(usage)

    def end_reply(self) -> None:
        """Add the cost of a reply that nobody waits for any more, unless it has ended."""
        if self._is_open:
            self._is_open = False
            self._add(None)

    def _add(self, usage: Usage | None) -> None:
        pricing, now = self._pricing, datetime.now(UTC)
        cost = None if pricing is None or usage is None else pricing.cost(usage, now)
        self._is_priced = self._is_priced is not False and cost is not None
        self._spent += cost or 0.0
        if self._spending is not None:
            if cost is None and pricing is not None:
                cost = pricing.cost(Usage(self._size // _BYTES_PER_TOKEN, self._pieces), now)
            self._spending.charge(self._owner, cost or 0.0)


def check_budgets(settings: GatewaySettings) -> None:
    """Check that the budgets of a gateway can be enforced. Raises CallerError."""
    for name in settings.key_budgets:
        if name != EACH and name not in settings.keys:
            hint = f"the keys are {', '.join(settings.keys)}" if settings.keys else "add keys with names to the gateway"
            raise CallerError(f"no key {name!r}", path="key_budgets", hint=hint)
    if settings.key_budgets and not settings.keys:
        raise CallerError("there are no keys", path="key_budgets", hint="budget_per_day limits all requests together")
    if settings.has_budgets and (names := {ALL, EACH} & settings.keys.keys()):
        what = f"a key cannot be called {names.pop()!r} if there are budgets"
        raise CallerError(what, path="keys", hint="`*` stands for keys without their own budget, and '' for all keys")
    if settings.has_budgets and not settings.prices and any(each.url for each in settings.backends):
        require_extra("prices")


def _find_pricing(backend: Backend, name: str, owner: str) -> Pricing | None:
    try:
        return backend.model(name, owner).plan.prices
    except CallerError:  # reported when the backend is asked
        return None
