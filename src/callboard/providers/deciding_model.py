"""A model whose calls are judged before anyone sees them (see `callboard.modes.decide`).

It is an endpoint like any other, asked up to three times for one reply: for the reply, for a word about each of its
calls, and, where every call was stopped, for an answer without tools. Whoever asks it sees one reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

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
        gate = self.plan.gate
        step = create_decide_step(request, gate, self._question_fields)
        if step is None:
            async for events in super().batches(
                request, headers=headers, on_headers=on_headers, on_frame=on_frame, on_text=on_text
            ):
                yield events
            return
        options: Any = {"headers": headers, "on_headers": on_headers, "on_frame": on_frame}
        async with aclosing(super().batches(request, **options, on_text=step.add_text)) as batches:
            async for events in batches:
                if passed := [out for event in events for out in step.feed(event)]:
                    yield passed
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
        async with aclosing(super().batches(question, headers=headers)) as batches:
            return [event async for events in batches for event in events]
