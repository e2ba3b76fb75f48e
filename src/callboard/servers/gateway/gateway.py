"""The gateway makes an exchange of a client's body, and owns the backends.

It opens no server sockets: the doctor and the tests use it without a server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import InvocationCanister, Request, ResultCanister
from callboard.errors import CallerError
from callboard.providers import Transport
from callboard.providers.count_tokens import TokenCount
from callboard.servers.gateway.auth import Authenticator
from callboard.servers.gateway.backend import Backend, ListedModel
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.servers.gateway.dispatch import count_request, stream_reply
from callboard.servers.gateway.exchange import Exchange, ReplyRecord, ReplyRequest
from callboard.servers.gateway.frontends import Frontend
from callboard.servers.gateway.hosted_tools import HostedTools
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.pass_through import ClientView, may_pass
from callboard.servers.gateway.redaction import LogFilter, make_redactor
from callboard.servers.gateway.request_body import ByteBudget, read_json, run_in_thread_if_large
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings
from callboard.servers.gateway.spending import ReplyCosts, Spending
from callboard.wires.common.client_input import check_model_name
from callboard.wires.common.encoded_request import dedupe
from callboard.wires.common.group_turns import reorder_results
from callboard.wires.common.tool_declarations import dedupe_tools

if TYPE_CHECKING:
    from callboard.servers.gateway.response_store import ResponseStore

log = logging.getLogger("callboard.gateway")

_encode = msgspec.json.encode


class Gateway:
    """State that lives as long as the server."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self._started = int(time())
        self.request_budget = ByteBudget(settings.limits.held)
        # Clients retry on their own. The gateway retries only if a connection was dropped before an answer.
        self._transport = Transport(idle_timeout=settings.idle_timeout, retries=1, statuses=())
        redactor = make_redactor(settings)
        self._log_filter = LogFilter(redactor)
        breaker = partial(
            SharedCircuitBreaker, settings.failure_threshold, settings.recovery_seconds, shared=len(settings.keys) > 1
        )
        self.backends = [
            Backend(each, self._transport, breaker(), redactor, settings.profiles, prices=settings.prices)
            for each in _decide_forwarding(settings)
        ]
        self._routes = ModelRouter(settings.backends, random.random)
        self.hosted_tools = HostedTools(settings) if settings.ensembles else None
        self._tasks: set[asyncio.Task[None]] = set()
        self.store = open_store(settings)
        self.spending = Spending(settings, self.store)
        self._shared = None if self.store is None else self.store.share_limits(self.backends)
        self.authenticator = Authenticator(settings, monotonic, self._shared)

    async def start(self) -> None:
        log.addFilter(self._log_filter)
        if self.store is not None:
            await self.store.start()
        if self.hosted_tools is not None:
            await self.hosted_tools.connect()
        for backend in self.backends:
            self._refresh(backend)
        if self._shared is not None:
            await self._shared.update()
            self._tasks.add(asyncio.get_running_loop().create_task(self._shared.run()))

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.hosted_tools is not None:
            await self.hosted_tools.disconnect()
        await self._transport.aclose()
        await self.spending.aclose()
        if self._shared is not None:
            await self._shared.aclose()
        if self.store is not None:
            await self.store.aclose()
        log.removeFilter(self._log_filter)

    async def read(self, data: bytes) -> dict[str, Any]:
        """Return a body as JSON. Raises an HttpError."""
        return await read_json(data, self.settings.limits)

    async def exchange(self, request: ReplyRequest) -> Exchange:
        """Return the exchange of a request, whose body holds the whole conversation.

        Raises:
            HttpError: The request cannot be answered. No backend was asked.
        """
        front, body = request.front, request.body
        model = body.get("model")
        if not isinstance(model, str) or not model.strip():
            raise HttpError("model_required", "name a model", path="model")
        self.check_model_name(model)
        decode = partial(self._decode_request, front, body, request.size)
        decoded, dropped = await run_in_thread_if_large(request.size, decode)
        await self.spending.check(request.owner)
        candidates = self.spending.select_priced(self.candidates(decoded, request.owner), request.owner)
        spending = self.spending if self.spending.has_budget(request.owner) else None
        identifier = front.prefix + secrets.token_hex(16)
        passes = may_pass(request, decoded, candidates, self.settings, has_budget=spending is not None)
        has_usage = not decoded.stream or front.encoder_options(body).get("include_usage", True)
        view = ClientView(identifier, decoded.model, has_usage) if passes else None
        stream = stream_reply if self.hosted_tools is None else self.hosted_tools.stream_reply
        return Exchange(
            front=front,
            request=decoded,
            body=body,
            echo=body if request.echo is None else request.echo,
            identifier=identifier,
            record=ReplyRecord(
                front=front.name,
                owner=request.owner,
                token=request.token,
                beta=request.beta,
                size=request.size,
                dropped=[*dropped],
                view=view,
                costs=ReplyCosts(request.owner, spending, request.size),
            ),
            source=partial(stream, candidates, decoded),
            filters=request.filters,
            on_finished=request.on_finished,
            compat_events=request.compat_events or self.settings.compat_events,
            strict=self.settings.strict,
        )

    async def count_tokens(self, exchange: Exchange) -> TokenCount | None:
        """Return the tokens of an exchange's request as the first of its backends counts them, if it can.

        Raises:
            HttpError: No backend serves the model.
            CallerError: No model can have this name, or the request cannot be sent.
        """
        request, record = exchange.request, exchange.record
        candidates = self.candidates(request, record.owner)
        if self.hosted_tools is not None:
            request, _, _ = self.hosted_tools.complete(candidates, request, record.owner)
        backend, name = candidates[0]
        return await count_request(backend, name, request, record)

    def check_model_name(self, model: str) -> None:
        """Raises an HttpError for a name that must not reach a backend's URL. Names of a `model_map` may be any."""
        if self._routes.has_mapping(model):
            return
        try:
            check_model_name(model)
        except CallerError as error:
            message = f"{error.message}; {error.hint}; the gateway's `model_map` can give the model another name"
            raise HttpError("invalid_request", message, path="model") from None

    def _is_allowed_name(self, model: str) -> bool:
        try:
            self.check_model_name(model)
        except HttpError:
            return False
        return True

    def _decode_request(self, front: Frontend, body: Mapping[str, Any], size: int) -> tuple[Request, tuple[str, ...]]:
        """Return the request, and the names of what is dropped from it. May run on a thread."""
        limits = self.settings.limits
        front.check(body, limits)
        if size > limits.content:
            _check_content(body, limits.content)
        try:
            request, dropped = front.decode_request(body)
        except CallerError as error:
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            raise HttpError("invalid_request", message, path=error.path) from None
        # The result of a call may be empty.
        if not any(isinstance(each, InvocationCanister | ResultCanister) or each.content for each in request.canisters):
            path = {"responses": "input", "gemini": "contents"}.get(front.name, "messages")
            raise HttpError("invalid_request", "the conversation is empty; send a user message", path=path)
        canisters, unpaired = reorder_results(request.canisters)
        tools, doubled = dedupe_tools(request.tools)
        return replace(request, canisters=canisters, tools=tools), dedupe((*dropped, *unpaired, *doubled))

    def candidates(self, request: Request, owner: str = "") -> list[tuple[Backend, str]]:
        """Return the backends to ask, with their names of the model. Raises an HttpError if there is none."""
        candidates = [(self.backends[place], name) for place, name in self._routes.backends_for(request.model)]
        if not candidates:
            raise HttpError("model_not_found", f"no backend serves {request.model!r}", path="model")
        now = monotonic()
        for backend, _ in candidates:
            if backend.is_stale(now):
                self._refresh(backend)
        return [(backend, backend.correct_name(name, owner)) for backend, name in candidates]

    async def models(self, owner: str = "", token: str = "") -> list[str]:
        """Return the names that this owner may ask for, as far as the backends list them."""
        now = monotonic()
        stale = [each for each in self.backends if each.is_stale(now, owner) or not each.model_names(owner)]
        if stale:
            await asyncio.gather(*[backend.refresh_models(token, now, owner) for backend in stale])
        listed = [name for backend in self.backends for name in backend.model_names(owner)]
        routed = [name for name in listed if self._routes.backends_for(name) and self._is_allowed_name(name)]
        return list(dict.fromkeys([*self._routes.mapped_names(), *routed]))

    def listed_model(self, model: str, owner: str = "") -> ListedModel:
        """Return the facts about a model. Its creation time is else when this gateway started.

        Of several context windows the smallest holds, because each backend may get the request.
        """
        listed = [each.listed_model(model, owner) for each in self.backends]
        windows = [each.context for each in listed if each.context]
        return ListedModel(max([each.created for each in listed]) or self._started, min(windows, default=0))

    async def has_model(self, model: str, owner: str = "", token: str = "") -> bool:
        """Return whether this owner may ask for the model. A backend that lists no models may have any."""
        if model in await self.models(owner, token):
            return True
        if not self._is_allowed_name(model):
            return False
        candidates = [(self.backends[place], name) for place, name in self._routes.backends_for(model)]
        return any(
            not (listed := backend.model_names(owner)) or backend.correct_name(name, owner) in listed
            for backend, name in candidates
        )

    def _refresh(self, backend: Backend) -> None:
        """Request the list in the background, without a client's key: keys go only with the client's own requests."""
        if backend.settings.local:
            return
        task = asyncio.get_running_loop().create_task(backend.refresh_models("", monotonic()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def open_store(settings: GatewaySettings) -> ResponseStore | None:
    """Return the store of responses, or None if none is set. Raises CallerError for a bad URL or a missing package."""
    if not settings.store:
        return None
    try:
        from callboard.servers.gateway.response_store import ResponseStore  # noqa: PLC0415  # it imports SQLAlchemy

        return ResponseStore(settings.store, age=settings.store_age, size=settings.store_size)
    except ImportError as error:
        hint = "install it with pip install 'callboard[gateway,store]'"
        raise CallerError(f"a store needs {error.name or error}", path="store", hint=hint) from None


def _decide_forwarding(settings: GatewaySettings) -> list[BackendSettings]:
    """Return the backends with `forward_client_key` decided.

    By default a backend gets the clients' own keys if it is the only one and the gateway has no keys.
    """
    only = len(settings.backends) == 1 and not settings.keys
    return [
        replace(each, forward_client_key=only) if each.forward_client_key is None else each
        for each in settings.backends
    ]


def _check_content(body: Mapping[str, Any], limit: int) -> None:
    for path in ("input", "messages", "contents"):
        items = body.get(path)
        for place, item in enumerate(items if isinstance(items, list) else [items]):
            if (size := len(_encode(item))) > limit:
                message = f"{size} bytes; the limit is {limit}"
                raise HttpError("input_content_too_large", message, path=f"{path}[{place}]")


_Pattern: TypeAlias = "tuple[re.Pattern[str], ...] | None"
"""One expression for each part between slashes. None matches every name."""


class ModelRouter:
    """Chooses the backends that serve a model, and their order. `draw` returns numbers from 0 to 1."""

    def __init__(self, backends: Sequence[BackendSettings], draw: Callable[[], float]) -> None:
        self._rows = [(each, [_compile(pattern) for pattern in each.models]) for each in backends]
        self._draw = draw

    def backends_for(self, model: str) -> list[tuple[int, str]]:
        """Return the indices of the backends that serve the model, with their names of it, in the order to ask."""
        serving = [
            (place, each, each.model_map.get(model, model))
            for place, (each, patterns) in enumerate(self._rows)
            if model in each.model_map or any(_matches(pattern, model) for pattern in patterns)
        ]
        if len(serving) > 1:
            # A weighted draw without replacement: sort by uniform random numbers to the power of 1 / weight.
            ranked = [self._draw() ** (1 / each.weight) if each.weight > 0 else -1 for _, each, _ in serving]
            order = sorted(range(len(serving)), key=ranked.__getitem__, reverse=True)
            serving = [serving[at] for at in order]
        return [(place, name) for place, _, name in serving]

    def has_mapping(self, model: str) -> bool:
        return any(model in each.model_map for each, _ in self._rows)

    def mapped_names(self) -> list[str]:
        return [name for each, _ in self._rows for name in each.model_map]


def _compile(pattern: str) -> _Pattern:
    """Compile a pattern as for paths: `*` and `?` match no slash, but a pattern that is only `*` matches every name.

    Otherwise `gemini-2.5-flash*` would let a client use `gemini-2.5-flash/anything` with the operator's key.
    """
    if not pattern.strip("*"):
        return None if pattern else ()
    return tuple([re.compile(translate(part), re.IGNORECASE) for part in pattern.split("/")])


def _matches(pattern: _Pattern, model: str) -> bool:
    if pattern is None:
        return True
    parts = model.split("/")
    return len(parts) == len(pattern) and all(each.match(part) for each, part in zip(pattern, parts, strict=True))
