"""A model whose calls are judged before anyone sees them (see `callboard.modes.decide`).

It is an endpoint like any other, asked up to three times for one reply: for the reply, for a word about each of its
calls, and, where every call was stopped, for an answer without tools. Whoever asks it sees one reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from callboard.core import Event, Request
from callboard.modes.decide import LOGPROBS, YES_OR_NO, create_decide_step
from callboard.providers.http_exchange import OnFrame, OnHeaders, OnText
from callboard.providers.http_model import NO_HEADERS, HttpModel, RetryMerger


class DecidingModel(HttpModel):
    """An HttpModel with a gate."""

    async def batches(
        self,
        request: Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        on_headers: OnHeaders | None = None,
        on_frame: OnFrame | None = None,
        on_text: OnText | None = None,
    ) -> AsyncGenerator[list[Event]]:
        """One reply, as of HttpModel; what is asked beside it is asked of the same endpoint."""
        options: Any = {"headers": headers, "on_headers": on_headers, "on_frame": on_frame}
        step = create_decide_step(request, self.plan.gate, self._question_fields)
        on_text = on_text if step is None else step.add_text
        async with aclosing(super().batches(request, **options, on_text=on_text)) as batches:
            async for events in batches:
                if passed := events if step is None else [out for event in events for out in step.feed(event)]:
                    yield passed
        if step is None:
            return
        while (question := step.next_question()) is not None:
            step.take_answer(question, await self._ask(question.request, headers))
        if released := step.release():
            yield released
        answer = step.answer_request()
        if answer is None:
            return
        merger = RetryMerger(step.usage)
        async with aclosing(super().batches(answer, **options)) as batches:
            async for events in batches:
                if merged := [out for event in events for out in merger.feed(event)]:
                    yield merged

    @property
    def _question_fields(self) -> Mapping[str, Any]:
        """What a question adds to the body of a request."""
        facts = self.resolution.profile
        fields: dict[str, Any] = {}
        if self.wire.name == "chat" and facts.supports_logprobs:
            fields |= LOGPROBS
        if facts.constrains_calls and facts.grammar_format == "gbnf" and self.plan.mode.declares == "prompt":
            fields |= YES_OR_NO  # in the place of the grammar of calls
        return fields

    async def _ask(self, question: Request, headers: Mapping[str, str]) -> list[Event]:
        """All events of a reply to our own question."""
        if self.plan.mode.declares == "constraint":  # with tools, the answer would be held to the form of a call
            question = replace(question, tools=())
        async with aclosing(super().batches(question, headers=headers)) as batches:
            return [event async for events in batches for event in events]
