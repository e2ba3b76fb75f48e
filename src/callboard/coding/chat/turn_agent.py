"""The agent of a chat's turn: its tools, its permissions, and what it is told first; and which calls are asked about.

Law: an edit that is asked about is shown as what it would do to the files as they are; nobody is asked about one that
would fail.

A chat may be given MCP servers besides its own tools. Law: a tool of theirs never has the name of one of ours, so what is free for ours, or was allowed once, is not so for
theirs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from callboard.agent import Agent
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_workspace import DEFAULT, INSTRUCTIONS, MAX_FILE, JobPolicy
from callboard.coding.agents.phases import READ_GROUPS, actions_of_groups
from callboard.coding.agents.prompts import instructions
from callboard.coding.chat.approver import ChatApprover, pattern_of
from callboard.coding.chat.dry_run import ChangedFile, dry_run_edit
from callboard.coding.tools import make_ensemble, purpose_of, single_action, tool_names
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration import DescribedServer, prepare_ensembles
from callboard.configuration.coding import CHAT_ROUNDS, Access
from callboard.core import (
    Allow,
    Answer,
    ApprovalAnswered,
    InvocationCanister,
    Model,
    ResultCanister,
    error_result,
    pipe,
)
from callboard.errors import CallerError
from callboard.execution import ask_approval
from callboard.execution.result_store import READ_RESULT, RESULTS, KeptResults
from callboard.extras import require_extra
from callboard.loop import ContextWindow, Limits, RepetitionFilter
from callboard.modes import HallucinatedResultFilter, get_plan
from callboard.text.display import collapse
from callboard.tools import Decision, Ensemble, Invoker, InvokerRegistry, Rule, filtered

_MAX_WARNING: Final = 1000
"""Characters of a warning, which may quote a server."""


async def connect_servers(
    servers: Iterable[DescribedServer], results: KeptResults, warn: Callable[[str], None]
) -> list[Ensemble]:
    """The connected servers. One that cannot be connected is warned of, and has no tools until it can.

    So are all of them where the extra `mcp` is not installed.

    Args:
        servers: The servers.
        results: Holds what of their results is too long for the model.
        warn: Called with a line of text.

    Raises:
        CallerError: Two servers have one name.
    """
    enabled = [each for each in servers if each.settings.enabled]
    if not enabled:
        return []
    try:
        require_extra("mcp")
    except CallerError as error:
        warn(f"without the tools of {', '.join([each.name for each in enabled])}: {error}")
        return []
    ensembles = await prepare_ensembles(
        {"mcp": enabled}, warn=lambda text: warn(collapse(text, _MAX_WARNING)), result_store=results
    )
    return [each for each in ensembles if each.name != RESULTS]


def without_names_of_ours(ensemble: Ensemble) -> Ensemble:
    """The tools that an ensemble has now, without those that have the name of one of ours."""
    ours = {*tool_names(), READ_RESULT}
    return filtered(ensemble, lambda invoker: invoker.name not in ours)


FREE: Final = frozenset((*actions_of_groups(READ_GROUPS), READ_RESULT))
"""Actions that look, and are never asked about."""
_ASK: Final = Rule("*", "ask")
_PLAIN_NAME: Final = re.compile(r"[\w.-]+")
"""A name in which nothing is a pattern."""


class ApprovalPolicy(JobPolicy):
    """The policy of a turn: looking is free; all else is asked about, unless the access or a rule says otherwise.

    An agent takes `approve` and `before_call`. `on_answer` gets the answers of `before_call`, which the run does not
    know.
    """

    def __init__(
        self,
        request: JobRequest,
        approver: ChatApprover,
        *,
        access: Access,
        workspace: Workspace,
        ensembles: Iterable[Ensemble],
        on_answer: Callable[[ApprovalAnswered], None],
    ) -> None:
        """`ensembles` are all that the model can call; those that do not work in the workspace are somebody else's."""
        super().__init__(request, approver, str(workspace.root))
        self._ask_person = approver
        self._access = access
        self._workspace = workspace
        self._invokers = InvokerRegistry(ensembles)
        self._on_answer = on_answer
        self._failing: set[str] = set()
        """Edits whose dry run failed when they were to be asked about."""

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Decision:
        # With other access a call that may not run is not offered at all.
        asks = self._access == "edit" and self.action_of(invoker, arguments) not in FREE
        decision = self.current(_ASK if asks else DEFAULT).decide(invoker, arguments)
        return decision._replace(why=f"may {invoker.name} run") if decision.rule == _ASK else decision

    def action_of(self, invoker: Invoker | str, arguments: Mapping[str, Any] | None) -> str:
        """The own name of the action that a call is, such as `read_file`; "" for a tool that is not ours.

        Whoever offers a tool chooses its name, so a name alone says nothing.
        """
        invoker = self._invokers[invoker] if isinstance(invoker, str) else invoker
        ensemble = invoker.ensemble
        is_ours = ensemble is not None and (ensemble.connection is self._workspace or ensemble.name == RESULTS)
        return single_action(invoker.name, arguments or {}) if is_ours else ""

    def is_free(self, invoker: Invoker) -> bool:
        """Whether no call of the tool is asked about."""
        choices = invoker.arguments_schema.get("properties", {}).get("action", {}).get("enum", [None])
        return all(self.decide(invoker, {"action": each} if each else {}).permission == "allow" for each in choices)

    async def approve(self, invocation: InvocationCanister, why: str) -> Answer:
        """The user's answer. An edit that would fail is let through, for `before_call` to look at it again."""
        outcome = await dry_run_edit(self._invokers[invocation.name], invocation)
        if outcome is not None and outcome.error:
            self._failing.add(invocation.identifier)
            return Allow(by="Callboard, for the edit would fail")
        return await self._ask(invocation, why, outcome.changes if outcome else ())

    async def before_call(self, invocation: InvocationCanister) -> ResultCanister | None:
        """The result of an edit that fails, which need not run; by now it may not fail, and is asked about."""
        if invocation.identifier not in self._failing:
            return None
        outcome = await dry_run_edit(self._invokers[invocation.name], invocation)
        if outcome is None:
            raise AssertionError("only edits are found to fail")
        if outcome.error:
            # The error may show lines of the file, which the model has read then.
            self._workspace.seen = outcome.seen
            return outcome.result
        answer = await ask_approval(
            lambda call, why: self._ask(call, why, outcome.changes), invocation, f"may {invocation.name} run"
        )
        self._on_answer(replace(answer, timestamp=datetime.now(UTC)))
        if answer.verdict == "allow":
            return None
        return error_result(invocation.identifier, "permission", f"{invocation.name} may not run: the answer was no")

    async def _ask(self, invocation: InvocationCanister, why: str, changes: Sequence[ChangedFile]) -> Answer:
        invoker = self._invokers[invocation.name]
        is_ours = bool(self.action_of(invoker, invocation.arguments))
        pattern = _pattern(invoker, invocation) if is_ours else _foreign_pattern(invoker)
        if not invocation.quoted_from and self.decide(invoker, invocation.arguments).permission == "allow":
            # Since this call was looked at, an answer for another one has allowed it too.
            return Allow(by="an answer about another call")
        return await self._ask_person(invocation, why, changes=changes, pattern=pattern)


def _foreign_pattern(invoker: Invoker) -> str:
    """The pattern of a tool of somebody else's: with its ensemble, so that it allows no tool of ours of that name."""
    names = (invoker.ensemble.name if invoker.ensemble else "", invoker.name)
    return "/".join(names) if all(map(_PLAIN_NAME.fullmatch, names)) else ""


def _pattern(invoker: Invoker, invocation: InvocationCanister) -> str:
    """What an answer for the session or for good allows, by the arguments that permissions look at."""
    arguments = invoker.coerce(invocation.arguments or {})
    subjects: dict[str, Any] = {}
    for name, subject in invoker.subjects.items():
        # A patch is about several files: no folder says which.
        value = arguments.get(name)
        subjects[subject] = subjects.get(subject) or (value if isinstance(value, str) else "")
    return pattern_of(invoker.name, subjects)


_ALL: Final = actions_of_groups(("look", "history", "edit", "commit", "git_checkout", "git_branch", "check"))
_FEW: Final = (
    *("read_file", "list_directory", "grep", "find_files", "git_status", "git_diff"),
    *("write_file", "replace_in_file", "append_file", "delete_file", "run_tests", "bash"),
)
"""For models that keep to one thing at a time."""
_CHANGES_NO_FILE: Final = frozenset((*FREE, *actions_of_groups(("commit",))))


@dataclass(eq=False)
class TurnAgent:
    """Makes the agents of a chat's turns."""

    request: JobRequest
    model: InitVar[Model]
    workspace: Workspace
    """The user's own tree."""
    results: KeptResults
    """Holds what was truncated for the model."""
    approver: ChatApprover
    _: KW_ONLY
    ensembles: InitVar[Iterable[Ensemble]] = ()
    """Tools of others, which the model gets unless it may only look. Who made them connects them."""
    on_answer: Callable[[ApprovalAnswered], None]
    """Gets the answers that the run does not know."""
    before_change: Callable[[], Awaitable[None]]
    """Called before a call that may change files."""

    def __post_init__(self, model: Model, ensembles: Iterable[Ensemble]) -> None:
        self._further = ensembles
        self._last_policy: ApprovalPolicy | None = None
        self.use_model(model)

    def use_model(self, model: Model) -> None:
        """From the next turn on, another model answers."""
        context, plan = self.request.settings.coding.context, get_plan(model)
        self._model = model
        self._single = plan.coding == "short"
        self._context_window = ContextWindow(
            limit=plan.context_tokens,
            threshold=context.compact_at,
            keep=context.keep_rounds,
            every=context.compact_every_n_rounds or 0,
        )

    def agent(self, access: Access, budget: float | None = None) -> Agent:
        """The agent of one turn, which may cost so many US dollars."""
        text = ""
        with suppress(OSError):
            text = self.workspace.files.read(INSTRUCTIONS, MAX_FILE).decode("utf-8", "replace")
        ensembles = self._ensembles(access)
        policy = self._last_policy = self._policy(ensembles, access)

        async def before_call(invocation: InvocationCanister) -> ResultCanister | None:
            result = await policy.before_call(invocation)
            if result is None and policy.action_of(invocation.name, invocation.arguments) not in _CHANGES_NO_FILE:
                await self.before_change()
            return result

        return Agent(
            self._model,
            ensembles=ensembles,
            instructions=instructions(self.request.settings.coding.project, text),
            limits=Limits(rounds=(self.request.max_rounds or CHAT_ROUNDS) - 1, errors=None, cost=budget),
            policy=policy,
            approve=policy.approve,
            before_call=before_call,
            after_call=self._after_call,
            answer_after="model",
            on_repeated_call="warn",
            context_window=self._context_window,
            max_parallel_calls=1,
            event_filter=lambda: pipe(RepetitionFilter(), HallucinatedResultFilter()),
        )

    def tools(self, access: Access) -> list[tuple[str, str, bool]]:
        """The tools: the name, what it does, and whether all of it runs without asking."""
        ensembles = self._ensembles(access)
        policy = self._policy(ensembles, access)
        invokers = [invoker for each in ensembles for invoker in each.invokers.values()]
        return [(each.name, purpose_of(each), policy.is_free(each)) for each in invokers]

    def action_of(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """The own name of what a call does, such as `read_file`; "" for a tool that is not ours."""
        if self._last_policy is None:
            self._last_policy = self._policy(self._ensembles("full"), "full")
        return self._last_policy.action_of(name, arguments)

    def _ensembles(self, access: Access) -> list[Ensemble]:
        names = _FEW if self._single else _ALL
        may_change = access != "read-only"
        offered = [name for name in names if may_change or name in FREE]
        # What a tool of others does is known from its own words alone.
        further = [without_names_of_ours(each) for each in self._further] if may_change else []
        return [make_ensemble(self.workspace, offered, single=self._single), self.results.ensemble(), *further]

    def _policy(self, ensembles: list[Ensemble], access: Access) -> ApprovalPolicy:
        return ApprovalPolicy(
            self.request,
            self.approver,
            access=access,
            workspace=self.workspace,
            ensembles=ensembles,
            on_answer=self.on_answer,
        )

    async def _after_call(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        limit = self.request.settings.coding.context.result_limit(invocation.name)
        return self.results.truncate(invocation.name, result, limit)
