"""A backend while the gateway runs.

Owns its connections, its breaker, the list of its models, and what was learned of them. Knows no front.
Law: names that clients make up cost no lasting memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from callboard.core import Event, Request
from callboard.errors import CallboardError
from callboard.modes import Plan, plan
from callboard.profiles import Resolution, providers, resolve
from callboard.providers import RemoteModel, Transport, access_model
from callboard.providers.remote import NO_HEADERS, Heard, Overheard
from callboard.servers.gateway.breaker import Breaker
from callboard.servers.gateway.settings import BackendSettings
from callboard.wires import wire_named

log = logging.getLogger("callboard.gateway")

FRESH = 60.0
"""Seconds for which a list of models is believed."""
_LISTING = 10.0
"""Seconds that it may take; a client waits for it."""
_MOST_MODELS = 256
_MOST_LISTED = 10_000
_MAX_LIST = 8 * 1024 * 1024


class Replies(Protocol):
    """A model that gives together what arrived together."""

    plan: Plan
    resolution: Resolution

    def batches(
        self,
        request: Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        heard: Heard | None = None,
        overheard: Overheard | None = None,
    ) -> AsyncGenerator[list[Event]]: ...


class _Listed(msgspec.Struct):
    id: str = ""
    name: str = ""


class _List(msgspec.Struct):
    data: list[_Listed] = []
    models: list[_Listed] = []


_read_list = msgspec.json.Decoder(_List).decode


class Backend:
    """`transport` is shared; `breaker` is told by whoever asks."""

    def __init__(self, settings: BackendSettings, transport: Transport, breaker: Breaker) -> None:
        self.settings = settings
        self.name = settings.name or settings.local or urlsplit(settings.url).netloc
        self.breaker = breaker
        self._wire = wire_named(settings.wire)
        self._transport = transport
        self._models: dict[str, Replies] = {}
        self._learned: dict[str, str] = {}
        """The modes of models that turned out not to take tools."""
        self.listed: tuple[str, ...] = (settings.local,) if settings.local else ()
        self._listed_at: float | None = None
        self._plain: dict[str, str] = {name.lower(): name for name in self.listed}

    def headers(self, key: str) -> Mapping[str, str]:
        """What carries the key: the backend's own, else the client's."""
        return NO_HEADERS if self.settings.local else self._wire.headers(self.settings.key or key)

    def model(self, name: str) -> Replies:
        """The model of that name. Raises CallerError for one that cannot be."""
        found = self._models.pop(name, None)
        if found is None:
            found = self._access(name)
            while len(self._models) >= _MOST_MODELS:
                del self._models[next(iter(self._models))]
        self._models[name] = found
        return found

    def learn(self, name: str, mode: str) -> None:
        """From now on the model is asked in this mode."""
        log.warning(
            "%s: %s takes no tools; it is asked in the mode %s (--mode %s says so)", self.name, name, mode, mode
        )
        if len(self._learned) < _MOST_MODELS:
            self._learned[name] = mode
        self._models.pop(name, None)

    def corrected(self, name: str) -> str:
        """The name as the backend spells it, where only the case differs."""
        return name if name in self.listed else self._plain.get(name.lower(), name)

    def stale(self, now: float) -> bool:
        """Whether its models should be asked for."""
        return not self.settings.local and (self._listed_at is None or now - self._listed_at > FRESH)

    async def refresh(self, key: str, now: float) -> None:
        """Asks for its models; where it does not tell, those known so far stay."""
        self._listed_at = now
        path = "/v1/models" if self.settings.wire == "messages" else "/models"
        headers = {**self.settings.headers, **self.headers(key)}
        try:
            async with (
                asyncio.timeout(_LISTING),
                self._transport.get(self.settings.url.rstrip("/") + path, headers=headers) as answer,
            ):
                if answer.status != 200:
                    log.info("%s: its models cannot be listed: status %d", self.name, answer.status)
                    return
                found = _read_list(await answer.read(_MAX_LIST))
        except (CallboardError, TimeoutError, msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            log.info("%s: its models cannot be listed: %s", self.name, error)
            return
        names = [each.id or each.name.removeprefix("models/") for each in (*found.data, *found.models)]
        self.listed = tuple(dict.fromkeys([name for name in names if name]))[:_MOST_LISTED]
        self._plain = {name.lower(): name for name in self.listed}

    def _access(self, name: str) -> Replies:
        settings = self.settings
        facts = settings.facts
        mode = settings.mode or self._learned.get(name, "")
        if settings.local:
            local: Any = access_model(f"local:{settings.local}", mode=mode, profile=facts, transport=self._transport)
            return local  # type: ignore[no-any-return]
        facts["wire"] = settings.wire
        resolution = resolve(name, facts)
        believed: dict[str, Any] = {}
        if resolution.sources["uses_tools"] == "default":
            # Of a model that nothing is known of the backend is believed to take tools until it says no.
            believed["uses_tools"] = True
        if not resolution.profile.watch and "watch" not in facts and urlsplit(settings.url).hostname not in _makers():
            # Clients ask for names that they know; behind another's address any model may answer to them.
            believed["watch"] = "auto"
        if believed:
            resolution = resolve(name, {**facts, **believed})
        resolution = msgspec.structs.replace(resolution, model=name)
        return RemoteModel(
            resolution,
            plan(resolution, mode),
            self._transport,
            base_url=settings.url,
            headers=settings.headers,
            keeps=False,
            forwards=True,
        )


@cache
def _makers() -> frozenset[str | None]:
    """The hosts where a model is what its name says."""
    urls = [urlsplit(resolve(f"{each}:model").profile.base_url) for each in providers()]
    return frozenset([url.hostname for url in urls if url.scheme == "https"])
