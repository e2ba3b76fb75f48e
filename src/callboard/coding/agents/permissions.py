"""What may be done, by the settings and by what a person answered.

Owns the order of the rules, of which the last that matches decides. What rules mean is `tools.permissions`' business.
Law: what is denied stays denied, whatever was answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from callboard.coding.jobs.store import JobType
from callboard.coding.tools import action_names
from callboard.configuration import Settings
from callboard.tools import Rule


def rules_of(kind: JobType, settings: Settings, answered: Iterable[Rule]) -> Iterator[Rule]:
    """The rules for a kind of job: first the default, which allows all, then those that are set or were answered.

    A rule for one of the seven tools holds for each of its actions where these are tools by themselves.
    """
    for rule in _said(kind, settings, answered):
        yield rule
        name, opened, pattern = rule.pattern.partition("(")
        yield from (Rule(f"{each}{opened}{pattern}", rule.permission) for each in action_names(name.rpartition("/")[2]))


def _said(kind: JobType, settings: Settings, answered: Iterable[Rule]) -> Iterator[Rule]:
    tools, permissions = settings.coding.tools, settings.permissions
    mode = settings.coding.modes.get(kind)
    yield Rule("*", "allow")
    if tools.allowed_bash_commands:
        yield Rule("bash", "deny")
        yield from (Rule(f"bash({_begun(each)})", "allow") for each in tools.allowed_bash_commands)
    yield from (Rule(each, "allow") for each in permissions.allow)
    yield from (Rule(each, "ask") for each in permissions.ask)
    yield from answered
    yield from (Rule(f"bash({_begun(each)})", "deny") for each in tools.forbidden_commands)
    yield from (Rule(each, "deny") for each in permissions.deny)
    yield from (Rule(each, "deny") for each in (mode.deny if mode else ()))


def _begun(command: str) -> str:
    """A pattern for a command with whatever words behind it."""
    return command if "*" in command else f"{command} *"
