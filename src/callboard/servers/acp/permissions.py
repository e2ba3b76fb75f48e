"""Ask an editor's user whether a call may run: once, for the session, or for good.

Law: only an answer that was offered for this very call lets it run; all of the call is shown with the question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from acp.helpers import update_tool_call
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from callboard.coding.chat.dry_run import ChangedFile
from callboard.coding.chat.saved_approvals import SavedApprovals, pattern_of
from callboard.core import InvocationCanister, Verdict
from callboard.servers.acp.tool_calls import (
    describe_call,
    describe_changes,
    describe_invisible,
    input_of,
    kind_of,
    locations_of,
    title_of,
)
from callboard.servers.acp.updates import Update, UpdateEncoder
from callboard.text.display import make_visible
from callboard.tools import Rule

Ask: TypeAlias = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[RequestPermissionResponse]]

ONCE: Final = PermissionOption(option_id="once", name="Allow once", kind="allow_once")
REJECT: Final = PermissionOption(option_id="reject", name="Reject", kind="reject_once")
_LATER: Final = (("session", "Allow {} in this session"), ("good", "Always allow {} in this project"))


class ClientApprover:
    """Asks the client of a session, and remembers what was allowed, as `rules`.

    Args:
        saved: What was allowed before.
        encoder: Knows the session's identifiers of calls.
        root: The session's directory.
        ask: Sends the question.
        show: Sends an update.
    """

    def __init__(
        self,
        saved: SavedApprovals,
        encoder: UpdateEncoder,
        root: Path,
        ask: Ask,
        show: Callable[[Update], None],
    ) -> None:
        self._saved = saved
        self._encoder = encoder
        self._root = root
        self._ask = ask
        self._show = show

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
        """The answer; parameters as of ChatApprover."""
        if pattern is None:
            pattern = pattern_of(invocation.name, invocation.arguments or {})
        identifier = self._encoder.identifier_of(invocation.identifier)
        call = ToolCallUpdate(
            tool_call_id=identifier,
            status="pending",
            title=title_of(invocation.name, invocation.arguments),
            kind=kind_of(self._encoder.action_of(invocation.name, invocation.arguments)),
            locations=locations_of(self._root, invocation.arguments),
            raw_input=input_of(invocation.arguments),
            content=[
                *(describe_changes(self._root, changes) or describe_call(invocation.arguments, invocation.raw)),
                *describe_invisible(changes),
            ],
        )
        options = [ONCE, *_options_for_later(pattern), REJECT]
        outcome = (await self._ask(call, options)).outcome
        answer = outcome.option_id if isinstance(outcome, AllowedOutcome) else REJECT.option_id
        offered = {each.option_id for each in options}
        if answer == REJECT.option_id or answer not in offered:
            return "deny"
        if answer != ONCE.option_id:
            self._saved.allow(pattern, for_good=answer == "good")
        self._show(update_tool_call(identifier, status="in_progress"))
        return "allow"


def _options_for_later(pattern: str) -> list[PermissionOption]:
    """What else is offered where a pattern says what it would allow."""
    if not pattern:
        return []
    named = make_visible(pattern)
    return [PermissionOption(option_id=key, name=text.format(named), kind="allow_always") for key, text in _LATER]
