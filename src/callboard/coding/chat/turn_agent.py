"""The agent of a chat's turn: its tools, its permissions, and what it is told first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from callboard.agent import Agent
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_workspace import INSTRUCTIONS, MAX_FILE
from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.agents.prompts import instructions
from callboard.coding.chat.approval_policy import FREE, ApprovalPolicy
from callboard.coding.chat.approver import ChatApprover
from callboard.coding.chat.mcp_servers import without_names_of_ours
from callboard.coding.tools import make_ensemble, purpose_of
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration.coding import CHAT_ROUNDS, Access
from callboard.core import ApprovalAnswered, InvocationCanister, Model, ResultCanister, pipe
from callboard.execution.result_store import KeptResults
from callboard.loop import ContextWindow, Limits, RepetitionFilter
from callboard.modes import HallucinatedResultFilter, get_plan
from callboard.tools import Ensemble

_ALL: Final = actions_of_groups(("look", "history", "edit", "commit", "git_checkout", "git_branch", "check"))
_FEW: Final = (
    *("read_file", "list_directory", "grep", "find_files", "git_status", "git_diff"),
    *("write_file", "replace_in_file", "append_file", "delete_file", "run_tests", "bash"),
)
"""For models that keep to one thing at a time."""
_CHANGES_NO_FILE: Final = frozenset((*FREE, *actions_of_groups(("commit",))))


class TurnAgent:
    """Makes the agents of a chat's turns.

    Args:
        request: The chat's.
        model: Answers.
        workspace: The user's own tree.
        results: Holds what was truncated for the model.
        approver: Asks the user.
        ensembles: Tools of others, which the model gets unless it may only look. Who made them connects them.
        on_question: Gets what is asked, and "" when it is answered.
        on_answer: Gets the answers that the run does not know.
        before_change: Called before a call that may change files.
    """

    def __init__(
        self,
        request: JobRequest,
        model: Model,
        workspace: Workspace,
        results: KeptResults,
        approver: ChatApprover,
        *,
        ensembles: Iterable[Ensemble] = (),
        on_question: Callable[[str], None],
        on_answer: Callable[[ApprovalAnswered], None],
        before_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._request = request
        self._workspace = workspace
        self._results = results
        self._approver = approver
        self._further = ensembles
        self._on_question = on_question
        self._on_answer = on_answer
        self._before_change = before_change
        self._last_policy: ApprovalPolicy | None = None
        self.use_model(model)

    def use_model(self, model: Model) -> None:
        """From the next turn on, another model answers."""
        context, plan = self._request.settings.coding.context, get_plan(model)
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
            text = self._workspace.files.read(INSTRUCTIONS, MAX_FILE).decode("utf-8", "replace")
        ensembles = self._ensembles(access)
        policy = self._last_policy = self._policy(ensembles, access)

        async def before_call(invocation: InvocationCanister) -> ResultCanister | None:
            result = await policy.before_call(invocation)
            if result is None and policy.action_of(invocation.name, invocation.arguments) not in _CHANGES_NO_FILE:
                await self._before_change()
            return result

        return Agent(
            self._model,
            ensembles=ensembles,
            instructions=instructions(self._request.settings.coding.project, text),
            limits=Limits(rounds=(self._request.max_rounds or CHAT_ROUNDS) - 1, errors=None, cost=budget),
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
        return [make_ensemble(self._workspace, offered, single=self._single), self._results.ensemble(), *further]

    def _policy(self, ensembles: list[Ensemble], access: Access) -> ApprovalPolicy:
        return ApprovalPolicy(
            self._request,
            self._approver,
            access=access,
            workspace=self._workspace,
            ensembles=ensembles,
            on_question=self._on_question,
            on_answer=self._on_answer,
        )

    async def _after_call(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        limit = self._request.settings.coding.context.result_limit(invocation.name)
        return self._results.truncate(invocation.name, result, limit)
