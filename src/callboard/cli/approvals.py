"""Ask the person at the terminal whether a call may run once, in the whole session, or always; after ctrl-C, what to say.

Rules: a missing terminal means no. The whole call is shown before the question, a long diff on request. Only an
explicit answer that was typed after the question counts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from callboard.cli.diffs import HasTell, show_diff
from callboard.cli.line_editor import NO, YES, discard_input, read_line
from callboard.cli.questions import describe_call, describe_changes
from callboard.coding.chat.approval_policy import ASKS_FIRST
from callboard.coding.chat.approver import FILE, CallQuestion, ChatAnswer, ChatApprover, SavedApprovals
from callboard.coding.workspace.changed_files import diff_of
from callboard.configuration.ownership import find_user_name
from callboard.text.display import make_visible

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Ask a question, and return the answer; None without a terminal or at the end of the input."""

_ANSWERS: Final[Mapping[str, ChatAnswer | Literal["more"]]] = {
    **dict.fromkeys(YES, "once"),
    **dict.fromkeys(NO, "reject"),
    **dict.fromkeys(("a", "always"), "session"),
    **dict.fromkeys(("p", "permanently"), "good"),
    **dict.fromkeys(("m", "more"), "more"),
}
"""Valid answers. After any other input the question is asked again."""

_PAUSE: Final = "You can say something before the next reply. Ctrl-C again stops the job."
_MESSAGE: Final = "Say something to the model (Enter to continue, Ctrl-C to stop):"


class HasStatus(HasTell, Protocol):
    def hold_status(self) -> AbstractContextManager[None]: ...

    def mark_reviewed(self, paths: Iterable[str]) -> None: ...


class Approvals(ChatApprover):
    """Asks at the terminal. `ask` reads a line of standard input by default."""

    def __init__(self, project: Path, data: Path, display: HasStatus, ask: Ask | None = None) -> None:
        super().__init__(SavedApprovals(project, data / FILE), by=find_user_name(), via="terminal")
        self._display = display
        self._read_answer = ask or self._from_standard_input
        self.can_pause = False
        """True if ctrl-C asks for a message before the next reply, and does not stop the job."""
        self._is_paused = False

    async def ask(self, question: CallQuestion) -> ChatAnswer:
        """Show the call, or an edit's diff instead of its arguments, and read the answer."""
        can_pause, self.can_pause = self.can_pause, False
        with self._display.hold_status():
            answer = await self._ask(question)
        self.can_pause = can_pause
        if answer not in ("reject", "nobody"):
            self._display.mark_reviewed([each.path for each in question.changes])
        return answer

    def pause(self) -> bool:
        """Handle ctrl-C by asking for a message before the next reply. Return False if ctrl-C has to stop the job."""
        if not self.can_pause:
            return False
        self.can_pause, self._is_paused = False, True
        asyncio.get_running_loop().call_soon_threadsafe(self._display.tell, _PAUSE, "33")
        return True

    async def message(self) -> str:
        line: str | None = ""
        if self._is_paused:
            with self._display.hold_status():
                while line == "":  # several lines were pasted
                    line = await self._read_answer(_MESSAGE)
            self.can_pause, self._is_paused = True, False
        return (line or "").strip()

    async def _ask(self, question: CallQuestion) -> ChatAnswer:
        invocation, diff = question.invocation, diff_of(question.changes)
        if why := make_visible(question.why.removeprefix(ASKS_FIRST).lstrip(". ")):
            self._display.tell(why, "33")
        more = bool(diff) and show_diff(self._display, diff)
        what = describe_changes(question.changes) if diff else describe_call(invocation.name, invocation.arguments)
        later = ", [a]lways in this session, [p]ermanently allow " if question.pattern else ""
        text = f"[y]es, [n]o{later}{make_visible(question.pattern)}"
        while True:
            self._display.tell(what, "33")
            line = await self._read_answer(f"{text}, [m]ore of the diff" if more else text)
            if line is None:
                self._display.tell("No terminal to confirm in: denied")
                return "nobody"
            answer = _ANSWERS.get(line.strip().lower())
            if answer == "more" and more:
                show_diff(self._display, diff, whole=True)
                more = False
            elif answer in ("once", "reject") or (answer in ("session", "good") and question.pattern):
                return answer
            else:
                self._display.tell("This is not one of the answers.", "33")

    async def _from_standard_input(self, question: str) -> str | None:
        if not sys.stdin.isatty():
            return None
        discard_input()
        self._display.tell(question)
        return await read_line()
