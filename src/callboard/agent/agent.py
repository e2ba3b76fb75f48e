"""A model with its tools.

Owns what stays the same from run to run. Knows nothing of how a run goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from callboard.agent.run import Run, RunResult
from callboard.core import (
    Approve,
    Canister,
    Clock,
    Controls,
    Model,
    Request,
    Store,
    SupervisorCanister,
    UserCanister,
    contents,
)
from callboard.errors import CallerError
from callboard.execution import Group
from callboard.loop import MAX_ROUNDS, Loop
from callboard.modes import plan_of
from callboard.providers import access_model
from callboard.tools import Ensemble, Policy, Roster, ToolLike


class Agent:
    """Runs prompts with a model and tools.

    `model` is a Model or a name such as `openai:gpt-4o` (see `access_model`, which gets `base_url`, `mode`
    and `profile`). `tools` are functions, Tools or Invokers, `ensembles` groups of them; connected and
    disconnected by whoever made them. `instructions` become the supervisor's canister. `max_rounds` bounds
    the replies that may call. `policy` says which calls may run; `approve` is asked where it says so, and
    without it the answer is no. `store` keeps every canister. Raises CallerError.

    A model given by name is the agent's own: its connections are closed when no run of the agent is under way.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[ToolLike] = (),
        *,
        ensembles: Iterable[Ensemble] = (),
        instructions: str = "",
        base_url: str = "",
        mode: str = "",
        profile: Mapping[str, Any] | None = None,
        controls: Controls | None = None,
        max_rounds: int = MAX_ROUNDS,
        policy: Policy | None = None,
        approve: Approve | None = None,
        auxdata: Mapping[str, Any] | None = None,
        store: Store | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        if max_rounds < 1:
            raise CallerError("at least one round is needed", path="max_rounds")
        self._owned = (
            access_model(model, base_url=base_url, mode=mode, profile=profile) if isinstance(model, str) else None
        )
        self.model: Model = self._owned or model  # type: ignore[assignment]  # a name has become the owned one
        self._running = 0
        self.instructions = instructions
        local = Ensemble("local", tools)
        self.roster = Roster([*([local] if local.invokers else []), *ensembles])
        self._controls = controls or Controls()
        self._max_rounds = max_rounds
        self._policy = policy
        self._approve = approve
        self._auxdata = auxdata or {}
        self._store = store
        self._clock = clock

    async def run(
        self, prompt: str, *, history: Iterable[Canister] = (), auxdata: Mapping[str, Any] | None = None
    ) -> RunResult:
        """Runs to the end. Raises ProviderError if the provider failed."""
        run = self.stream(prompt, history=history, auxdata=auxdata)
        async for _ in run:
            pass
        if run.result is None:
            raise AssertionError("a run ends with a result")
        if run.result.state == "failed" and run.failure is not None:
            raise run.failure
        return run.result

    def run_sync(
        self, prompt: str, *, history: Iterable[Canister] = (), auxdata: Mapping[str, Any] | None = None
    ) -> RunResult:
        """`run` where no event loop runs."""
        return asyncio.run(self.run(prompt, history=history, auxdata=auxdata))

    def stream(self, prompt: str, *, history: Iterable[Canister] = (), auxdata: Mapping[str, Any] | None = None) -> Run:
        """The run, to be iterated over for its events.

        `history` are the canisters of a conversation that goes on; `auxdata` is added to the agent's own.
        """
        before: list[Canister] = [*history]
        begun_at = len(before)
        now = self._clock()
        if self.instructions and not any(isinstance(each, SupervisorCanister) for each in before):
            before.insert(0, SupervisorCanister(contents(self.instructions), timestamp=now))
            begun_at += bool(begun_at)
        plan = plan_of(self.model)
        loop = Loop(
            [*before, UserCanister(contents(prompt), timestamp=now)],
            self.roster,
            max_rounds=self._max_rounds,
            policy=self._policy,
            answer_after=plan.answer_after,
        )
        group = Group(self.roster, auxdata={**self._auxdata, **(auxdata or {})}, validated=plan.mode.validated)
        return Run(
            loop,
            self.model,
            group,
            Request(self.model.name, (), self.roster.declarations, controls=self._controls),
            begun_at=begun_at,
            clock=self._clock,
            approve=self._approve,
            store=self._store,
            around=self._kept_open(),
        )

    @asynccontextmanager
    async def _kept_open(self) -> AsyncGenerator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._owned is not None and not self._running:
                await self._owned.aclose()
