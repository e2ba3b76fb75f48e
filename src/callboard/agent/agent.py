"""A model with its tools.

Owns what stays the same from run to run. Knows nothing of how a run goes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, Unpack

from msgspec.structs import replace
from typing_extensions import TypeForm

from callboard.agent.arguments import check_arguments, check_tool_choice, merged, read_history
from callboard.agent.output_type import Output, OutputCheck, OutputT_co, OutputValidator
from callboard.agent.run import ActiveAgent, Instructions, NewEventFilter, OuterRun, Run, RunResult, SharedOptions
from callboard.core import (
    Answer,
    Approve,
    Canister,
    Clock,
    ContentLike,
    Controls,
    InvocationCanister,
    Model,
    NamedTool,
    Request,
    Store,
    ToolChoice,
    ToolDeclaration,
    UserCanister,
    contents,
)
from callboard.errors import CallerError
from callboard.execution import DEFAULT_LIMIT, AfterCall, BeforeCall, OnError, ParallelExecutor
from callboard.loop import GO_ON, AnswerAfter, Limits, LoopRules, OnRepeatedCall, QuotedCalls, ends_with_model
from callboard.modes import plan_of
from callboard.profiles import ModeName
from callboard.providers import open_model
from callboard.tools import Context, Ensemble, Invoker, Policy, Roster, Tool, ToolLike, refuse_clashes

if TYPE_CHECKING:
    from callboard.agent.resume import Resumption
    from callboard.agent.sync_run import SyncRun
    from callboard.loop import ContextWindow
    from callboard.loop.cache_watch import CacheWatch
    from callboard.tools.search import ToolSearch


class RunOptions(TypedDict, total=False):
    """What a run may be given besides its prompt; see `Agent.stream`."""

    history: Iterable[Canister | Mapping[str, Any]]
    results: Mapping[str, Any] | None
    approvals: Mapping[str, Answer] | None
    auxdata: Mapping[str, Any] | None
    approve: Approve | None
    model: Model | str | None
    instructions: Instructions | None
    limits: Limits | None
    controls: Controls | None
    tool_choice: ToolChoice | None
    context: Context | None


_NAMED = 5
"""Tools that an agent's repr names."""


class Agent(Generic[OutputT_co]):
    """Runs prompts with a model and tools.

    `model` is a Model or a name such as `openai:gpt-4o` (see `open_model`, which gets `base_url`, `mode`
    and `profile`). `tools` are functions, Tools or Invokers, `ensembles` groups of them; connected and
    disconnected by whoever made them. `instructions`, a text or a function of the run's context that gives it, become
    the supervisor's canister. `tool_choice` holds until the model has called. `output` is the type of the output, by
    default text. `limits` bound each run. `output_validator` may refuse an output, by saying what is wrong with it;
    `limits` bound how often. `on_repeated_call` and `answer_after` override the model's profile: what follows from a
    call that was made before in the run ("run", "final_answer" or "warn"; see `callboard.loop.Loop`), and when the answer is
    asked for. `context_window` decides what of a long conversation the model is shown, `event_filter` makes what a reply's events pass
    through first. `policy` says which calls may run; `approve` is asked where it says so: only "allow" (or True) runs
    the call, and without it the answer is no. A call that the model found in a result, a document or a user's message
    and repeats in its text is asked about too, unless `quoted_calls` is "run". `before_call` and `after_call` look at
    each call. `max_parallel_calls` calls of a reply are under way together; with 1 they run in their order. `on_error` "fail_fast" ends a
    run where a tool raises, and rolls the conversation back. `store` keeps every canister. Raises CallerError.

    A model given by name is the agent's own: its connections are closed when no run of the agent is under way.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[ToolLike] = (),
        *,
        ensembles: Iterable[Ensemble] = (),
        instructions: Instructions = "",
        output: TypeForm[OutputT_co] = str,  # type: ignore[assignment]  # the default of OutputT_co
        base_url: str = "",
        mode: ModeName | Literal[""] = "",
        profile: Mapping[str, Any] | None = None,
        controls: Controls | None = None,
        tool_choice: ToolChoice = "auto",
        limits: Limits | None = None,
        output_validator: OutputValidator[OutputT_co] | None = None,
        on_repeated_call: OnRepeatedCall | None = None,
        answer_after: AnswerAfter | None = None,
        context_window: ContextWindow | None = None,
        event_filter: NewEventFilter | None = None,
        policy: Policy | None = None,
        approve: Approve | None = None,
        quoted_calls: QuotedCalls = "ask",
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        max_parallel_calls: int = DEFAULT_LIMIT,
        on_error: OnError = "feedback",
        auxdata: Mapping[str, Any] | None = None,
        store: Store | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        ensembles = tuple(ensembles) if isinstance(ensembles, Iterable) else ensembles
        check_arguments(
            model=model,
            ensembles=ensembles,
            instructions=instructions,
            base_url=base_url,
            mode=mode,
            profile=profile,
            controls=controls,
            tool_choice=tool_choice,
            context_window=context_window,
            event_filter=event_filter,
            clock=clock,
            limits=limits,
            output_validator=output_validator,
            on_repeated_call=on_repeated_call,
            quoted_calls=quoted_calls,
            answer_after=answer_after,
            policy=policy,
            approve=approve,
            before_call=before_call,
            after_call=after_call,
            max_parallel_calls=max_parallel_calls,
            on_error=on_error,
            auxdata=auxdata,
            store=store,
        )
        if not isinstance(model, str) and (base_url or mode or profile):
            raise CallerError("a Model has its own URL, mode and profile", path="model", hint="give its name instead")
        self._owned = (
            open_model(model, base_url=base_url, mode=mode, profile=profile) if isinstance(model, str) else None
        )
        self.model: Model = self._owned or model  # type: ignore[assignment]  # a name has become the owned one
        self._running = 0
        self.cache_watch: CacheWatch | None = None
        """Of this agent's conversations, from the first reply on that tells of cached tokens."""
        local = Ensemble("local", tools)
        placed = [("tools", local)] if local.invokers else []
        placed += [(f"ensembles[{at}]", each) for at, each in enumerate(ensembles)]
        refuse_clashes(placed)
        self._ensembles = tuple([each for _, each in placed])
        self._roster = Roster(self._ensembles)
        self._output = None if output is str else Output(output)
        self.instructions: Instructions = instructions
        self._controls = controls or Controls()
        self._tool_choice: ToolChoice = tool_choice
        self._limits = limits
        self._output_validator = output_validator
        self._on_repeated_call = on_repeated_call
        self._answer_after = answer_after
        self._context_window = context_window
        self._event_filter = event_filter
        self._policy = policy
        self.approve = approve
        self._quoted_calls: QuotedCalls = quoted_calls
        self._before_call = before_call
        self._after_call = after_call
        self.max_parallel_calls = max_parallel_calls
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
        self, prompt: UserCanister | ContentLike = "", **options: Unpack[RunOptions]
    ) -> RunResult[OutputT_co]:
        """Runs to the end; parameters as of `stream`.

        Raises ProviderError if the provider failed, ToolExecutionFailure if a tool did and the agent fails fast.
        """
        run = self.stream(prompt, **options)
        async for _ in run:
            pass
        if run.result.state == "failed" and run.failure is not None:
            raise run.failure
        return run.result

    def run_sync(self, prompt: UserCanister | ContentLike = "", **options: Unpack[RunOptions]) -> RunResult[OutputT_co]:
        """`run` where no event loop runs. Raises CallerError where one does, such as in a notebook."""
        _refuse_event_loop("run_sync", "write `await agent.run(...)`")
        return asyncio.run(self.run(prompt, **options))

    def stream(
        self,
        prompt: UserCanister | ContentLike = "",
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        results: Mapping[str, Any] | None = None,
        approvals: Mapping[str, Answer] | None = None,
        auxdata: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
        model: Model | str | None = None,
        instructions: Instructions | None = None,
        limits: Limits | None = None,
        controls: Controls | None = None,
        tool_choice: ToolChoice | None = None,
        context: Context | None = None,
    ) -> Run[OutputT_co]:
        """The run, to be iterated over for its events.

        Args:
            prompt: A text, a content or several, or a UserCanister.
            history: The canisters of a conversation that goes on, or its messages as Chat Completions has them.
            results: Results of calls of the history that wait, by their identifiers: a value as a tool would return
                it, or a ToolError.
            approvals: Decisions about calls that wait, by their identifiers: what `approve` would have answered.
            auxdata: Added to the agent's own.
            approve: Asked in the place of the agent's own callback.
            model: Asked in the place of the agent's own.
            instructions: In the place of the agent's own, and of those of the history.
            limits: In the place of the agent's own.
            controls: What is set in them takes the place of the agent's own.
            tool_choice: In the place of the agent's own.
            context: That of a tool: the run is one within the run that called it. It gets its auxdata, its events are
                told there, what it takes counts there, and `approve` of that run is asked where the agent has none.

        Raises:
            CallerError: An argument is none of these, or there is nothing to ask.
        """
        check_arguments(
            auxdata=auxdata,
            approve=approve,
            results=results,
            approvals=approvals,
            instructions=instructions,
            limits=limits,
            controls=controls,
            tool_choice=tool_choice,
            context=context,
            **({} if model is None else {"model": model}),
        )
        within = context.run if context is not None and isinstance(context.run, OuterRun) else None
        common = SharedOptions(
            {**self._auxdata, **(context.auxdata if context else {}), **(auxdata or {})},
            approve,
            self.approve or (within.approve if within else None),
        )
        setup = self.set_up(common, model=model, instructions=instructions, controls=controls, tool_choice=tool_choice)
        before = read_history(history, setup.model.name)
        asked = prompt if isinstance(prompt, UserCanister) else UserCanister(contents(prompt))
        if not (before or asked.content or results or approvals):
            raise CallerError("there is nothing to ask", path="prompt", hint="give a prompt or a history")
        now = self._clock()
        said = (replace(asked, timestamp=asked.timestamp or now),) if asked.content else ()
        given, resumption = self._settle(before, results or {}, approvals or {}, said=said, setup=setup, now=now)
        if not (given or resumption) and ends_with_model(before):
            given = [UserCanister(contents(GO_ON), timestamp=now)]
        return Run(
            setup.loop(
                [*before, *given], limits=limits or self._limits, outer=within.budget if within is not None else None
            ),
            setup,
            common,
            known=len(before),
            clock=self._clock,
            store=self._store,
            within=within,
            resumption=resumption,
        )

    def _settle(
        self,
        before: list[Canister],
        results: Mapping[str, Any],
        approvals: Mapping[str, Answer],
        *,
        said: tuple[Canister, ...],
        setup: ActiveAgent,
        now: datetime,
    ) -> tuple[list[Canister], Resumption | None]:
        """What follows the history at once, and what the run has to do first."""
        if not (results or approvals or any(isinstance(each, InvocationCanister) for each in before)):
            return [*said], None
        from callboard.agent.resume import given_results, read_resumption, waiting_calls  # noqa: PLC0415  # few runs

        waiting = waiting_calls(before)
        if not approvals:
            return [*given_results(waiting, results, now), *said], None
        resumption = read_resumption(
            waiting,
            approvals,
            results,
            said,
            invokers=setup.invokers,
            policy=self._policy or Policy(),
            validated=setup.rules.validates,
            now=now,
        )
        return [], resumption

    def set_up(
        self,
        common: SharedOptions,
        *,
        model: Model | str | None = None,
        instructions: Instructions | None = None,
        controls: Controls | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> ActiveAgent:
        """What a run has of this agent; the arguments are those of `stream`, and checked."""
        owned = open_model(model) if isinstance(model, str) else None
        asked: Model = owned or model or self.model  # type: ignore[assignment]  # a name has become the owned one
        plan = plan_of(asked)
        roster = self.roster
        choice = tool_choice or self._tool_choice
        check_tool_choice(choice, roster)
        offered = roster.offered(self._policy or Policy())
        search = _search(roster, offered, plan.max_tools, choice)
        invokers = search.invokers if search else roster
        if self._context_window is not None:
            self._context_window.invokers = invokers
        return ActiveAgent(
            agent=self,
            model=asked,
            instructions=self.instructions if instructions is None else instructions,
            overrides=instructions is not None,
            invokers=invokers,
            search=search,
            rules=LoopRules(
                policy=self._policy or Policy(),
                prices=plan.prices,
                answer_after=self._answer_after or plan.answer_after,
                checks_output=bool(self._output or self._output_validator),
                validates=plan.mode.validated,
                quoted_calls=self._quoted_calls,
            ),
            on_repeated_call=self._on_repeated_call or plan.on_repeated_call,
            group=ParallelExecutor(
                invokers,
                auxdata={**self._auxdata, **common.auxdata},
                on_error=self._on_error,
                validated=plan.mode.validated,
                before_call=self._before_call,
                after_call=self._after_call,
                limit=self.max_parallel_calls,
                policy=self._policy,
            ),
            request=Request(
                asked.name,
                (),
                search.declared(()) if search else offered,
                tool_choice=choice,
                controls=merged(self._controls, controls),
                constraint=self._output.constraint if self._output else None,
            ),
            output=self._output,
            check=OutputCheck(self._output, self._output_validator),
            approve=common.approve or self.approve or common.fallback,
            context_window=self._context_window,
            event_filter=self._event_filter,
            cache_seconds=plan.cache_seconds,
            around=aclosing(owned) if owned else self._kept_open() if model is None else nullcontext(),
        )

    def stream_sync(
        self, prompt: UserCanister | ContentLike = "", **options: Unpack[RunOptions]
    ) -> SyncRun[OutputT_co]:
        """`stream` where no event loop runs, for a plain `for`. Raises CallerError where one does."""
        from callboard.agent.sync_run import SyncRun  # noqa: PLC0415  # who does not ask for it does not load it

        _refuse_event_loop("stream_sync", "write `async for event in agent.stream(...)`")
        return SyncRun(self.stream(prompt, **options))

    def as_tool(self, name: str, description: str) -> Tool[..., Any]:
        """A tool that runs this agent: another one asks it in words and gets its output.

        The run is one within the other agent's (see `context` of `stream`). Nothing but its limits bounds its time.
        """

        async def ask(prompt: str, context: Context) -> OutputT_co:
            result = await self.run(prompt, context=context)
            if result.state != "completed":
                raise CallerError(f"{name} gave no answer: {result.why}", hint=result.text)
            return result.output

        return Tool(ask, name=name, description=description, timeout=math.inf)

    def as_handoff(self, name: str, description: str) -> Invoker:
        """A tool `transfer_to_NAME` of another agent, by which its model hands the conversation to this one.

        The run goes on with this agent's instructions, tools, model and output, under the limits that it began with.
        """
        from callboard.agent.handoff import Handoff  # noqa: PLC0415  # few agents

        return Handoff(self, name, description)

    @asynccontextmanager
    async def _kept_open(self) -> AsyncGenerator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._owned is not None and not self._running:
                await self._owned.aclose()


def _search(roster: Roster, offered: tuple[ToolDeclaration, ...], limit: int, choice: ToolChoice) -> ToolSearch | None:
    """The search for tools that are not declared from the beginning, if there are any."""
    searched = roster.searched(offered, limit, keep=choice.name if isinstance(choice, NamedTool) else "")
    if not searched:
        return None
    from callboard.tools.search import ToolSearch  # noqa: PLC0415  # where there are that many

    return ToolSearch(offered, roster, searched, limit)


def _refuse_event_loop(name: str, hint: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise CallerError(f"{name} cannot wait where an event loop runs", hint=hint)
