"""The rules of a job or a chat: what the settings say, and what a person answered.

The last rule that matches decides. Law: what the settings deny stays denied, whatever was answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.tools import action_names
from callboard.core import Answer, InvocationCanister
from callboard.tools import Decision, Invoker, Policy, Rule
from callboard.tools.context import Permits

DEFAULT: Final = Rule("*", "allow")


class Approver(Protocol):
    """Asks a person whether a call may run; `rules` are what the person allowed before."""

    @property
    def rules(self) -> list[Rule]: ...

    async def __call__(self, invocation: InvocationCanister, why: str) -> Answer: ...


class JobPolicy(Policy):
    """The policy of a job in the tree `root`. An answer counts from the next call on."""

    def __init__(self, request: JobRequest, approver: Approver, root: str) -> None:
        super().__init__()
        self._request = request
        self._approver = approver
        self._directory = root

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Decision:
        return self.current().decide(invoker, arguments)

    def permits(self, invoker: Invoker, arguments: Mapping[str, Any]) -> Permits:
        return self.current().permits(invoker, arguments)

    def current(self, default: Rule = DEFAULT) -> Policy:
        """The policy as of now; `default` is for calls that no other rule matches."""
        return Policy([default, *self._current_rules()], root=self._directory)

    def _current_rules(self) -> Iterator[Rule]:
        """A rule for one of the seven tools holds for each of its actions too, where these are tools themselves."""
        for rule in self._settings_and_answers():
            yield rule
            name, opened, pattern = rule.pattern.partition("(")
            for action in action_names(name.rpartition("/")[2]):
                yield Rule(f"{action}{opened}{pattern}", rule.permission)

    def _settings_and_answers(self) -> Iterator[Rule]:
        settings = self._request.settings
        tools, permissions = settings.coding.tools, settings.permissions
        mode = settings.coding.modes.get(self._request.kind)
        if tools.allowed_bash_commands:
            yield Rule("bash", "deny")
            yield from (Rule(f"bash({_with_any_arguments(each)})", "allow") for each in tools.allowed_bash_commands)
        yield from (Rule(each, "allow") for each in permissions.allow)
        yield from (Rule(each, "ask") for each in permissions.ask)
        yield from self._approver.rules
        yield from (Rule(f"bash({_with_any_arguments(each)})", "deny") for each in tools.forbidden_commands)
        yield from (Rule(each, "deny") for each in permissions.deny)
        yield from (Rule(each, "deny") for each in (mode.deny if mode else ()))


def _with_any_arguments(command: str) -> str:
    return command if "*" in command else f"{command} *"
