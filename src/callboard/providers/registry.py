"""Open a model by its name: at an endpoint, in a program, or in this process, with a gate if the model needs one.

A local model is one more Chat Completions endpoint: a llama.cpp server from xllamacpp (extra `local`) listens on loopback.

A model with a gate has its calls judged before anyone sees them (`callboard.modes.filters.gate`). For one reply, the model
is asked up to three times: for the reply, for its confidence in the call and, if every call was stopped, for an answer
without tools. An endpoint is a `DecidingModel`. A `JudgedModel` wraps models without log-probabilities, such as commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec.structs import replace

from callboard.core import Event, Request, closing
from callboard.errors import CallerError
from callboard.modes import Plan, make_plan
from callboard.modes.filters.gate import CALL_SCORES, GateFilter, create_gate
from callboard.plugins import plugins
from callboard.profiles import ModeName, providers, resolve
from callboard.providers.command import CommandModel
from callboard.providers.http_exchange import ExchangeObserver
from callboard.providers.http_model import NO_HEADERS, HttpModel, RetryMerger
from callboard.providers.transport import Transport
from callboard.text.suggest import find_closest

_Ask: TypeAlias = Callable[[Request], AsyncIterator[list[Event]]]


class DecidingModel(HttpModel):
    """An HttpModel with a gate."""

    def batches(
        self,
        request: Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        observer: ExchangeObserver | None = None,
    ) -> AsyncGenerator[list[Event]]:
        """Yield one reply, as `HttpModel` does. Additional questions go to the same endpoint."""
        ask = partial(super().batches, headers=headers)
        ask_for_reply = partial(ask, observer=observer)
        gives_logprobs = self.wire.name == "chat" and self.resolution.profile.supports_logprobs
        gate = create_gate(request, self.plan.gate, gives_logprobs=gives_logprobs)
        reply = ask_for_reply(request)
        return reply if gate is None else _judge_reply(gate, reply, partial(self._ask_question, ask), ask_for_reply)

    def _ask_question(self, ask: _Ask, question: Request) -> AsyncIterator[list[Event]]:
        if self.plan.mode.declares == "constraint":
            question = replace(question, tools=())  # with tools, the answer would be held to the form of a call
        controls = replace(question.controls, max_tokens=self.wire.min_max_tokens)
        return ask(replace(question, controls=controls))


class JudgedModel:
    """A model with a gate around it.

    Args:
        model: It is closed with this one.
        plan: How it is asked for calls, and how they are judged.
    """

    def __init__(self, model: PlannedModel, plan: Plan) -> None:
        self._model = model
        self.plan = plan

    @property
    def name(self) -> str:
        return self._model.name

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]:
        """Yield one reply. Additional questions go to the same model."""
        ask = self._model.batches
        gate = create_gate(request, self.plan.gate, gives_logprobs=False)
        return ask(request) if gate is None else _judge_reply(gate, ask(request), ask, ask)

    async def aclose(self) -> None:
        await self._model.aclose()


async def _judge_reply(
    gate: GateFilter, reply: AsyncIterator[list[Event]], ask_question: _Ask, ask_for_answer: _Ask
) -> AsyncGenerator[list[Event]]:
    """The reply as the gate lets it pass, or the answer in its place."""
    async with closing(reply) as batches:
        async for events in batches:
            if passed := [out for event in events for out in gate.feed(event)]:
                yield passed
    if (question := gate.question()) is not None:
        async with closing(ask_question(question)) as batches:
            gate.take_answer([event async for events in batches for event in events])
    if (scores := CALL_SCORES.get()) is not None:
        scores |= gate.scores
    if released := gate.release():
        yield released
    answer = gate.answer_request()
    if answer is None:
        return
    merger = RetryMerger(gate.usage)
    async with closing(ask_for_answer(answer)) as batches:
        async for events in batches:
            if merged := [out for event in events for out in merger.feed(event)]:
                yield merged


class PlannedModel(Protocol):
    """A Model with its plan."""

    plan: Plan

    @property
    def name(self) -> str: ...

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]: ...

    async def aclose(self) -> None: ...


def open_model(
    name: str,
    *,
    base_url: str = "",
    api_key: str = "",
    mode: ModeName | Literal[""] = "",
    profile: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    transport: Transport | None = None,
    tell: Callable[[str], None] | None = None,
) -> PlannedModel:
    """Return the model `name`, such as `local:qwen2.5-coder-0.5b`, `openai:gpt-4o`, or any name with a `base_url`.

    A plug-in's provider makes its own model (entry points `callboard.providers`: an object with a `name` and a method
    `access(resolution, plan, base_url=, api_key=)`).

    Args:
        name: `PROVIDER:MODEL`, or `command:PROGRAM ARGUMENTS`.
        base_url: The endpoint; by default the provider's.
        api_key: By default the environment variable that the endpoint's profile names.
        mode: The mode; by default the profile's.
        profile: Facts that override all others.
        headers: Headers to add to every request.
        extra_body: Fields to add to the body of every request.
        transport: Connections to use; by default new ones.
        tell: Called with a line of text about a local model's context, and before a request is repeated.

    Raises:
        NoSuchModel: No model has this name.
        CallerError: Another argument cannot work. Nothing was sent.
    """
    resolution = resolve(name, profile)
    server = None
    if resolution.provider == "local":
        if base_url:
            hint = f"for an endpoint write {resolution.model}"
            raise CallerError("a local model has no base URL", path=name, hint=hint)
        from callboard.providers.local.server import find_server  # noqa: PLC0415  # only a local model needs it

        server = find_server(resolution.model, resolution.profile.context_tokens, resolution.profile.cache_type)
        resolution = replace(resolution, profile=replace(resolution.profile, context_tokens=server.context.tokens))
        if tell is not None:
            tell(f"{name}: {server.context}")
    facts = resolution.profile
    url = base_url or _variable(facts.url_variable) or facts.base_url
    decided = make_plan(resolution, mode, base_url=url)
    open_endpoint = partial(
        model_class(decided),
        resolution,
        decided,
        transport or Transport(),
        headers=headers,
        extra_body=extra_body,
        tell=tell,
    )
    if server is not None:
        return open_endpoint(server=server)
    if resolution.provider == "command":
        # It costs what only such a model needs.
        return _judge(CommandModel(resolution, decided), decided)
    for added in plugins("callboard.providers"):
        if added.name == resolution.provider:
            model: PlannedModel = added.access(resolution, decided, base_url=base_url, api_key=api_key)
            return _judge(model, decided)
    if not url:
        raise CallerError("no provider is named", path=name, hint=_provider_hint(name))
    key = api_key or _variable(facts.key_variable)
    if facts.key_variable and not key and url == facts.base_url:
        raise CallerError("it wants an API key", path=name, hint=f"set {facts.key_variable}")
    return open_endpoint(base_url=url, api_key=key)


def model_class(plan: Plan) -> type[HttpModel]:
    """The class of an endpoint's model: one that judges calls, where the plan has a gate."""
    if not plan.gate.kind:
        return HttpModel
    return DecidingModel


def _judge(model: PlannedModel, plan: Plan) -> PlannedModel:
    """The model, with a gate around it where the plan has one."""
    if not plan.gate.kind:
        return model
    return JudgedModel(model, plan)


_OLLAMA_NAME: Final = re.compile(r"[^:]+:(?:[ex]?\d[\dx.]*[bm](?:-[^:]*)?|latest)", re.IGNORECASE)
"""A model with a tag of Ollama: `llama3.2:3b`, `qwen2.5-coder:7b-instruct-q4_K_M`, `gemma3n:e4b`, `phi4:latest`."""


def _provider_hint(name: str) -> str:
    prefix, colon, model = name.partition(":")
    known = [f"{provider}:" for provider in providers()]
    close = find_closest(f"{prefix}:", known, cutoff=0.6) if colon else []
    full = f"ollama:{name}" if _OLLAMA_NAME.fullmatch(name) else f"{close[0]}{model}" if close else ""
    suggestion = f"did you mean {full}? Else " if full else ""
    return f"{suggestion}begin with its provider ({', '.join(known)}) or give a base URL"


def _variable(name: str) -> str:
    return os.environ.get(name, "") if name else ""
