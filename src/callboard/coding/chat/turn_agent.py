"""What a chat offers its model.

Owns the choice of tools, who is asked about them, and the agent of a turn. Knows nothing of turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from callboard.agent import Agent
from callboard.coding.agents.job_request import Assignment
from callboard.coding.agents.job_workspace import INSTRUCTIONS, MAX_FILE
from callboard.coding.agents.phases import actions
from callboard.coding.agents.prompts import instructions
from callboard.coding.chat.approval_policy import FREE, Approver, Asking
from callboard.coding.tools import make_ensemble, single_action
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration.coding import CHAT_ROUNDS, Rights
from callboard.core import InvocationCanister, Model, ResultCanister, TextualContent, contents
from callboard.execution.result_store import KeptResults
from callboard.loop import ContextWindow, HallucinatedResultFilter, Limits
from callboard.loop.cache_watch import CacheWatch
from callboard.modes import plan_of
from callboard.tools import Ensemble

_ALL: Final = actions(("look", "history", "edit", "commit", "git_checkout", "git_branch", "check"))
_FEW: Final = (
    *("read_file", "list_directory", "grep", "find_files", "git_status", "git_diff"),
    *("write_file", "replace_in_file", "append_file", "delete_file", "run_tests", "bash"),
)
"""What models are offered that keep to one thing at a time."""
_STILL: Final = frozenset((*FREE, *actions(("commit",))))
"""What changes no file."""


class Offer:
    """What `model` may do in a workspace. `around` is told when a question begins and when it is answered, `changing`
    before a call that may change files; `kept` is where long results are.
    """

    def __init__(
        self,
        assignment: Assignment,
        model: Model,
        workspace: Workspace,
        kept: KeptResults,
        approver: Approver,
        *,
        around: Callable[[str], None],
        changing: Callable[[], Awaitable[None]],
    ) -> None:
        context, plan = assignment.settings.coding.context, plan_of(model)
        self._assignment = assignment
        self._model = model
        self._workspace = workspace
        self._kept = kept
        self._approver = approver
        self._around = around
        self._changing = changing
        self._cache_watch = CacheWatch()
        self._single = plan.coding == "short"
        self._view = ContextWindow(
            limit=plan.context_tokens,
            threshold=context.compact_at,
            keep=context.keep_rounds,
            every=context.compact_every_n_rounds or 0,
        )

    def agent(self, rights: Rights) -> Agent:
        """The agent of one turn."""
        coding = self._assignment.settings.coding
        mode = coding.modes.get("chat")
        rounds = self._assignment.rounds or (mode and mode.rounds) or coding.limits.max_inference_runs or CHAT_ROUNDS
        text = ""
        with suppress(OSError):
            text = self._workspace.files.read(INSTRUCTIONS, MAX_FILE).decode("utf-8", "replace")
        ensembles = self._ensembles(rights)
        asking = self._asking(ensembles, rights)

        async def before(invocation: InvocationCanister) -> ResultCanister | None:
            result = await asking.before(invocation)
            if result is None and single_action(invocation.name, invocation.arguments or {}) not in _STILL:
                await self._changing()
            return result

        agent = Agent(
            self._model,
            ensembles=ensembles,
            instructions=instructions(coding.project, text),
            limits=Limits(rounds=rounds, errors=None),
            policy=asking,
            approve=asking.approve,
            before_call=before,
            after_call=self._after,
            answer_after="model",
            on_repeated_call="warn",
            context_window=self._view,
            max_parallel_calls=1,
            event_filter=HallucinatedResultFilter,
        )
        agent.cache_watch = self._cache_watch
        return agent

    def tools(self, rights: Rights) -> list[tuple[str, str, bool]]:
        """The tools: the name, what it does, and whether all of it runs without asking."""
        ensembles = self._ensembles(rights)
        asking = self._asking(ensembles, rights)
        return [
            (invoker.name, invoker.description.partition("\n")[0].removesuffix(" Actions:"), asking.is_free(invoker))
            for each in ensembles
            for invoker in each.invokers.values()
        ]

    def _ensembles(self, rights: Rights) -> list[Ensemble]:
        names = _FEW if self._single else _ALL
        offered = [name for name in names if rights != "read-only" or name in FREE]
        return [make_ensemble(self._workspace, offered, single=self._single), self._kept.ensemble()]

    def _asking(self, ensembles: Iterable[Ensemble], rights: Rights) -> Asking:
        return Asking(
            self._assignment,
            self._approver,
            rights=rights,
            workspace=self._workspace,
            ensembles=ensembles,
            around=self._around,
        )

    async def _after(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister | None:
        limit = self._assignment.settings.coding.context.result_limit(invocation.name)
        text = result.text
        if len(text) <= limit or not all(isinstance(each, TextualContent) for each in result.content):
            return None
        return msgspec.structs.replace(result, content=contents(self._kept.truncate(invocation.name, text, limit)))
