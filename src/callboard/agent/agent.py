"""A model with its tools: what stays the same from run to run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from copy import copy
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack

from msgspec.structs import replace
from typing_extensions import TypeForm

from callboard import core
from callboard.agent.arguments import (
    AgentSettings,
    RunOptions,
    check_arguments,
    check_tool_choice,
    merge_controls,
    read_history,
)
from callboard.agent.output_type import Output, OutputCheck, OutputT_co, OutputValidator
from callboard.agent.resume import (
    Interruption,
    Resumption,
    complete_results,
    find_waiting_calls,
    read_interruption,
    read_resumption,
)
from callboard.agent.run import ActiveAgent, OuterRun, Run, RunResult, SharedOptions
from callboard.agent.sync_run import SyncRun
from callboard.errors import CallerError
from callboard.execution import ParallelExecutor
from callboard.loop import GO_ON, LoopRules, ends_with_model
from callboard.modes import get_plan
from callboard.profiles import ModeName
from callboard.profiles.prices import require_price
from callboard.providers import open_model
from callboard.tools import Context, Ensemble, Invoker, InvokerRegistry, Policy, Tool, ToolLike, refuse_clashes

if TYPE_CHECKING:
    from callboard.tools.search import ToolSearch

_NAMED = 5
"""Maximum tools that an agent's repr names."""


class _HasModel:
    """The type of `Agent.model`: the constructor takes names too."""

    model: core.Model


@dataclass(eq=False, repr=False)
class Agent(AgentSettings, _HasModel, Generic[OutputT_co]):
    """Run prompts with a model and tools. `AgentSettings` describes the other parameters.

    Args:
        model: A Model, or a name such as `openai:gpt-4o`. The agent closes the connections of a name after its runs.
        tools: Functions, Tools or Invokers.
        ensembles: Groups of tools. The caller connects and disconnects them.
        skills: Folders of Agent Skills. The model reads their names and descriptions, and loads them with a tool.
        output: The type of the output.
        output_validator: Return what is wrong with an output; the model is then asked again (`Limits.output_retries`).
        base_url: URL of the provider, if `model` is a name. The same holds for `mode` and `profile`.
        mode: How the model is asked for calls.
        profile: Facts that override the known facts about the model.

    Raises:
        CallerError: An argument has the wrong type, or two tools have the same name.
    """

    model: InitVar[core.Model | str]
    tools: InitVar[Iterable[ToolLike]] = ()
    _: KW_ONLY
    ensembles: InitVar[Iterable[Ensemble]] = ()
    skills: InitVar[Iterable[str | Path]] = ()
    output: InitVar[TypeForm[OutputT_co]] = str
    output_validator: OutputValidator[OutputT_co] | None = None
    base_url: InitVar[str] = ""
    mode: InitVar[ModeName | Literal[""]] = ""
    profile: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(  # noqa: PLR0917  # the order of the fields
        self,
        model: core.Model | str,
        tools: Iterable[ToolLike],
        ensembles: Iterable[Ensemble],
        skills: Iterable[str | Path],
        output: TypeForm[OutputT_co],
        base_url: str,
        mode: ModeName | Literal[""],
        profile: Mapping[str, Any] | None,
    ) -> None:
        ensembles = tuple(ensembles) if isinstance(ensembles, Iterable) else ensembles
        skills = tuple(skills) if isinstance(skills, Iterable) and not isinstance(skills, str) else skills
        check_arguments(model=model, ensembles=ensembles, skills=skills, base_url=base_url, mode=mode, profile=profile)
        if not isinstance(model, str) and (base_url or mode or profile):
            raise CallerError("a Model has its own URL, mode and profile", path="model", hint="give its name instead")
        self._owned = (
            open_model(model, base_url=base_url, mode=mode, profile=profile) if isinstance(model, str) else None
        )
        self.model: core.Model = self._owned or model  # type: ignore[assignment]  # a name has become the owned model
        self._runs: set[object] = set()
        """Runs under way, also of agents that were copied from this one: they share its connections."""
        local = Ensemble("local", tools)
        placed = [("tools", local)] if local.invokers else []
        placed += [(f"ensembles[{at}]", each) for at, each in enumerate(ensembles)]
        self.skills_prompt = ""
        """The list of the skills for the model."""
        if skills:
            from callboard.configuration.skills import describe_skills, load_skills, make_skills_ensemble  # noqa: PLC0415  # few agents have any

            loaded = load_skills(skills)
            self.skills_prompt = describe_skills(loaded, get_plan(self.model).context_tokens)
            placed.append(("skills", make_skills_ensemble(loaded)))
        refuse_clashes(placed)
        self._ensembles = tuple([each for _, each in placed])
        self._registry = InvokerRegistry(self._ensembles)
        self._output = None if output is str else Output(output)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Agent.__dataclass_fields__:  # a setting, in the constructor or later
            check_arguments(**{name: value})
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        names = [*self.registry]
        more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
        tools = ", ".join([*names[:_NAMED], *more])
        return f"<Agent {self.model.name}{tools and ': '}{tools}>"

    @property
    def registry(self) -> InvokerRegistry:
        """The tools by the names that models use, rebuilt if an ensemble's tools have changed.

        A run keeps the tools that it started with.
        """
        if not self._registry.is_made_of(self._ensembles):
            self._registry = InvokerRegistry(self._ensembles)
        return self._registry

    async def run(
        self, prompt: core.UserCanister | core.ContentLike = "", **options: Unpack[RunOptions]
    ) -> RunResult[OutputT_co]:
        """Return the result of the `prompt`. `options` are the parameters of `stream`.

        Raises ProviderError if the provider fails, ToolExecutionFailure if a tool fails and the agent fails fast.
        """
        run = self.stream(prompt, **options)
        async for _ in run:
            pass
        if run.result.state == "failed" and run.failure is not None:
            raise run.failure
        return run.result

    def run_sync(
        self, prompt: core.UserCanister | core.ContentLike = "", **options: Unpack[RunOptions]
    ) -> RunResult[OutputT_co]:
        """Return what `run` returns for `prompt` and `options`, without an event loop.

        Raises CallerError inside an event loop, such as in a notebook.
        """
        _refuse_event_loop("run_sync", "write `await agent.run(...)`")
        return asyncio.run(self.run(prompt, **options))

    def stream(
        self, prompt: core.UserCanister | core.ContentLike = "", **options: Unpack[RunOptions]
    ) -> Run[OutputT_co]:
        """Return the run; iterate over it for its events.

        Args:
            prompt: A text, one or several contents, or a UserCanister.
            options: The `RunOptions`. None is the same as leaving an option out.

        Raises:
            CallerError: An argument is not valid, or there is nothing to ask.
        """
        check_arguments(**{name: value for name, value in options.items() if value is not None})
        context, journal = options.get("context"), options.get("journal")
        results, approvals = options.get("results") or {}, options.get("approvals") or {}
        outer = context.run if context is not None and isinstance(context.run, OuterRun) else None
        shared = SharedOptions(
            {**(self.auxdata or {}), **(context.auxdata if context else {}), **(options.get("auxdata") or {})},
            options.get("approve"),
            self.approve or (outer.approve if outer else None),
        )
        active = self.set_up(shared, options)
        canisters = read_history(options.get("history", ()), active.model.name)
        question = prompt if isinstance(prompt, core.UserCanister) else core.UserCanister(core.contents(prompt))
        if not (canisters or question.content or results or approvals):
            raise CallerError("there is nothing to ask", path="prompt", hint="give a prompt or a history")
        now = self.clock()
        bounds = options.get("limits") or self.limits
        if (bounds is not None and bounds.cost is not None) or (outer is not None and outer.budget.is_bounded):
            require_price(active.rules.prices, active.model.name, now, path="budget")
        progress = journal.progress if journal is not None else None
        added: list[core.Canister] = []
        resumption: Resumption | None = None
        interruption: Interruption | None = None
        if progress is not None:
            interruption = read_interruption(canisters, progress, approvals, results, prompt=question, now=now)
        else:
            prompted = (replace(question, timestamp=question.timestamp or now),) if question.content else ()
            added, resumption = self._read_results(
                canisters, results, approvals, prompt=prompted, active=active, now=now
            )
            if not (added or resumption) and ends_with_model(canisters):
                added = [core.UserCanister(core.contents(GO_ON), timestamp=now)]
        loop = active.loop([*canisters, *added], limits=bounds, outer=outer.budget if outer is not None else None)
        return Run(
            loop,
            active,
            shared,
            history_length=progress.history_length if progress else len(canisters),
            clock=self.clock,
            store=self.store,
            outer=outer,
            resumption=resumption,
            journal=journal,
            interruption=interruption,
        )

    def _read_results(
        self,
        canisters: list[core.Canister],
        results: Mapping[str, Any],
        approvals: Mapping[str, core.Answer],
        *,
        prompt: tuple[core.Canister, ...],
        active: ActiveAgent,
        now: datetime,
    ) -> tuple[list[core.Canister], Resumption | None]:
        """Return the canisters that follow the history at once, and the work that the run starts with."""
        if not (results or approvals or any(isinstance(each, core.InvocationCanister) for each in canisters)):
            return [*prompt], None
        waiting = find_waiting_calls(canisters)
        if not approvals:
            return [*complete_results(waiting, results, now), *prompt], None
        resumption = read_resumption(
            waiting,
            approvals,
            results,
            prompt,
            invokers=active.invokers,
            policy=active.rules.policy,
            validated=active.rules.validates,
            now=now,
        )
        return [], resumption

    def set_up(self, shared: SharedOptions, options: RunOptions | None = None) -> ActiveAgent:
        """Return the model, tools and rules that a run gets from this agent.

        The `shared` and other `options` have been checked.
        """
        options = options or {}
        model, instructions = options.get("model"), options.get("instructions")
        owned = open_model(model) if isinstance(model, str) else None
        run_model: core.Model = owned or model or self.model  # type: ignore[assignment]  # a name is now owned
        plan, registry = get_plan(run_model), self.registry
        policy = self.policy or Policy()
        choice = options.get("tool_choice") or self.tool_choice
        check_tool_choice(choice, registry)
        offered = registry.allowed_declarations(policy)
        search = _search(registry, offered, plan.max_tools, choice)
        invokers = search.invokers if search else registry
        if self.context_window is not None:
            self.context_window.invokers = invokers
        return ActiveAgent(
            agent=self,
            model=run_model,
            instructions=self.instructions if instructions is None else instructions,
            overrides=instructions is not None,
            invokers=invokers,
            search=search,
            rules=LoopRules(
                policy=policy,
                prices=plan.prices,
                answer_after=self.answer_after or plan.answer_after,
                checks_output=bool(self._output or self.output_validator),
                validates=plan.mode.validated,
                quoted_calls=self.quoted_calls,
            ),
            on_repeated_call=self.on_repeated_call or plan.on_repeated_call,
            executor=ParallelExecutor(
                invokers,
                auxdata={**(self.auxdata or {}), **shared.auxdata},
                on_error=self.on_error,
                validated=plan.mode.validated,
                before_call=self.before_call,
                after_call=self.after_call,
                limit=self.max_parallel_calls,
                keep_order=self.keep_order,
                policy=self.policy,
            ),
            request=core.Request(
                run_model.name,
                (),
                search.declarations(()) if search else offered,
                tool_choice=choice,
                controls=merge_controls(self.controls or core.Controls(), options.get("controls")),
                constraint=self._output.constraint if self._output else None,
            ),
            output=self._output,
            output_check=OutputCheck(self._output, self.output_validator),
            approve=shared.approve or self.approve or shared.fallback,
            resource=aclosing(owned) if owned else self._keep_open() if model is None else nullcontext(),
        )

    def add_ensemble(self, ensemble: Ensemble) -> Agent[OutputT_co]:
        """Return a copy of this agent that also has the `ensemble`. This agent does not change.

        Raises:
            CallerError: A tool of the ensemble has the name of another tool.
        """
        ensembles = (*self._ensembles, ensemble)
        refuse_clashes([(each.name, each) for each in ensembles])
        agent = copy(self)
        vars(agent).update(_ensembles=ensembles, _registry=InvokerRegistry(ensembles))
        return agent

    def read_output(self, text: str) -> OutputT_co:
        """Return the output that the last `text` of a run contains, as the agent's output type.

        Raises:
            ArgumentsInvalid: The text is not a value of that type.
        """
        return OutputCheck(self._output, None).read(text)

    def stream_sync(
        self, prompt: core.UserCanister | core.ContentLike = "", **options: Unpack[RunOptions]
    ) -> SyncRun[OutputT_co]:
        """Return what `stream` returns for `prompt` and `options`, to iterate with `for`.

        Raises CallerError in an event loop.
        """
        _refuse_event_loop("stream_sync", "write `async for event in agent.stream(...)`")
        return SyncRun(self.stream(prompt, **options))

    def as_tool(self, name: str, description: str) -> Tool[..., Any]:
        """Return a tool with this `name` and `description` that runs this agent: another agent sends it a prompt and
        gets its output.

        The run is nested in the other agent's run (see `context` of `RunOptions`). Only its limits bound its time.
        """

        async def ask(prompt: str, context: Context) -> OutputT_co:
            result = await self.run(prompt, context=context)
            if result.state != "completed":
                raise CallerError(f"{name} gave no answer: {result.why}", hint=result.text)
            return result.output

        return Tool(ask, name=name, description=description, timeout=math.inf)

    def as_handoff(self, name: str, description: str) -> Invoker:
        """Return a tool `transfer_to_NAME`, by which another agent's model hands over the conversation.

        `name` is in the tool's name, and `description` says when to use it. The run continues with this agent's
        instructions, tools, model and output. The limits of the run stay the same.
        """
        return Handoff(self, name, description)

    @asynccontextmanager
    async def _keep_open(self) -> AsyncGenerator[None]:
        run = object()
        self._runs.add(run)
        try:
            yield
        finally:
            self._runs.remove(run)
            if self._owned is not None and not self._runs:
                await self._owned.aclose()


def _search(
    registry: InvokerRegistry, offered: tuple[core.ToolDeclaration, ...], limit: int, choice: core.ToolChoice
) -> ToolSearch | None:
    searched = registry.names_behind_search(
        offered, limit, keep=choice.name if isinstance(choice, core.NamedTool) else ""
    )
    if not searched:
        return None
    from callboard.tools.search import ToolSearch  # noqa: PLC0415  # it imports sqlite3

    return ToolSearch(offered, registry, searched, limit)


def _refuse_event_loop(name: str, hint: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise CallerError(f"{name} cannot wait where an event loop runs", hint=hint)


class Handoff(Invoker):
    """The tool `transfer_to_NAME`: a model uses it to hand the conversation to `agent`.

    Rules, approvals and hooks see its calls like any other call. The loop decides which of several handoffs in a reply
    counts. The run then switches to the other agent.
    """

    hands_over = True

    def __init__(self, agent: Agent[Any], name: str, description: str) -> None:
        async def hand_over(_context: Context, _arguments: Mapping[str, Any]) -> str:
            return f"The conversation is with {name} now."

        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        super().__init__(f"transfer_to_{name}", hand_over, schema, description=description)
        self.agent = agent
        self.to = name
