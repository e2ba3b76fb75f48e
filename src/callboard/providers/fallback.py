"""Models in a row: where one fails, the next is asked.

Owns when the next one's turn is. Knows nothing of why a provider fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from callboard.core import Event, Note, ReplyFailed, ReplyStarted, Request, Usage
from callboard.errors import CallerError
from callboard.modes import Plan


class Planned(Protocol):
    """A Model with its plan."""

    plan: Plan

    @property
    def name(self) -> str: ...

    def reply(self, request: Request, /) -> AsyncGenerator[Event]: ...

    async def aclose(self) -> None: ...


class FallbackModel:
    """A Model that asks the first of `models` whose provider does not fail.

    The next one is asked only if nothing of the reply was given yet, and told in a Note; a failure in the
    middle stays a failure. When calls have results, the first model's profile says what follows.
    """

    def __init__(self, models: Sequence[Planned]) -> None:
        if not models:
            raise CallerError("a fallback needs at least one model", path="models")
        self._models = tuple(models)
        self.plan = models[0].plan

    @property
    def name(self) -> str:
        return ",".join([model.name for model in self._models])

    async def reply(self, request: Request, /) -> AsyncGenerator[Event]:
        """One reply, event by event; the last is a ReplyEnded or a ReplyFailed."""
        for following, model in enumerate(self._models, 1):
            failed: ReplyFailed | None = None
            given = False
            async with aclosing(model.reply(request)) as events:
                async for event in events:
                    if isinstance(event, ReplyFailed) and not given and following < len(self._models):
                        failed = event
                        break
                    given = given or not isinstance(event, (ReplyStarted, Usage, Note))
                    yield event
            if failed is None:
                return
            yield Note("alert", f"{model.name} failed: {failed.message}; {self._models[following].name} is asked")

    async def aclose(self) -> None:
        """Closes the connections of all models."""
        for model in self._models:
            await model.aclose()
