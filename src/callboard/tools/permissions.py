"""Which calls may run.

Owns the rules and their order. Knows nothing of who answers a question.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from callboard.tools.invoker import Invoker

Permission: TypeAlias = Literal["allow", "deny", "ask"]


class Rule(msgspec.Struct, frozen=True):
    """`pattern` is a shell pattern over `ensemble/name`, or over the name where it has no slash."""

    pattern: str
    permission: Permission


class Policy:
    """Rules in order; the last that matches decides. Where none does: ask for tools that want approval, else allow."""

    def __init__(self, rules: Iterable[Rule | tuple[str, Permission]] = ()) -> None:
        self._rules = tuple(rule if isinstance(rule, Rule) else Rule(*rule) for rule in rules)

    def decide(self, invoker: Invoker) -> tuple[Permission, str]:
        """The permission, and why."""
        name = invoker.name
        path = f"{invoker.ensemble.name}/{name}" if invoker.ensemble else name
        for rule in reversed(self._rules):
            if fnmatchcase(path if "/" in rule.pattern else name, rule.pattern):
                return rule.permission, f"the rule {rule.pattern!r} says {rule.permission}"
        if invoker.approval:
            return "ask", f"{name} asks for approval before each call"
        return "allow", "no rule forbids it"
