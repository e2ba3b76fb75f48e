"""The gateway: from a client's body to an exchange.

Owns what is checked before a backend is asked, and the backends. Knows nothing of sockets.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.core import Canister, InvocationCanister, Request, ResultCanister
from callboard.errors import CallerError
from callboard.loop.cache_watch import CacheWatch, Collapse
from callboard.providers import Transport
from callboard.servers.gateway.attribution import without_attribution
from callboard.servers.gateway.auth import Callers
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.circuit_breaker import SharedBreaker
from callboard.servers.gateway.connections import Connections, Room
from callboard.servers.gateway.conversation_state import Turns
from callboard.servers.gateway.dispatch import Record, replies
from callboard.servers.gateway.exchange import Exchange
from callboard.servers.gateway.frontends import Front
from callboard.servers.gateway.hosted_tools import Hosted
from callboard.servers.gateway.http_errors import Refusal
from callboard.servers.gateway.redaction import LogFilter, redactor_of
from callboard.servers.gateway.request_body import read_json, worked
from callboard.servers.gateway.response_store import Store
from callboard.servers.gateway.routing import Routes
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings
from callboard.wires.common.encoded_request import once
from callboard.wires.common.model_name import check_model_name
from callboard.wires.common.pairing import paired
from callboard.wires.common.tool_extra import distinct

log = logging.getLogger("callboard.gateway")

_encode = msgspec.json.encode


class Gateway:
    """What lives as long as the server."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.callers = Callers(settings, monotonic)
        self.connections = Connections(settings.limits.connections)
        self.room = Room(settings.limits.held)
        self._cache_watch = CacheWatch()
        # Clients ask again themselves; only a connection that was dropped before an answer is made anew.
        self._transport = Transport(idle_timeout=settings.idle_timeout, retries=1, statuses=())
        redactor = redactor_of(settings)
        self._log_filter = LogFilter(redactor)
        breaker = partial(SharedBreaker, settings.failures, settings.pause, shared=len(settings.keys) > 1)
        self.backends = [
            Backend(each, self._transport, breaker(), redactor, settings.profiles) for each in _forwarding(settings)
        ]
        self._routes = Routes(settings.backends, random.random)
        self._hosted = Hosted(settings) if settings.ensembles else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._store = (
            Store(settings.store, age=settings.store_age, size=settings.store_size) if settings.store else None
        )
        self.turns = Turns(self.exchange, self._store, settings.limits)

    async def start(self) -> None:
        log.addFilter(self._log_filter)
        if self._store is not None:
            await self._store.start()
        if self._hosted is not None:
            await self._hosted.connect()
        for backend in self.backends:
            self._refresh(backend)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._hosted is not None:
            await self._hosted.disconnect()
        await self._transport.aclose()
        if self._store is not None:
            await self._store.aclose()
        log.removeFilter(self._log_filter)

    async def read(self, data: bytes) -> dict[str, Any]:
        """A body as JSON. Raises a Refusal."""
        return await read_json(data, self.settings.limits)

    async def exchange(
        self,
        front: Front,
        body: Mapping[str, Any],
        *,
        owner: str = "",
        size: int = 0,
        token: str = "",
        seed: bool = False,
        echo: Mapping[str, Any] | None = None,
    ) -> Exchange:
        """What a body asks for; `size` is about its bytes. Raises a Refusal, before any backend is asked."""
        model = body.get("model")
        if not isinstance(model, str) or not model.strip():
            raise Refusal("model_required", "which model?", path="model")
        self.check_name(model)
        request, dropped = await worked(size, partial(self._request, front, body, size))
        candidates = self.candidates(request, owner)
        replying = replies if self._hosted is None else self._hosted.replies
        batches = partial(replying, candidates, request)
        return Exchange(
            front,
            request,
            body,
            batches,
            owner=owner,
            token=token,
            dropped=dropped,
            seed=seed or self.settings.seed_events,
            strict=self.settings.strict,
            echo=echo,
        )

    def collapses(self, record: Record) -> list[Collapse]:
        """The prompt caches of backends that did not hold for these replies, each told once."""
        watch, now = self._cache_watch, monotonic()
        observed = [
            watch.observe(
                without_attribution(each.request),
                each.usage,
                model=each.model,
                now=now,
                lifetime=each.cache_seconds,
                owner=record.owner,
            )
            for each in record.replied
        ]
        return [collapse for collapse in observed if collapse is not None]

    def check_name(self, model: str) -> None:
        """Raises a Refusal for a name that must not reach a backend's URL; the operator's own names may be any."""
        if self._routes.maps(model):
            return
        try:
            check_model_name(model)
        except CallerError as error:
            message = f"{error.message}; {error.hint}; a `map` of the gateway can give it another name"
            raise Refusal("invalid_request", message, path="model") from None

    def _may_be_asked(self, model: str) -> bool:
        try:
            self.check_name(model)
        except Refusal:
            return False
        return True

    def _request(self, front: Front, body: Mapping[str, Any], size: int) -> tuple[Request, tuple[str, ...]]:
        """The request, and what of it is dropped. It may run on a thread."""
        limits = self.settings.limits
        front.check(body, limits)
        if size > limits.content:
            _check_content(body, limits.content)
        try:
            request, dropped = front.read(body)
        except CallerError as error:
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            raise Refusal("invalid_request", message, path=error.path) from None
        if not any(map(_says, request.canisters)):
            path = {"responses": "input", "gemini": "contents"}.get(front.name, "messages")
            raise Refusal("invalid_request", "nothing is said to the model; give a message of the user", path=path)
        canisters, unpaired = paired(request.canisters)
        tools, doubled = distinct(request.tools)
        return replace(request, canisters=canisters, tools=tools), once((*dropped, *unpaired, *doubled))

    def candidates(self, request: Request, owner: str = "") -> list[tuple[Backend, str]]:
        """The backends to ask, with their names of the model. Raises a Refusal where there is none."""
        found = [(self.backends[place], name) for place, name in self._routes.to(request.model)]
        if not found:
            raise Refusal("model_not_found", f"no backend serves {request.model!r}", path="model")
        now = monotonic()
        for backend, _ in found:
            if backend.stale(now):
                self._refresh(backend)
        return [(backend, backend.corrected(name, owner)) for backend, name in found]

    async def models(self, owner: str = "", token: str = "") -> list[str]:
        """The names that this owner may ask for, as far as the backends tell."""
        now = monotonic()
        stale = [each for each in self.backends if each.stale(now, owner) or not each.listed(owner)]
        if stale:
            await asyncio.gather(*[backend.refresh(token, now, owner) for backend in stale])
        listed = [name for backend in self.backends for name in backend.listed(owner)]
        routed = [name for name in listed if self._routes.to(name) and self._may_be_asked(name)]
        return list(dict.fromkeys([*self._routes.names(), *routed]))

    async def knows(self, model: str, owner: str = "", token: str = "") -> bool:
        """Whether this owner may ask for the model, as far as the backends tell: one that lists none may have any."""
        if model in await self.models(owner, token):
            return True
        if not self._may_be_asked(model):
            return False
        found = [(self.backends[place], name) for place, name in self._routes.to(model)]
        return any(
            not (listed := backend.listed(owner)) or backend.corrected(name, owner) in listed for backend, name in found
        )

    def _refresh(self, backend: Backend) -> None:
        """In the background, and so without a client's key: that goes with the client's own requests only."""
        if backend.settings.local:
            return
        task = asyncio.get_running_loop().create_task(backend.refresh("", monotonic()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _says(canister: Canister) -> bool:
    """Whether there is something in it; the result of a call may be empty."""
    return isinstance(canister, InvocationCanister | ResultCanister) or bool(canister.content)


def _forwarding(settings: GatewaySettings) -> list[BackendSettings]:
    """The backends, each with a decision whether it gets clients' own keys.

    The only one does if nothing is said, where these keys are not the gateway's.
    """
    only = len(settings.backends) == 1 and not settings.keys
    return [
        replace(each, forward_client_key=only) if each.forward_client_key is None else each
        for each in settings.backends
    ]


def _check_content(body: Mapping[str, Any], most: int) -> None:
    for path in ("input", "messages", "contents"):
        items = body.get(path)
        for place, item in enumerate(items if isinstance(items, list) else [items]):
            if (size := len(_encode(item))) > most:
                message = f"{size} bytes; at most {most} are taken"
                raise Refusal("input_content_too_large", message, path=f"{path}[{place}]")
