"""Models in a row: where one fails, the next is asked.

The next one is asked only while nothing of the reply was given; a failure in the middle stays a failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from callboard.core import Event, Note, ReplyFailed, ReplyStarted, Request, Usage
from callboard.errors import CallerError
from callboard.modes import Plan

_BEFORE_REPLY = (ReplyStarted, Usage, Note)
"""Events that may be given before another model is asked."""


class PlannedModel(Protocol):
    """A Model with its plan."""

    plan: Plan

    @property
    def name(self) -> str: ...

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]: ...

    async def aclose(self) -> None: ...


class FallbackModel:
    """A Model that asks the first of `models` whose provider does not fail.

    A Note says that another one is asked. The first model's profile says what follows when calls have results.
    """

    def __init__(self, models: Sequence[PlannedModel]) -> None:
        if not models:
            raise CallerError("a fallback needs at least one model", path="models")
        self._models = tuple(models)
        self.plan = models[0].plan

    @property
    def name(self) -> str:
        return ",".join([model.name for model in self._models])

    async def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]:
        """The reply of the first model that gives one."""
        for model, following in zip(self._models, (*self._models[1:], None), strict=True):
            may_fail = following is not None
            async with aclosing(model.batches(request)) as batches:
                async for events in batches:
                    last = events[-1]
                    may_fail = may_fail and all(isinstance(event, _BEFORE_REPLY) for event in events[:-1])
                    if may_fail and isinstance(last, ReplyFailed) and following is not None:
                        text = f"{model.name} failed: {last.message}; {following.name} is asked"
                        break
                    may_fail = may_fail and isinstance(last, _BEFORE_REPLY)
                    yield events
                else:
                    return
            yield [*events[:-1], Note("alert", text)]

    async def aclose(self) -> None:
        """Closes the connections of all models."""
        for model in self._models:
            await model.aclose()
