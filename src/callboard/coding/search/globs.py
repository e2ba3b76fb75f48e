"""Shell patterns of paths: `*` stays in a name, `**` goes through directories, `{a,b}` is either.

A pattern without a slash is matched with the last name. At most quadratic in the number of names.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_EXPANDED: Final = 64
"""Patterns that one pattern with braces expands to, at most."""


class Glob:
    """A pattern, to be matched with paths from the root."""

    def __init__(self, pattern: str) -> None:
        self._patterns = [each.removeprefix("./").split("/") for each in _expand_braces(pattern)]

    def matches(self, path: str) -> bool:
        """Whether the pattern matches a path."""
        names = path.split("/")
        return any(
            fnmatchcase(names[-1], steps[0]) if len(steps) == 1 else _match_steps(steps, names)
            for steps in self._patterns
        )


def _expand_braces(pattern: str) -> list[str]:
    waiting = [pattern]
    done: list[str] = []
    while waiting and len(waiting) + len(done) < _EXPANDED:
        each = waiting.pop()
        braces = _BRACES.search(each)
        if braces is None:
            done.append(each)
        else:
            waiting += [each[: braces.start()] + choice + each[braces.end() :] for choice in braces[1].split(",")]
    return [*done, *waiting]


def _match_steps(steps: list[str], names: list[str]) -> bool:
    """Whether the steps match the names; `reached` holds how many names the steps so far can match."""
    reached = {0}
    for step in steps:
        if step == "**":
            reached = {*range(min(reached), len(names) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatchcase(names[at], step)}
        if not reached:
            return False
    return len(names) in reached
