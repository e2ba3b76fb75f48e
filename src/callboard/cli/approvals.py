"""A person's answers at the terminal.

Owns the question and what each answer means: once, for the session, for good; and how a difference is shown. Knows
nothing of who asks.
Law: without a person it is no; nobody is asked about what was not shown, or of a long difference can be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from callboard.coding.chat.saved_approvals import FILE, SavedApprovals, pattern_of
from callboard.core import InvocationCanister, Verdict
from callboard.text.display import escape
from callboard.tools import Rule

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Puts a question, and gives the answer; None where nobody is here."""

MAX_LINES: Final = 120
"""Lines of a difference that are shown before more is asked for."""
MAX_WIDTH: Final = 400

_ANSWERS: Final = {"y": "y", "yes": "y", "s": "s", "session": "s", "g": "g", "good": "g", "a": "a", "all": "a"}
"""What may be answered. Whatever else is typed is a no: "yesterday" is not "yes"."""

_COLORS: Final = (("+++", "1"), ("---", "1"), ("@@", "36"), ("+", "32"), ("-", "31"))


class Tells(Protocol):
    def tell(self, line: str, color: str = "") -> None: ...


class Approvals:
    """Asks, and remembers: `rules` are what was allowed before. `ask` is by default a line of standard input."""

    def __init__(self, project: Path, data: Path, display: Tells, ask: Ask | None = None) -> None:
        self._answers = SavedApprovals(project, data / FILE)
        self._display = display
        self._ask = ask or self._from_standard_input

    @property
    def rules(self) -> list[Rule]:
        return self._answers.rules

    async def __call__(
        self, invocation: InvocationCanister, why: str, *, diff: str = "", pattern: str | None = None
    ) -> Verdict:
        """The answer. `diff` is what an edit would do, shown in place of its arguments; `pattern` what an answer for
        the session or for good is about, by default the call and those like it; with "" there is none.
        """
        # All of it, and escaped: nobody approves what was not shown.
        self._display.tell(why if diff else f"{why}: {json.dumps(invocation.arguments)}", "33")
        more = bool(diff) and tell_diff(self._display, diff)
        if pattern is None:
            pattern = pattern_of(invocation.name, invocation.arguments or {})
        lasting = f", [s]ession or [g]ood: {escape(pattern)} from now on" if pattern else ""
        question = f"run it? [y]es, [n]o{lasting}"
        answer = await self._answer(f"{question}, [a]ll of the diff" if more else question)
        if more and answer == "a":
            tell_diff(self._display, diff, whole=True)
            answer = await self._answer(question)
        if pattern and answer in {"s", "g"}:
            self._answers.allow(pattern, for_good=answer == "g")
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
        from callboard.execution.thread_pool import ThreadPool  # noqa: PLC0415  # only where somebody is asked

        self._display.tell(question)
        answer: str = await ThreadPool(1).run(sys.stdin.readline)
        return answer


def tell_diff(display: Tells, diff: str, *, whole: bool = False) -> bool:
    """Shows a difference, coloured, without what a terminal would obey; whether there is more than was shown."""
    lines = [*islice(_lines(diff), None if whole else MAX_LINES + 1)]
    more = not whole and len(lines) > MAX_LINES
    for line in lines[:MAX_LINES] if more else lines:
        cut = line if whole or len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}... ({len(line)} characters)"
        display.tell(escape(cut, keep="\t"), next((color for begin, color in _COLORS if line.startswith(begin)), ""))
    if more:
        display.tell(f"... {diff.count(chr(10)) - MAX_LINES} more lines", "33")
    return more or (not whole and any(len(line) > MAX_WIDTH for line in lines))


def _lines(text: str) -> Iterator[str]:
    """Its lines: only LF ends one."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1
