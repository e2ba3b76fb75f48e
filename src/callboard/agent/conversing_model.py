"""A model with `converse`, for callers who do not make an Agent themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec

from callboard.agent.agent import Agent
from callboard.core import Canister, Event, Request
from callboard.modes import Plan
from callboard.providers import open_model
from callboard.providers.registry import PlannedModel
from callboard.tools import Ensemble

_Options = ParamSpec("_Options")


class ConversingModel:
    """The `model` with a method `converse`."""

    def __init__(self, model: PlannedModel) -> None:
        self._model = model
        self.plan: Plan = model.plan

    @property
    def name(self) -> str:
        """The name that the caller asked for, such as `openai:gpt-4o`."""
        return self._model.name

    def batches(self, request: Request, /) -> AsyncGenerator[list[Event]]:
        """Yield the events of the reply to `request`."""
        return self._model.batches(request)

    async def converse(
        self, canisters: Iterable[Canister], *, ensembles: Iterable[Ensemble] = (), **options: Any
    ) -> Sequence[Canister]:
        """Return the canisters that follow on `canisters`: run the calls of `ensembles` until a reply makes none.

        `options` are parameters of Agent. Raises ProviderError if the provider fails.
        """
        result = await Agent(self, ensembles=ensembles, **options).run(history=canisters)
        return result.canisters

    async def aclose(self) -> None:
        """Close the connections. A later reply opens new ones."""
        await self._model.aclose()


def _conversing(access: Callable[_Options, PlannedModel]) -> Callable[_Options, ConversingModel]:
    @wraps(access)
    def access_model(*args: _Options.args, **options: _Options.kwargs) -> ConversingModel:
        return ConversingModel(access(*args, **options))

    return access_model


access_model = _conversing(open_model)
