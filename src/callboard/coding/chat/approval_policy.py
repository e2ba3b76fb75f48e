"""Decide which calls of a chat's turn need an answer, and offer the tools of MCP servers.

Law: a question about an edit shows its effect on the current files. An edit that would fail asks no question.

A chat can also use MCP servers. Law: a server's tool never has the name of one of our tools, so permissions for our
tools never apply to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from callboard.coding.agents.explorer import EXPLORE
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_workspace import DEFAULT, JobPolicy
from callboard.coding.agents.phases import READ_GROUPS, actions_of_groups
from callboard.coding.chat.approver import ChatApprover, pattern_of
from callboard.coding.chat.dry_run import dry_run_edit
from callboard.coding.tools import single_action, tool_names
from callboard.coding.workspace.changed_files import ChangedFile
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration import DescribedServer, prepare_ensembles
from callboard.configuration.coding import Access
from callboard.configuration.skills import SKILL
from callboard.core import Allow, Answer, ApprovalAnswered, InvocationCanister, ResultCanister, error_result
from callboard.errors import CallerError
from callboard.execution import ask_approval
from callboard.execution.result_store import READ_RESULT, RESULTS, KeptResults
from callboard.extras import require_extra
from callboard.text.display import collapse
from callboard.tools import Decision, Ensemble, Invoker, InvokerRegistry, Rule, filtered

_MAX_WARNING: Final = 1000
"""Characters of a warning, which may quote a server."""


async def connect_servers(
    servers: Iterable[DescribedServer], results: KeptResults, warn: Callable[[str], None]
) -> list[Ensemble]:
    """Connect the servers. A server that cannot be connected gets a warning, and has no tools until it connects.

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
        {"mcp": enabled}, warn=lambda text: warn(collapse(text.partition("\n")[0], _MAX_WARNING)), result_store=results
    )
    return [each for each in ensembles if each.name != RESULTS]


def without_names_of_ours(ensemble: Ensemble) -> Ensemble:
    """Return the tools that an ensemble has now, without those that have the name of one of ours."""
    ours = {*tool_names(), READ_RESULT, SKILL, EXPLORE}
    return filtered(ensemble, lambda invoker: invoker.name not in ours)


FREE: Final = frozenset((*actions_of_groups(READ_GROUPS), READ_RESULT, SKILL, EXPLORE))
"""Actions that look, and are never asked about."""
ASKS_FIRST: Final = "the chat asks before each change and each command"
"""Reason of the questions that no rule asks for."""
_ASK: Final = Rule("*", "ask")
_OF_OURS: Final = frozenset((RESULTS, SKILL, EXPLORE))
"""Ensembles of ours that do not work in the workspace."""
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
        return decision._replace(why=ASKS_FIRST) if decision.rule == _ASK else decision

    def action_of(self, invoker: Invoker | str, arguments: Mapping[str, Any] | None) -> str:
        """Return our own name of a call's action, such as `read_file`; "" for a tool that is not ours.

        A server can give its tool any name, so the name alone proves nothing.
        """
        invoker = self._invokers[invoker] if isinstance(invoker, str) else invoker
        ensemble = invoker.ensemble
        is_ours = ensemble is not None and (ensemble.connection is self._workspace or ensemble.name in _OF_OURS)
        return single_action(invoker.name, arguments or {}) if is_ours else ""

    def is_free(self, invoker: Invoker) -> bool:
        """Return whether calls of the tool run without a question."""
        choices = invoker.arguments_schema.get("properties", {}).get("action", {}).get("enum", [None])
        return all(self.decide(invoker, {"action": each} if each else {}).permission == "allow" for each in choices)

    async def approve(self, invocation: InvocationCanister, why: str) -> Answer:
        """Return the user's answer. An edit that would fail is let through, for `before_call` to look at it again."""
        outcome = await dry_run_edit(self._invokers[invocation.name], invocation)
        if outcome is not None and outcome.error:
            self._failing.add(invocation.identifier)
            return Allow(by="Callboard, for the edit would fail")
        return await self._ask(invocation, why, outcome.changes if outcome else ())

    async def before_call(self, invocation: InvocationCanister) -> ResultCanister | None:
        """Return the result of an edit that fails, without running it; if it no longer fails, ask about it."""
        if invocation.identifier not in self._failing:
            return None
        outcome = await dry_run_edit(self._invokers[invocation.name], invocation)
        if outcome is None:
            raise AssertionError("only edits are found to fail")
        if outcome.error:
            # The error may show lines of the file, which the model has read then.
            self._workspace.seen = outcome.seen
            return outcome.result
        answer = await ask_approval(lambda call, why: self._ask(call, why, outcome.changes), invocation, ASKS_FIRST)
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
    """Return the pattern of a third-party tool, with its ensemble, so that it allows no tool of ours."""
    names = (invoker.ensemble.name if invoker.ensemble else "", invoker.name)
    return "/".join(names) if all(map(_PLAIN_NAME.fullmatch, names)) else ""


def _pattern(invoker: Invoker, invocation: InvocationCanister) -> str:
    """Return the pattern that an answer for the session or for good allows, from the arguments that rules see."""
    arguments = invoker.coerce(invocation.arguments or {})
    subjects: dict[str, Any] = {}
    for name, subject in invoker.subjects.items():
        # A patch is about several files: no folder says which.
        value = arguments.get(name)
        subjects[subject] = subjects.get(subject) or (value if isinstance(value, str) else "")
    return pattern_of(invoker.name, subjects)
