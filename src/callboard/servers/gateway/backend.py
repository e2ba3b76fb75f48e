"""A backend at run time: its models, its circuit breaker, and the facts learned from its refusals.

Law: invented names from clients never take up lasting memory.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from callboard.core import Event, ReplyEnded, Request
from callboard.errors import CallboardError
from callboard.modes import Plan, get_plan, make_plan
from callboard.profiles import ModeName, Prices, Resolution, facts_for, prices_for, providers, resolve
from callboard.providers import HttpModel, Transport, open_model
from callboard.providers.count_tokens import COUNT_SECONDS, TokenCount, TokenizerError, count_tokens
from callboard.providers.http_exchange import ExchangeObserver
from callboard.providers.http_model import NO_HEADERS
from callboard.providers.registry import model_class
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.servers.gateway.redaction import Redactor
from callboard.servers.gateway.remembered_reasoning import ReasoningMemory
from callboard.servers.gateway.settings import BackendSettings
from callboard.wires import get_wire

log = logging.getLogger("callboard.gateway")

LIST_SECONDS = 60.0
"""Seconds that a list of models stays valid."""
_LIST_TIMEOUT = 10.0
"""Timeout of a request for the list, in seconds. A client waits for it."""
_MAX_MODELS = 256
_MAX_LISTED = 10_000
_MAX_LISTS = 64
_MAX_SECONDS = 2**33
_MAX_TOKENS = 2**32
_MAX_NAME = 40
_TOKENIZER_PAUSE = 60.0
"""Seconds to estimate tokens after a tokenizer gave no count."""
_BETA = "anthropic-beta"
WITHOUT_TOOLS = "validated"
"""The mode that uses none of the wire's tool fields."""
_MAX_LIST_BYTES = 8 * 1024 * 1024

LEARNED_SECONDS = 600.0
"""Seconds to keep learned facts. The backend may restart with other flags."""
_MAX_LEARNED = 16
_MAX_LEARNERS = 256
_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


def format_flags(facts: Mapping[str, Any]) -> str:
    """Return the flags of `callboard serve` that set these facts. `mode` has its own flag."""
    texts = {
        fact: value if isinstance(value, str) else msgspec.json.encode(value).decode() for fact, value in facts.items()
    }
    return " ".join(
        [
            f"--mode {value}" if fact == "mode" else f"--profile {shlex.quote(f'{fact}={value}')}"
            for fact, value in texts.items()
        ]
    )


class BatchModel(Protocol):
    """A model of the gateway: an HttpModel, or a local one."""

    plan: Plan
    resolution: Resolution

    def batches(
        self,
        request: Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        observer: ExchangeObserver | None = None,
    ) -> AsyncGenerator[list[Event]]: ...


class _Entry(msgspec.Struct):
    id: str = ""
    name: str = ""
    created: Any = None
    """Seconds since 1970, in OpenAI's format."""
    created_at: Any = None
    """Date and time, in Anthropic's format."""
    max_model_len: Any = 0
    context_length: Any = 0
    context_window: Any = 0
    max_context_length: Any = 0
    meta: Any = None
    """llama.cpp's own facts."""
    owned_by: Any = ""

    @property
    def context(self) -> int:
        """Tokens of the context window, or 0 if the backend does not report them."""
        served = self.meta.get("n_ctx") if isinstance(self.meta, dict) else 0
        fields = (self.max_model_len, self.context_length, self.context_window, self.max_context_length, served)
        return next((each for each in fields if type(each) is int and 0 < each < _MAX_TOKENS), 0)

    @property
    def seconds(self) -> int:
        """Creation time in seconds since 1970, or 0 if the backend does not report it."""
        if type(self.created) is int and 0 <= self.created < _MAX_SECONDS:
            return self.created
        try:
            return int(datetime.fromisoformat(self.created_at).timestamp())
        except (TypeError, ValueError, OverflowError):
            return 0


class _Answer(msgspec.Struct):
    data: list[_Entry] = []
    models: list[_Entry] = []


_read_list = msgspec.json.Decoder(_Answer).decode


class ListedModel(NamedTuple):
    """Facts about a model; 0 if the backend does not report one."""

    created: int = 0
    """Seconds since 1970."""
    context: int = 0
    """Tokens of the context window."""
    server: str = ""
    """The server program, as far as `owned_by` names it."""


class _Names(msgspec.Struct, frozen=True):
    """The names of a list, the names by their lower case, and facts about the models."""

    listed: tuple[str, ...] = ()
    by_lower_case: Mapping[str, str] = {}
    models: Mapping[str, ListedModel] = {}

    @classmethod
    def of(cls, names: Mapping[str, ListedModel]) -> _Names:
        listed = tuple([name for name in names if name])[:_MAX_LISTED]
        return cls(listed, {name.lower(): name for name in listed}, {name: names[name] for name in listed})


class _List(msgspec.Struct):
    """The models that a backend listed, and the time of the request; None if it was never asked."""

    names: _Names = _Names()
    asked_at: float | None = None


class Backend:
    """One backend. Its `transport` is shared. Callers ask `seconds_to_wait`, and record the outcome of each request.

    If clients' own keys are forwarded, each owner has a separate list of models: a key may give access to models that
    other clients must not see.
    """

    def __init__(
        self,
        settings: BackendSettings,
        transport: Transport,
        breaker: SharedCircuitBreaker,
        redactor: Redactor | None = None,
        profiles: Mapping[str, Mapping[str, Any]] = _NO_FACTS,
        *,
        prices: Mapping[str, Prices] = _NO_FACTS,
    ) -> None:
        self.settings = settings
        self._profiles = profiles
        self._prices = prices
        self.redactor = redactor or Redactor()
        self.name = settings.label
        self.breaker = breaker
        self._model_breakers: dict[str, SharedCircuitBreaker] = {}
        """Breakers of models whose replies broke off. The backend may still serve its other models."""
        self._wire = get_wire(settings.wire)
        self._transport = transport
        self._models: dict[tuple[str, str, bytes], BatchModel] = {}
        """Models by name, mode and learned facts."""
        self._learned = LearnedFacts()
        self.reasoning_memory = ReasoningMemory()
        self.forwards_client_key = settings.forward_client_key is not False and not (
            settings.local or settings.has_own_key
        )
        self._lists: dict[str, _List] = {"": _List(_Names.of({settings.local: ListedModel()}))}
        """Lists by owner. "" is the list that is requested without a client's key."""
        self._complaint = ""
        self._no_count_until = 0.0
        """Time of a monotonic clock until which the tokenizer is not asked."""

    def headers(self, key: str, beta: str = "") -> Mapping[str, str]:
        """Return the headers with the backend's own key, or with the client's key if it is forwarded.

        A backend that speaks Messages also gets the client's betas, after the betas of its settings.
        """
        if self.settings.local:
            return NO_HEADERS
        headers = self._wire.headers(self.settings.key or (key if self.forwards_client_key else ""))
        if not beta or self.settings.wire != "messages":
            return headers
        name = next((each for each in self.settings.headers if each.lower() == _BETA), _BETA)
        return {**headers, name: ",".join([*filter(None, [self.settings.headers.get(name)]), beta])}

    def model(self, name: str, owner: str = "", tried_facts: Mapping[str, Any] = _NO_FACTS) -> BatchModel:
        """Return the model of that name with the facts known for this owner.

        Args:
            name: The backend's name for the model.
            owner: The owner of the request.
            tried_facts: Facts to try in addition to the learned ones.

        Raises:
            CallerError: No model can have this name.
        """
        facts = {**self._learned.facts(owner, name), **tried_facts}
        key = (name, facts.pop("mode", self.settings.mode), msgspec.json.encode(facts, order="sorted"))
        model = self._models.pop(key, None)
        if model is None:
            model = self._make_model(*key[:2])
            if facts and isinstance(model, HttpModel):
                model = model.with_facts(facts)
            while len(self._models) >= _MAX_MODELS:
                del self._models[next(iter(self._models))]
        self._models[key] = model
        return model

    def variant(self, mode: str = "", dialect: str = "") -> Backend:
        """Return the same backend in another mode or dialect ("" keeps its own), with a separate breaker."""
        settings = msgspec.structs.replace(
            self.settings, mode=mode or self.settings.mode, dialect=dialect or self.settings.dialect
        )
        other = Backend(
            settings, self._transport, SharedCircuitBreaker(), self.redactor, self._profiles, prices=self._prices
        )
        other.reasoning_memory, other.forwards_client_key = self.reasoning_memory, self.forwards_client_key
        return other

    def seconds_to_wait(self, name: str, now: float, owner: str) -> float:
        """Return the seconds until this client may ask the model. On 0 the caller asks, then records the outcome."""
        model_breaker = self._model_breakers.get(name)
        wait = 0.0 if model_breaker is None else model_breaker.seconds_to_wait(now, owner)
        if not wait and (wait := self.breaker.seconds_to_wait(now, owner)) and model_breaker is not None:
            model_breaker.release(owner)
        return wait

    def record_success(self, name: str) -> None:
        self.breaker.record_success()
        self._model_breakers.pop(name, None)

    def model_breaker(self, name: str) -> SharedCircuitBreaker:
        """Return the breaker of one model, for replies that began and broke off."""
        breaker = self._model_breakers.pop(name, None) or self.breaker.make_another()
        while len(self._model_breakers) >= _MAX_MODELS:
            del self._model_breakers[next(iter(self._model_breakers))]
        self._model_breakers[name] = breaker
        return breaker

    def breakers(self) -> list[tuple[str, SharedCircuitBreaker]]:
        """Return the breakers by model. "" stands for all models."""
        return [("", self.breaker), *self._model_breakers.items()]

    def release(self, name: str, owner: str) -> None:
        self.breaker.release(owner)
        if name in self._model_breakers:
            self._model_breakers[name].release(owner)

    def learn_from(self, end: Event, name: str, owner: str, facts: Mapping[str, Any]) -> None:
        """If the model replied, keep the facts of its request for a while, for this owner only."""
        if facts and isinstance(end, ReplyEnded):
            flags = format_flags(facts)
            log.warning("%s: %s refused a request and accepted it with other facts: %s", self.name, name, flags)
            self._learned.add(owner, name, facts)

    def learned_facts(self, owner: str) -> dict[str, Mapping[str, Any]]:
        """Return the facts that this owner's requests taught, by model."""
        return self._learned.facts_by_model(owner)

    def model_names(self, owner: str = "") -> tuple[str, ...]:
        """Return the names of the models that this owner may see."""
        return self._names(owner).listed

    def listed_model(self, name: str, owner: str = "") -> ListedModel:
        """Return the facts about a model. A context window of the settings replaces the listed one."""
        listed = self._names(owner).models.get(name) or ListedModel()
        if self.settings.local:
            return ListedModel(context=get_plan(self._make_model(name, "")).context_tokens)
        context = {**facts_for(name, self._profiles), **self.settings.facts}.get("context_tokens")
        return listed._replace(context=context) if context else listed

    def serving_model(self, name: str, owner: str = "") -> ListedModel:
        """Return the facts about the model that serves a name: a server with one model serves every name with it."""
        listed = self.model_names(owner)
        return self.listed_model(listed[0] if len(listed) == 1 else name, owner)

    async def count_tokens(
        self, name: str, model: BatchModel, request: Request, *, owner: str, token: str, beta: str
    ) -> TokenCount | None:
        """Return the tokens of a request as the backend counts them; None if it cannot, or did not a moment ago."""
        settings = self.settings
        if monotonic() < self._no_count_until or not isinstance(model, HttpModel):
            return None
        if settings.wire == "chat" and not self.model_names(owner):  # the list says which server this is
            with suppress(TimeoutError):
                async with asyncio.timeout(COUNT_SECONDS):
                    await self.refresh_models(token, monotonic(), owner)
        server = "local" if settings.local else self.serving_model(name, owner).server
        try:
            return await count_tokens(model, request, server, self.headers(token, beta))
        except TokenizerError as error:
            log.info("%s: tokens are estimated: %s", self.name, self.redactor.text(str(error)))
            if error.is_lasting:
                self._no_count_until = monotonic() + _TOKENIZER_PAUSE
            return None

    def correct_name(self, name: str, owner: str = "") -> str:
        """Return the name as the backend spells it, if it differs only in case."""
        names = self._names(owner)
        return name if name in names.listed else names.by_lower_case.get(name.lower(), name)

    def is_stale(self, now: float, owner: str = "") -> bool:
        """Return whether the list of models should be requested again."""
        model_list = self._lists.get(self._list_owner(owner))
        return not self.settings.local and (
            model_list is None or model_list.asked_at is None or now - model_list.asked_at > LIST_SECONDS
        )

    async def refresh_models(self, key: str, now: float, owner: str = "") -> None:
        """Request the list of models. If that fails, keep the known models.

        Args:
            key: The client's key, which is sent only if keys are forwarded.
            now: Current time in seconds of a monotonic clock.
            owner: The owner of the list, if it is requested with the client's key.
        """
        lister = self._list_owner(owner)
        model_list = self._lists.pop(lister, None) or _List()
        while len(self._lists) >= _MAX_LISTS:  # drop the oldest
            del self._lists[next(each for each in self._lists if each)]
        self._lists[lister] = model_list
        model_list.asked_at = now
        is_messages = self.settings.wire == "messages"
        url = self.settings.url.rstrip("/")
        url = f"{url.removesuffix('/v1')}/v1/models" if is_messages else f"{url}/models"
        headers = {**self.settings.headers, **self.headers(key)}
        try:
            async with (
                asyncio.timeout(_LIST_TIMEOUT),
                self._transport.get(url, headers=headers) as answer,
            ):
                if answer.status != 200:
                    self._log_once(f"status {answer.status}")
                    return
                answer_body = _read_list(await answer.read(_MAX_LIST_BYTES))
        except (CallboardError, TimeoutError, msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            self._log_once(str(error))
            return
        entries = (*answer_body.data, *answer_body.models)
        names = _Names.of(
            {
                each.id or each.name.removeprefix("models/"): ListedModel(
                    each.seconds, each.context, str(each.owned_by)[:_MAX_NAME]
                )
                for each in entries
            }
        )
        # Share equal lists: most keys see the same models.
        model_list.names = next((each.names for each in self._lists.values() if each.names == names), names)

    def _log_once(self, why: str) -> None:
        """Log each reason once: a backend that lists nothing without a key is asked repeatedly."""
        if why != self._complaint:
            self._complaint = why
            log.info("%s: cannot list its models: %s", self.name, why)

    def _list_owner(self, owner: str) -> str:
        return owner if self.forwards_client_key else ""

    def _names(self, owner: str) -> _Names:
        model_list = self._lists.get(self._list_owner(owner))
        return model_list.names if model_list is not None and model_list.names.listed else self._lists[""].names

    def _make_model(self, name: str, mode: str) -> BatchModel:
        settings = self.settings
        known = settings.local or name
        facts = {**facts_for(known, self._profiles), **prices_for(known, self._prices), **settings.facts}
        if settings.local:
            local: Any = open_model(
                f"local:{settings.local}", mode=cast("ModeName", mode), profile=facts, transport=self._transport
            )
            return local  # type: ignore[no-any-return]
        facts["wire"] = settings.wire
        resolution = resolve(name, facts)
        assumed: dict[str, Any] = {}
        if resolution.sources["uses_tools"] == "default":
            # If nothing is known about the model, assume that the backend accepts tools until it refuses them.
            assumed["uses_tools"] = True
        if (
            not resolution.profile.watch
            and "watch" not in facts
            and urlsplit(settings.url).hostname not in _maker_hosts()
        ):
            # Clients ask for familiar names. At an address that is not the maker's, any model may answer.
            assumed["watch"] = "auto"
        if assumed:
            resolution = resolve(name, {**facts, **assumed})
        resolution = msgspec.structs.replace(resolution, model=name)
        plan = make_plan(resolution, mode, base_url=settings.url)
        return model_class(plan)(
            resolution,
            plan,
            self._transport,
            base_url=settings.url,
            headers=settings.headers,
            reuse_sources=False,
            forward_constraint=True,
        )


@cache
def _maker_hosts() -> frozenset[str | None]:
    """Return the hosts at which a model's name can be trusted."""
    urls = [urlsplit(resolve(f"{each}:model").profile.base_url) for each in providers()]
    return frozenset([url.hostname for url in urls if url.scheme == "https"])


class LearnedFacts:
    """Facts of models that refusals taught, kept for a while for one owner.

    The text of a refusal may repeat what the client sent, so one owner's requests never teach facts for another. The
    facts are bounded per owner and in total: names that a client invents push out only its own facts. `clock` returns
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._facts: dict[str, dict[str, tuple[float, Mapping[str, Any]]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._facts.values()))

    def add(self, owner: str, model: str, facts: Mapping[str, Any]) -> None:
        """Keep facts about the model for a while, for requests of this owner."""
        facts = {**self.facts(owner, model), **facts}
        models = self._facts.pop(owner, {})
        models.pop(model, None)
        models[model] = self._clock() + LEARNED_SECONDS, facts
        if len(models) > _MAX_LEARNED:
            del models[next(iter(models))]
        self._facts[owner] = models
        if len(self._facts) > _MAX_LEARNERS:
            del self._facts[next(iter(self._facts))]

    def facts(self, owner: str, model: str) -> Mapping[str, Any]:
        """Return the facts for this owner's requests to the model."""
        until, facts = self._facts.get(owner, {}).get(model, (0.0, {}))
        return facts if self._clock() < until else {}

    def facts_by_model(self, owner: str) -> dict[str, Mapping[str, Any]]:
        return {model: facts for model in self._facts.get(owner, {}) if (facts := self.facts(owner, model))}

    def clear(self) -> None:
        self._facts.clear()
