"""Ask an editor's user whether a call may run: once, for the session, or for good.

Law: only an answer that was offered for this very call lets it run; all of the call is shown with the question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from acp.helpers import update_tool_call
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    PermissionOptionKind,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from callboard.coding.chat.approver import CallQuestion, ChatAnswer, ChatApprover
from callboard.coding.chat.saved_approvals import SavedApprovals
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

Ask: TypeAlias = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[RequestPermissionResponse]]

_OPTIONS: Final[Mapping[ChatAnswer, tuple[str, PermissionOptionKind]]] = {
    "once": ("Allow once", "allow_once"),
    "session": ("Allow {} in this session", "allow_always"),
    "good": ("Always allow {} in this project", "allow_always"),
    "reject": ("Reject", "reject_once"),
}
"""What is offered: the text with a place for the pattern, and what an editor makes of it."""


class ClientApprover(ChatApprover):
    """Asks the client of a session.

    Args:
        saved: What was allowed before.
        encoder: Knows the session's identifiers of calls.
        root: The session's directory.
        ask: Sends the question.
        show: Sends an update.
        client: Name of the client.
    """

    def __init__(
        self,
        saved: SavedApprovals,
        encoder: UpdateEncoder,
        root: Path,
        ask: Ask,
        show: Callable[[Update], None],
        *,
        client: str,
    ) -> None:
        super().__init__(saved, by=client, via="ACP")
        self._encoder = encoder
        self._root = root
        self._send_question = ask
        self._show = show

    async def ask(self, question: CallQuestion) -> ChatAnswer:
        """Shows the call in the client, and reads the answer; one that was not offered is a no."""
        invocation, root = question.invocation, self._root
        name, arguments = invocation.name, invocation.arguments
        identifier = self._encoder.identifier_of(invocation.identifier)
        call = ToolCallUpdate(
            tool_call_id=identifier,
            status="pending",
            title=title_of(name, arguments),
            kind=kind_of(self._encoder.action_of(name, arguments)),
            locations=locations_of(root, arguments),
            raw_input=input_of(arguments),
            content=[
                *(describe_changes(root, question.changes) or describe_call(arguments, invocation.raw)),
                *describe_invisible(question.changes),
            ],
        )
        offered: list[ChatAnswer] = [each for each in _OPTIONS if question.pattern or each in ("once", "reject")]
        pattern = make_visible(question.pattern)
        options = [
            PermissionOption(option_id=key, name=_OPTIONS[key][0].format(pattern), kind=_OPTIONS[key][1])
            for key in offered
        ]
        outcome = (await self._send_question(call, options)).outcome
        chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else ""
        answer: ChatAnswer = next((key for key in offered if key == chosen), "reject")
        if answer != "reject":
            self._show(update_tool_call(identifier, status="in_progress"))
        return answer
