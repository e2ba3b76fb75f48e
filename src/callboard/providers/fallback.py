"""Models in a row: where one fails, the next is asked.

The next one is asked only while nothing of the reply was given; a failure in the middle stays a failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing

import msgspec

from callboard.core import Event, Note, ReplyFailed, ReplyStarted, Request, Usage
from callboard.errors import CallerError
from callboard.profiles.prices import FallbackPrices
from callboard.providers.registry import PlannedModel

_BEFORE_REPLY = (ReplyStarted, Usage, Note)
"""Events that may be given before another model is asked."""


async def first_reply(
    attempts: Iterable[AsyncGenerator[list[Event]]], on_failure: Callable[[ReplyFailed], str]
) -> AsyncGenerator[list[Event]]:
    """Yield the batches of the first attempt that produces part of a reply, or of the last attempt.

    Args:
        attempts: Replies. The next one is tried if the previous one fails.
        on_failure: Returns the text of a Note about the next attempt, or "" to report the failure.
    """
    for attempt in attempts:
        may_fail = True
        async with aclosing(attempt) as batches:
            async for events in batches:
                last = events[-1]
                may_fail = may_fail and all(isinstance(event, _BEFORE_REPLY) for event in events[:-1])
                if may_fail and isinstance(last, ReplyFailed) and (text := on_failure(last)):
                    break
                may_fail = may_fail and isinstance(last, _BEFORE_REPLY)
                yield events
            else:
                return
        yield [*events[:-1], Note("alert", text)]


async def _name_usage(batches: AsyncGenerator[list[Event]], model: str) -> AsyncGenerator[list[Event]]:
    """The batches, whose usage says which model counted it: each has its own prices."""
    async with aclosing(batches):
        async for events in batches:
            yield [msgspec.structs.replace(each, model=model) if type(each) is Usage else each for each in events]


class FallbackModel:
    """A Model that asks the first of `models` whose provider does not fail.

    A Note says that another one is asked. The first model's profile says what follows when calls have results.
    """

    def __init__(self, models: Sequence[PlannedModel]) -> None:
        if not models:
            raise CallerError("a fallback needs at least one model", path="models")
        self.models = tuple(models)
        first = models[0].plan
        prices = FallbackPrices(tuple([(model.name, model.plan.prices) for model in models]))
        self.plan = msgspec.structs.replace(first, prices=prices) if len(models) > 1 else first

    @property
    def name(self) -> str:
        """The names of the models, with commas."""
        return ",".join([model.name for model in self.models])

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]:
        """Yield the reply to `request` of the first model that gives one."""
        rest = list(self.models)
        failing = rest[0]

        def attempts() -> Iterator[AsyncGenerator[list[Event]]]:
            nonlocal failing
            while rest:
                failing = rest.pop(0)
                batches = failing.batches(request)
                yield batches if failing is self.models[0] else _name_usage(batches, failing.name)

        def on_failure(failed: ReplyFailed) -> str:
            return f"{failing.name} failed: {failed.message}; {rest[0].name} is asked" if rest else ""

        return first_reply(attempts(), on_failure)

    async def aclose(self) -> None:
        """Closes the connections of all models."""
        for model in self.models:
            await model.aclose()
