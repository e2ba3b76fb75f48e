"""A model whose calls are judged before anyone sees them (see `callboard.modes.decide`).

It is a model like any other, asked up to three times for one reply: for the reply, for a word about each of its calls,
and, where every call was stopped, for an answer without tools. Whoever asks it sees one reply. An endpoint is a
`DecidingModel`; of any other model, such as a command or a plug-in's, no log-probabilities are known and what it wrote is
not seen, so that a `JudgedModel` stands around it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from callboard.core import Event, Request, closing
from callboard.modes import Plan
from callboard.modes.decide import CALL_SCORES, LOGPROBS, DecideStep, create_decide_step
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
        step = create_decide_step(request, self.plan.gate, LOGPROBS if gives_logprobs else {})
        if step is None:
            return ask_for_reply(request)
        reply = ask(request, observer=_StepObserver(observer or ExchangeObserver(), step))
        return _judge_reply(step, reply, partial(self._ask_question, ask), ask_for_reply)

    def _ask_question(self, ask: _Ask, question: Request) -> AsyncIterator[list[Event]]:
        controls = replace(question.controls, max_tokens=self.wire.min_max_tokens)
        return ask(_without_form(replace(question, controls=controls), self.plan))


class _StepObserver(ExchangeObserver):
    """Shows a step the text of the reply, and another observer everything else."""

    def __init__(self, other: ExchangeObserver, step: DecideStep) -> None:
        self.passes_refusals = other.passes_refusals
        self.on_answer, self.on_bytes, self.on_frame = other.on_answer, other.on_bytes, other.on_frame  # type: ignore[method-assign]
        self.on_text = step.add_text  # type: ignore[method-assign]


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
        step = create_decide_step(request, self.plan.gate, {})
        if step is None:
            return ask(request)
        return _judge_reply(step, ask(request), lambda question: ask(_without_form(question, self.plan)), ask)

    async def aclose(self) -> None:
        await self._model.aclose()


async def _judge_reply(
    step: DecideStep, reply: AsyncIterator[list[Event]], ask_question: _Ask, ask_for_answer: _Ask
) -> AsyncGenerator[list[Event]]:
    """The reply as the step lets it pass, or the answer in its place."""
    async with closing(reply) as batches:
        async for events in batches:
            if passed := [out for event in events for out in step.feed(event)]:
                yield passed
    while (question := step.next_question()) is not None:
        async with closing(ask_question(question.request)) as batches:
            step.take_answer(question, [event async for events in batches for event in events])
    if (scores := CALL_SCORES.get()) is not None:
        scores |= step.scores
    if released := step.release():
        yield released
    answer = step.answer_request()
    if answer is None:
        return
    merger = RetryMerger(step.usage)
    async with closing(ask_for_answer(answer)) as batches:
        async for events in batches:
            if merged := [out for event in events for out in merger.feed(event)]:
                yield merged


def _without_form(question: Request, plan: Plan) -> Request:
    """The question without tools, where with them its answer would be held to the form of a call."""
    return replace(question, tools=()) if plan.mode.declares == "constraint" else question
