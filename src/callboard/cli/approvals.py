"""Ask the person at the terminal whether a call may run once, in the whole session, or always.

Rules: a missing terminal means no. The whole call is shown before the question, a long diff on request. Only an
explicit answer that was typed after the question counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from callboard.cli.diffs import HasTell, show_diff
from callboard.cli.line_editor import NO, YES, discard_input, read_line
from callboard.coding.chat.approver import FILE, CallQuestion, ChatAnswer, ChatApprover, SavedApprovals
from callboard.coding.workspace.changed_files import diff_of
from callboard.configuration.ownership import find_user_name
from callboard.text.display import make_visible

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Ask a question, and return the answer; None without a terminal or at the end of the input."""

_ANSWERS: Final[Mapping[str, ChatAnswer | Literal["all"]]] = {
    **dict.fromkeys(YES, "once"),
    **dict.fromkeys(NO, "reject"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("g", "good"), "good"),
    **dict.fromkeys(("a", "all"), "all"),
}
"""Valid answers. After any other input the question is asked again."""


class Approvals(ChatApprover):
    """Asks at the terminal. `ask` reads a line of standard input by default."""

    def __init__(self, project: Path, data: Path, display: HasTell, ask: Ask | None = None) -> None:
        super().__init__(SavedApprovals(project, data / FILE), by=find_user_name(), via="terminal")
        self._display = display
        self._read_answer = ask or self._from_standard_input

    async def ask(self, question: CallQuestion) -> ChatAnswer:
        """Show the call, or an edit's diff instead of its arguments, and read the answer."""
        diff = diff_of(question.changes)
        why = make_visible(question.why)
        self._display.tell(why if diff else f"{why}: {json.dumps(question.invocation.arguments)}", "33")
        more = bool(diff) and show_diff(self._display, diff)
        and_later = f", [s]ession or [g]ood: {make_visible(question.pattern)} from now on" if question.pattern else ""
        text = f"run it? [y]es, [n]o{and_later}"
        while True:
            line = await self._read_answer(f"{text}, [a]ll of the diff" if more else text)
            if line is None:
                self._display.tell("there is no terminal to ask: denied")
                return "nobody"
            answer = _ANSWERS.get(line.strip().lower())
            if answer == "all" and more:
                show_diff(self._display, diff, whole=True)
                more = False
            elif answer in ("once", "reject") or (answer in ("session", "good") and question.pattern):
                return answer
            else:
                self._display.tell("this is not one of the answers", "33")

    async def _from_standard_input(self, question: str) -> str | None:
        if not sys.stdin.isatty():
            return None
        discard_input()
        self._display.tell(question)
        return await read_line()
