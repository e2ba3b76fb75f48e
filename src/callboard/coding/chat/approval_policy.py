"""What a chat asks its user.

Owns what runs without asking, what is asked about, and what is shown with the question. Knows nothing of terminals.
Law: an edit that is asked about is shown as what it would do to the files as they are; nobody is asked about one that
would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from callboard.coding.agents.job_request import Assignment
from callboard.coding.agents.permissions import rules_of
from callboard.coding.agents.phases import READS, actions
from callboard.coding.chat.dry_run import rehearse
from callboard.coding.chat.saved_approvals import pattern_of
from callboard.coding.tools import single_action
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration.coding import Rights
from callboard.core import InvocationCanister, ResultCanister, Verdict, error_result
from callboard.execution.result_store import READ_RESULT
from callboard.tools import Ensemble, Invoker, Policy, Rule
from callboard.tools.context import Permits

FREE: Final = frozenset((*actions(READS), READ_RESULT))
"""Actions that look, and are never asked about."""


class Approver(Protocol):
    """Asks a person whether a call may run, and knows what was allowed before. `diff` is what an edit would do,
    `pattern` what answers for the session and for good are about, "" where there are none.
    """

    @property
    def rules(self) -> list[Rule]: ...

    async def __call__(
        self, invocation: InvocationCanister, why: str, *, diff: str = "", pattern: str | None = None
    ) -> Verdict: ...


class Asking(Policy):
    """The policy of a turn: what looks is free, the rest is asked about, unless the rights or a rule say otherwise.

    `approve` and `before` are an agent's; `around` is told when a question begins and when it is answered.
    """

    def __init__(
        self,
        assignment: Assignment,
        approver: Approver,
        *,
        rights: Rights,
        workspace: Workspace,
        ensembles: Iterable[Ensemble],
        around: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._assignment = assignment
        self._approver = approver
        self._rights = rights
        self._workspace = workspace
        self._invokers = {name: invoker for each in ensembles for name, invoker in each.invokers.items()}
        self._around = around
        self._failing: set[str] = set()
        """Edits that were found to fail when they were to be asked about."""

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Any:
        default, *rules = rules_of(self._assignment.kind, self._assignment.settings, self._approver.rules)
        # What is not offered with other rights is no call at all.
        asks = self._rights == "edit" and single_action(invoker.name, arguments or {}) not in FREE
        first = Rule("*", "ask") if asks else default
        permission, why = Policy([first, *rules], root=str(self._workspace.root)).decide(invoker, arguments)
        if permission == "ask" and why == f"the rule {first.pattern!r} says ask":
            why = f"may {invoker.name} run"
        return permission, why

    def permits(self, invoker: Invoker, arguments: Mapping[str, Any]) -> Permits:
        rules = rules_of(self._assignment.kind, self._assignment.settings, self._approver.rules)
        return Policy(rules, root=str(self._workspace.root)).permits(invoker, arguments)

    def is_free(self, invoker: Invoker) -> bool:
        """Whether no call of it is asked about."""
        choices = invoker.arguments_schema.get("properties", {}).get("action", {}).get("enum", [None])
        return all(self.decide(invoker, {"action": each} if each else {})[0] == "allow" for each in choices)

    async def approve(self, invocation: InvocationCanister, why: str) -> Verdict:
        """The user's answer. An edit that would fail is let through, for `before` to look at it again."""
        rehearsal = await rehearse(self._invokers[invocation.name], invocation)
        if rehearsal is not None and rehearsal.error:
            self._failing.add(invocation.identifier)
            return "allow"
        return await self._ask(invocation, why, rehearsal.diff if rehearsal else "")

    async def before(self, invocation: InvocationCanister) -> ResultCanister | None:
        """The result of an edit that fails, which need not run; by now it may not fail, and is asked about."""
        if invocation.identifier not in self._failing:
            return None
        rehearsal = await rehearse(self._invokers[invocation.name], invocation)
        if rehearsal is None:
            raise AssertionError("only edits are found to fail")
        if rehearsal.error:
            # What its error showed is seen.
            self._workspace.seen = rehearsal.seen
            return rehearsal.result
        if await self._ask(invocation, f"may {invocation.name} run", rehearsal.diff) == "allow":
            return None
        return error_result(invocation.identifier, "permission", f"{invocation.name} may not run: the answer was no")

    async def _ask(self, invocation: InvocationCanister, why: str, diff: str) -> Verdict:
        invoker = self._invokers[invocation.name]
        if self.decide(invoker, invocation.arguments)[0] == "allow":
            # Since this call was looked at, an answer for another one has allowed it too.
            return "allow"
        self._around(f"asks whether {invocation.name} may run")
        try:
            return await self._approver(invocation, why, diff=diff, pattern=_pattern(invoker, invocation))
        finally:
            self._around("")


def _pattern(invoker: Invoker, invocation: InvocationCanister) -> str:
    """What an answer for the session or for good is about, by the arguments that permissions look at."""
    given = invoker.understood(invocation.arguments or {})
    about: dict[str, Any] = {}
    for name, subject in invoker.subjects.items():
        # A patch is about several files: no folder says which.
        value = given.get(name)
        about[subject] = about.get(subject) or (value if isinstance(value, str) else "")
    return pattern_of(invoker.name, about)
