"""A model whose calls are judged before anyone sees them (see `callboard.modes.filters.gate`).

It is a model like any other, asked up to three times for one reply: for the reply, for how sure it was to call, and, if
every call was stopped, for an answer without tools. Its user sees one reply. An endpoint is a `DecidingModel`. No
log-probabilities are known of any other model, such as a command or a plug-in's: a `JudgedModel` wraps it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from callboard.core import Event, Request, closing
from callboard.modes import Plan
from callboard.modes.filters.gate import CALL_SCORES, GateFilter, create_gate
from callboard.providers.http_exchange import ExchangeObserver
from callboard.providers.http_model import NO_HEADERS, HttpModel, RetryMerger

if TYPE_CHECKING:
    from callboard.providers.registry import PlannedModel

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
        """One reply, as of HttpModel; what is asked beside it is asked of the same endpoint."""
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
        """One reply; what is asked beside it is asked of the same model."""
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
