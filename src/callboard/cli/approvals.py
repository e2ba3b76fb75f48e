"""Ask the person at the terminal whether a call may run: once, for the session, or for good.

Law: without a person the answer is no; all of a call is shown before the question, of a long diff at least on request.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from callboard.cli.line_editor import read_line
from callboard.coding.chat.dry_run import ChangedFile, diff_of
from callboard.coding.chat.saved_approvals import FILE, SavedApprovals, pattern_of
from callboard.core import InvocationCanister, Verdict
from callboard.text.display import make_visible
from callboard.tools import Rule

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Asks a question, and gives the answer; None where nobody is here."""

MAX_LINES: Final = 120
"""Lines of a diff that are shown before the person asks for all of it."""
MAX_WIDTH: Final = 400

_ANSWERS: Final = {"y": "y", "yes": "y", "s": "s", "session": "s", "g": "g", "good": "g", "a": "a", "all": "a"}
"""The answers. Anything else is a no: "yesterday" is not "yes"."""

_COLORS: Final = (("+++", "1"), ("---", "1"), ("@@", "36"), ("+", "32"), ("-", "31"))


class HasTell(Protocol):
    def tell(self, line: str, color: str = "") -> None: ...


class Approvals:
    """Asks, and remembers what was allowed, as `rules`. `ask` reads a line of standard input by default."""

    def __init__(self, project: Path, data: Path, display: HasTell, ask: Ask | None = None) -> None:
        self._saved = SavedApprovals(project, data / FILE)
        self._display = display
        self._ask = ask or self._from_standard_input

    @property
    def rules(self) -> list[Rule]:
        return self._saved.rules

    async def __call__(
        self,
        invocation: InvocationCanister,
        why: str,
        *,
        changes: Sequence[ChangedFile] = (),
        pattern: str | None = None,
    ) -> Verdict:
        """The answer.

        Args:
            invocation: The call.
            why: Why it is asked about.
            changes: What an edit would do; it is shown in place of the arguments.
            pattern: What "session" and "good" will allow, by default this call and similar ones. If it is empty, they
                are not offered.
        """
        diff = diff_of(changes)
        reason = make_visible(why)
        self._display.tell(reason if diff else f"{reason}: {json.dumps(invocation.arguments)}", "33")
        more = bool(diff) and show_diff(self._display, diff)
        if pattern is None:
            pattern = pattern_of(invocation.name, invocation.arguments or {})
        and_later = f", [s]ession or [g]ood: {make_visible(pattern)} from now on" if pattern else ""
        question = f"run it? [y]es, [n]o{and_later}"
        answer = await self._answer(f"{question}, [a]ll of the diff" if more else question)
        if more and answer == "a":
            show_diff(self._display, diff, whole=True)
            answer = await self._answer(question)
        if pattern and answer in {"s", "g"}:
            self._saved.allow(pattern, for_good=answer == "g")
            return "allow"
        return "allow" if answer == "y" else "deny"

    async def _answer(self, question: str) -> str:
        answer = await self._ask(question)
        if answer is None:
            self._display.tell("nobody is here to ask: denied")
            return ""
        return _ANSWERS.get(answer.strip().lower(), "")

    async def _from_standard_input(self, question: str) -> str | None:
        if not sys.stdin.isatty():
            return None
        self._display.tell(question)
        return await read_line()


def show_diff(display: HasTell, diff: str, *, whole: bool = False) -> bool:
    """Shows a diff, coloured and escaped; whether there is more than was shown."""
    # Only LF ends a line.
    lines = diff.removesuffix("\n").split("\n")
    more = not whole and len(lines) > MAX_LINES
    for line in lines[:MAX_LINES] if more else lines:
        cut = line if whole or len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}... ({len(line)} characters)"
        display.tell(
            make_visible(cut, keep="\t"), next((color for begin, color in _COLORS if line.startswith(begin)), "")
        )
    if more:
        display.tell(f"... {len(lines) - MAX_LINES} more lines", "33")
    return more or (not whole and any(len(line) > MAX_WIDTH for line in lines))
