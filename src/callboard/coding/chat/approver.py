"""Ask a person whether a call may run once, in the whole session, or for good. A subclass asks the question.

Law: a call runs only if an answer allows it. Answers for good are saved in a file.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from callboard.coding.workspace.changed_files import ChangedFile
from callboard.core import Allow, Answer, Deny, InvocationCanister
from callboard.errors import CallerError
from callboard.execution.approval import EarlierAnswers
from callboard.storage.atomic_file import VERSION, check_version, write_private
from callboard.tools import Rule
from callboard.tools.shell_parser import split_command

FILE: Final = "answers.json"

_PLAIN = re.compile(r"[\w@%+=:,./-]+")


class SavedApprovals:
    """The patterns allowed in one project; `rules` are the rules for good and for this session."""

    def __init__(self, project: Path, file: Path) -> None:
        self._project = str(project)
        self._file = file
        self._by_project = _read(file)
        self._session: list[str] = []

    @property
    def rules(self) -> list[Rule]:
        return [Rule(pattern, "allow") for pattern in (*self._by_project.get(self._project, ()), *self._session)]

    def allow(self, pattern: str, *, for_good: bool) -> None:
        """Allows what a pattern matches; if `for_good`, it is on disk when this returns."""
        if not for_good:
            self._session.append(pattern)
            return
        self._by_project = _read(self._file)
        patterns = self._by_project.setdefault(self._project, [])
        if pattern not in patterns:
            patterns.append(pattern)
        write_private(self._file, json.dumps({"version": VERSION, **self._by_project}, indent=2).encode())


def pattern_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The pattern that allows a call and those like it: the same program and next word of a command, the folder of a
    file. "" if no pattern fits exactly, for example for a command that is not simple.
    """
    command = arguments.get("command")
    if isinstance(command, str):
        words = (split_command(command) or ())[:2]
        plain = words and all(word.certain and _PLAIN.fullmatch(word.text) for word in words)
        return f"{name}({' '.join([word.text for word in words])} *)" if plain else ""
    path = arguments.get("path")
    if isinstance(path, str):
        folder = path.rpartition("/")[0]
        if not _PLAIN.fullmatch(path) or ".." in path or path.startswith("/"):
            return ""
        return f"{name}({folder}/**)" if folder else f"{name}(*)"
    return name


def _read(file: Path) -> dict[str, list[str]]:
    try:
        approvals = json.loads(file.read_bytes())
        if isinstance(approvals, dict):
            check_version(approvals.pop("version", VERSION))
    except FileNotFoundError:
        return {}
    except (TypeError, ValueError) as error:
        raise CallerError(f"not a file of approvals: {error}", path=str(file), hint="fix or delete it") from None
    if not isinstance(approvals, dict) or not all(isinstance(each, list) for each in approvals.values()):
        raise CallerError("not the answers of projects", path=str(file), hint="fix or delete it")
    return approvals


ChatAnswer: TypeAlias = Literal["once", "session", "good", "reject", "nobody"]
"""A person's answer: "session" and "good" allow all calls of the question's pattern. "nobody": no answer."""


class CallQuestion(NamedTuple):
    """A question to a person: whether a call may run, and why we ask.

    `changes` are the effects of an edit. `pattern` is what an answer for the session or for good allows; without a
    pattern, such answers are not offered.
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
        """Return the rules that the person allowed before."""
        return self._saved.rules

    async def __call__(
        self,
        invocation: InvocationCanister,
        why: str,
        *,
        changes: Sequence[ChangedFile] = (),
        pattern: str | None = None,
    ) -> Answer:
        """Ask, and return the answer. Parameters as in CallQuestion; by default the pattern covers similar calls."""
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

    async def message(self) -> str:
        """Return what the person says to the model of a job now, "" for nothing."""
        return ""

    @abstractmethod
    async def ask(self, question: CallQuestion) -> ChatAnswer:
        """Show all of the call, and read the answer."""
