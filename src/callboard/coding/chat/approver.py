"""Ask a person whether a call may run: once, for the session, or for good. How they are asked is a subclass's.

Law: only an answer that allows a call lets it run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from callboard.coding.chat.dry_run import ChangedFile
from callboard.coding.chat.saved_approvals import SavedApprovals, pattern_of
from callboard.core import Allow, Answer, Deny, InvocationCanister
from callboard.execution.approval import EarlierAnswers
from callboard.tools import Rule

ChatAnswer: TypeAlias = Literal["once", "session", "good", "reject", "nobody"]
"""What a person answers: "session" and "good" allow all calls of the question's pattern. "nobody" was there to answer."""


class CallQuestion(NamedTuple):
    """What a person is asked: whether a call may run, and why that is asked.

    `changes` are what an edit would do. `pattern` is what an answer for the session or for good allows; without one, such
    answers are not offered.
    """

    invocation: InvocationCanister
    why: str
    changes: Sequence[ChangedFile]
    pattern: str


class ChatApprover(ABC):
    """Asks, and remembers what was allowed, as `rules`."""

    def __init__(self, saved: SavedApprovals, *, by: str, via: str) -> None:
        """`by` and `via` say who answers, and from where, as of ApprovalAnswered."""
        self._saved = saved
        self._by = by
        self._via = via
        self._earlier = EarlierAnswers()

    @property
    def rules(self) -> list[Rule]:
        """What the person allowed before."""
        return self._saved.rules

    async def __call__(
        self,
        invocation: InvocationCanister,
        why: str,
        *,
        changes: Sequence[ChangedFile] = (),
        pattern: str | None = None,
    ) -> Answer:
        """The answer; parameters as of CallQuestion. The pattern is by default that of this call and similar ones."""
        if pattern is None:
            pattern = pattern_of(invocation.name, invocation.arguments or {})
        why = self._earlier.mention(invocation, why)
        answer = await self.ask(CallQuestion(invocation, why, changes, pattern))
        if answer == "nobody":
            return Deny(by="nobody", via=self._via)
        if answer == "reject" or (answer != "once" and not pattern):
            return Deny(by=self._by, via=self._via)
        if answer != "once":
            self._saved.allow(pattern, for_good=answer == "good")
        allowed = Allow(by=self._by, via=self._via)
        self._earlier.note(invocation, allowed)
        return allowed

    @abstractmethod
    async def ask(self, question: CallQuestion) -> ChatAnswer:
        """Show all of the call, and read the answer."""
