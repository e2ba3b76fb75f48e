"""A model with its tools.

Owns what stays the same from run to run. Knows nothing of how a run goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic

from msgspec.structs import replace
from typing_extensions import TypeForm

from callboard.agent.arguments import check_arguments, read_history
from callboard.agent.output import Output, OutputCheck, OutputT_co, OutputValidator
from callboard.agent.run import NewStage, Run, RunResult
from callboard.core import (
    Approve,
    Canister,
    Clock,
    ContentLike,
    Controls,
    InvocationCanister,
    Model,
    Note,
    Request,
    ResultCanister,
    Store,
    SupervisorCanister,
    ToolError,
    UserCanister,
    contents,
    error_result,
)
from callboard.errors import CallerError
from callboard.execution import DEFAULT_LIMIT, AfterCall, BeforeCall, Group, OnError, result_of
from callboard.loop import GO_ON, AnswerAfter, Limits, Loop, OnRepeatedCall, QuotedCalls, ends_with_model
from callboard.modes import plan_of
from callboard.providers import access_model
from callboard.providers.fallback import Planned
from callboard.tools import Ensemble, Policy, Roster, Tool, ToolLike, refuse_clashes

if TYPE_CHECKING:
    from callboard.agent.sync_run import SyncRun
    from callboard.loop import History


_NAMED = 5
"""Tools that an agent's repr names."""


class Agent(Generic[OutputT_co]):
    """Runs prompts with a model and tools.

    `model` is a Model or a name such as `openai:gpt-4o` (see `access_model`, which gets `base_url`, `mode`
    and `profile`). `tools` are functions, Tools or Invokers, `ensembles` groups of them; connected and
    disconnected by whoever made them. `instructions` become the supervisor's canister. `output` is the type
    of the output, by default text. `limits` bound each run. `output_validator` may refuse an output, by saying what is
    wrong with it; `limits` bound how often. `on_repeated_call` and `answer_after` override the model's profile: what
    follows from a call that was made before in the run ("run", "answer" or "tell"; see `callboard.loop.Loop`), and when
    the answer is asked for. `view` decides what of a long
    conversation the model is shown, `stage` makes what a reply's events pass through first. `policy` says which calls may run; `approve` is
    asked where it says so: only "allow" (or True) runs the call, and without it the answer is no. A call that the model
    found in a result, a document or a user's message and repeats in its text is asked about too, unless `quoted_calls` is
    "run". `before_call` and `after_call` look at each call.
    `at_once` calls of a reply are under way together; with 1 they run in their order. `on_error` "fail_fast" ends a
    run where a tool raises, and rolls the conversation back. `store` keeps every canister. Raises CallerError.

    A model given by name is the agent's own: its connections are closed when no run of the agent is under way.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[ToolLike] = (),
        *,
        ensembles: Iterable[Ensemble] = (),
        instructions: str = "",
        output: TypeForm[OutputT_co] = str,  # type: ignore[assignment]  # the default of OutputT_co
        base_url: str = "",
        mode: str = "",
        profile: Mapping[str, Any] | None = None,
        controls: Controls | None = None,
        limits: Limits | None = None,
        output_validator: OutputValidator[OutputT_co] | None = None,
        on_repeated_call: OnRepeatedCall | None = None,
        answer_after: AnswerAfter | None = None,
        view: History | None = None,
        stage: NewStage | None = None,
        policy: Policy | None = None,
        approve: Approve | None = None,
        quoted_calls: QuotedCalls = "ask",
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        at_once: int = DEFAULT_LIMIT,
        on_error: OnError = "feedback",
        auxdata: Mapping[str, Any] | None = None,
        store: Store | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        ensembles = tuple(ensembles) if isinstance(ensembles, Iterable) else ensembles
        check_arguments(
            model=model,
            ensembles=ensembles,
            controls=controls,
            limits=limits,
            output_validator=output_validator,
            on_repeated_call=on_repeated_call,
            quoted_calls=quoted_calls,
            answer_after=answer_after,
            policy=policy,
            approve=approve,
            before_call=before_call,
            after_call=after_call,
            at_once=at_once,
            on_error=on_error,
            auxdata=auxdata,
            store=store,
        )
        if not isinstance(model, str) and (base_url or mode or profile):
            raise CallerError("a Model has its own URL, mode and profile", path="model", hint="give its name instead")
        self._owned = (
            access_model(model, base_url=base_url, mode=mode, profile=profile) if isinstance(model, str) else None
        )
        self.model: Model = self._owned or model  # type: ignore[assignment]  # a name has become the owned one
        self._running = 0
        local = Ensemble("local", tools)
        placed = [("tools", local)] if local.invokers else []
        placed += [(f"ensembles[{at}]", each) for at, each in enumerate(ensembles)]
        refuse_clashes(placed)
        self._ensembles = tuple([each for _, each in placed])
        self._roster = Roster(self._ensembles)
        self._output = None if output is str else Output(output)
        self.instructions = "\n\n".join(
            [each for each in (instructions, self._output.instructions if self._output else "") if each]
        )
        self._controls = controls or Controls()
        self._limits = limits
        self._output_validator = output_validator
        self._on_repeated_call = on_repeated_call
        self._answer_after = answer_after
        self._view = view
        self._stage = stage
        self._policy = policy
        self.approve = approve
        self._quoted_calls: QuotedCalls = quoted_calls
        self._before_call = before_call
        self._after_call = after_call
        self._at_once = at_once
        self._on_error: OnError = on_error
        self._auxdata = auxdata or {}
        self._store = store
        self._clock = clock

    def __repr__(self) -> str:
        names = [*self.roster]
        more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
        tools = ", ".join([*names[:_NAMED], *more])
        return f"<Agent {self.model.name}{tools and ': '}{tools}>"

    @property
    def roster(self) -> Roster:
        """The tools by the names that models call them: made anew where an ensemble's have changed, as those of an
        MCP server may. A run keeps those that it began with.
        """
        if not self._roster.is_of(self._ensembles):
            self._roster = Roster(self._ensembles)
        return self._roster

    async def run(
        self,
        prompt: UserCanister | ContentLike = "",
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        results: Mapping[str, Any] | None = None,
        auxdata: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
    ) -> RunResult[OutputT_co]:
        """Runs to the end; parameters as of `stream`.

        Raises ProviderError if the provider failed, ToolExecutionFailure if a tool did and the agent fails fast.
        """
        run = self.stream(prompt, history=history, results=results, auxdata=auxdata, approve=approve)
        async for _ in run:
            pass
        if run.result.state == "failed" and run.failure is not None:
            raise run.failure
        return run.result

    def run_sync(
        self,
        prompt: UserCanister | ContentLike = "",
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        results: Mapping[str, Any] | None = None,
        auxdata: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
    ) -> RunResult[OutputT_co]:
        """`run` where no event loop runs. Raises CallerError where one does, such as in a notebook."""
        _refuse_event_loop("run_sync", "write `await agent.run(...)`")
        return asyncio.run(self.run(prompt, history=history, results=results, auxdata=auxdata, approve=approve))

    def stream(
        self,
        prompt: UserCanister | ContentLike = "",
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        results: Mapping[str, Any] | None = None,
        auxdata: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
    ) -> Run[OutputT_co]:
        """The run, to be iterated over for its events.

        `prompt` is a text, a content or several, or a UserCanister. `history` are the canisters of a conversation
        that goes on, or its messages as Chat Completions has them: with a prompt, or with the `results` of
        its pending invocations by their identifiers (a value as a tool would return it, or a ToolError).
        Raises CallerError for what is none of these, and where there is nothing to ask.
        `auxdata` is added to the agent's own; `approve` is asked in the place of its own.
        """
        before = read_history(history, self.model.name)
        asked = prompt if isinstance(prompt, UserCanister) else UserCanister(contents(prompt))
        if not (before or asked.content or results):
            raise CallerError("there is nothing to ask", path="prompt", hint="give a prompt or a history")
        known = begun_at = len(before)
        now = self._clock()
        if self.instructions and not any(isinstance(each, SupervisorCanister) for each in before):
            before.insert(0, SupervisorCanister(contents(self.instructions), timestamp=now))
            begun_at += bool(begun_at)
        given: list[Canister] = [*_settled(before, results or {}, now)]
        if asked.content:
            given.append(replace(asked, timestamp=asked.timestamp or now))
        elif not given and ends_with_model(before):
            given.append(UserCanister(contents(GO_ON), timestamp=now))
        plan = plan_of(self.model)
        roster = self.roster
        loop = Loop(
            [*before, *given],
            roster,
            limits=self._limits,
            policy=self._policy,
            prices=plan.prices,
            answer_after=self._answer_after or plan.answer_after,
            checks=bool(self._output or self._output_validator),
            on_repeated_call=self._on_repeated_call or plan.repeats,
            validated=plan.mode.validated,
            quoted_calls=self._quoted_calls,
        )
        if self._view is not None:
            self._view.invokers = roster
        group = Group(
            roster,
            auxdata={**self._auxdata, **(auxdata or {})},
            on_error=self._on_error,
            validated=plan.mode.validated,
            before_call=self._before_call,
            after_call=self._after_call,
            limit=self._at_once,
            policy=self._policy,
        )
        request = Request(
            self.model.name,
            (),
            roster.offered(self._policy or Policy()),
            controls=self._controls,
            constraint=self._output.constraint if self._output else None,
        )
        return Run(
            loop,
            self.model,
            group,
            request,
            begun_at=begun_at,
            known=known,
            clock=self._clock,
            check=OutputCheck(self._output, self._output_validator),
            notes=[Note("dropped", f"{name}: {what}") for name, invoker in roster.items() for what in invoker.dropped],
            approve=approve or self.approve,
            view=self._view,
            stage=self._stage,
            store=self._store,
            around=self._kept_open(self._owned) if self._owned else None,
        )

    def stream_sync(
        self,
        prompt: UserCanister | ContentLike = "",
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        results: Mapping[str, Any] | None = None,
        auxdata: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
    ) -> SyncRun[OutputT_co]:
        """`stream` where no event loop runs, for a plain `for`. Raises CallerError where one does."""
        from callboard.agent.sync_run import SyncRun  # noqa: PLC0415  # who does not ask for it does not load it

        _refuse_event_loop("stream_sync", "write `async for event in agent.stream(...)`")
        return SyncRun(self.stream(prompt, history=history, results=results, auxdata=auxdata, approve=approve))

    def as_tool(self, name: str, description: str) -> Tool[..., Any]:
        """A tool that runs this agent: another one asks it in words and gets its output."""

        async def ask(prompt: str) -> OutputT_co:
            result = await self.run(prompt)
            if result.state != "completed":
                raise CallerError(f"{name} gave no answer: {result.why}", hint=result.text)
            return result.output

        ask.__doc__ = description
        return Tool(ask, name=name)

    @asynccontextmanager
    async def _kept_open(self, owned: Planned) -> AsyncGenerator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                await owned.aclose()


def _refuse_event_loop(name: str, hint: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise CallerError(f"{name} cannot wait where an event loop runs", hint=hint)


def _settled(history: Iterable[Canister], results: Mapping[str, Any], now: datetime) -> Iterator[ResultCanister]:
    """A result for each invocation of the history that has none. Raises CallerError for a result of nothing."""
    pending: dict[str, InvocationCanister] = {}
    for canister in history:
        if isinstance(canister, InvocationCanister):
            pending[canister.identifier] = canister
        elif isinstance(canister, ResultCanister):
            pending.pop(canister.invocation_id, None)
    for identifier in results:
        if identifier not in pending:
            raise CallerError("no call waits for this result", path=identifier, hint=f"there wait {', '.join(pending)}")
    for identifier in pending:
        value = results.get(identifier, ToolError("cancelled", "no result was given"))
        if isinstance(value, ToolError):
            result = error_result(identifier, value.category, value.message)
        else:
            result = result_of(identifier, value)
        yield replace(result, timestamp=now)
