"""A person's answers at the terminal.

Owns the question and what each answer means: once, for the session, for good. Knows nothing of who asks.
Law: without a person it is no; nobody is asked about what was not shown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from callboard.coding.answers import FILE, Answers, pattern_of
from callboard.core import InvocationCanister, Verdict
from callboard.tools import Rule


class Tells(Protocol):
    def tell(self, line: str, color: str = "") -> None: ...


class Approvals:
    """Asks, and remembers: `rules` are what was allowed before. `preview` gives lines to show with a call, a diff."""

    def __init__(
        self,
        project: Path,
        data: Path,
        display: Tells,
        preview: Callable[[InvocationCanister], str] = lambda _: "",
    ) -> None:
        self._answers = Answers(project, data / FILE)
        self._display = display
        self._preview = preview

    @property
    def rules(self) -> list[Rule]:
        return self._answers.rules

    async def __call__(self, invocation: InvocationCanister, why: str) -> Verdict:
        # All of it, and escaped: nobody approves what was not shown.
        self._display.tell(f"{why}: {json.dumps(invocation.arguments)}", "33")
        shown = self._preview(invocation)
        if shown:
            self._display.tell(shown)
        if not sys.stdin.isatty():
            self._display.tell("nobody is here to ask: denied")
            return "deny"
        from callboard.execution.threads import Threads  # noqa: PLC0415  # only where somebody is asked

        pattern = pattern_of(invocation.name, invocation.arguments or {})
        self._display.tell(f"run it? [y]es, [n]o, [s]ession or [g]ood: {pattern} from now on")
        answer = (await Threads(1).run(sys.stdin.readline)).strip().lower()[:1]
        if answer in ("s", "g"):
            self._answers.allow(pattern, for_good=answer == "g")
        return "allow" if answer in ("y", "s", "g") else "deny"
