"""A Stage that encodes the steps of a chat as updates of an ACP session.

Laws: call identifiers are unique in a session, although models reuse theirs. Every call that began also ends, even if
the turn ends early.

`ClientApprover` asks an editor's user if a call may run: once, in the session, or always.

Law: a call runs only after an answer that was offered for this call. The question shows the whole call.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp.helpers import (
    image_block,
    start_tool_call,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
    update_user_message,
)
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    PermissionOption,
    PermissionOptionKind,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)

from callboard.coding.chat.approver import CallQuestion, ChatAnswer, ChatApprover, SavedApprovals
from callboard.coding.job import Notice, PromptSent, Step
from callboard.coding.workspace.changed_files import ChangedFile
from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RunEnded,
    TextPiece,
    Usage,
    Why,
)
from callboard.servers.acp.content import (
    describe_call,
    describe_changes,
    describe_invisible,
    describe_result,
    input_of,
    kind_of,
    locations_of,
    title_of,
)
from callboard.text.display import collapse, make_visible

Ask: TypeAlias = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[RequestPermissionResponse]]

_OPTIONS: Final[Mapping[ChatAnswer, tuple[str, PermissionOptionKind]]] = {
    "once": ("Allow once", "allow_once"),
    "session": ("Allow {} in this session", "allow_always"),
    "good": ("Always allow {} in this project", "allow_always"),
    "reject": ("Reject", "reject_once"),
}
"""The options: their text with a placeholder for the pattern, and their kind for the editor."""


class ClientApprover(ChatApprover):
    """Asks the client of a session.

    Args:
        saved: Permissions that were saved before.
        encoder: Encoder of the session; it knows the identifiers of calls.
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
        """Show the call in the client, and read the answer. An answer that was not offered denies the call."""
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


Update: TypeAlias = (
    AgentMessageChunk | AgentThoughtChunk | UserMessageChunk | ToolCallStart | ToolCallProgress | UsageUpdate
)
ActionOf: TypeAlias = Callable[[str, Mapping[str, Any] | None], str]
"""Returns the name of our action for a call, or "" for other tools."""

_MAX_NOTICE: Final = 2000


class UpdateEncoder:
    """The stage of one session.

    Args:
        root: The session's directory.
        action_of: Returns our action for a call of the model.
        prefix: Prefix of call identifiers, so that they stay unique if the session continues in another process.
        context_tokens: Size of the model's context in tokens, 0 if it is unknown.
    """

    def __init__(self, root: Path, action_of: ActionOf, *, prefix: str = "", context_tokens: int = 0) -> None:
        self.context_tokens = context_tokens
        self.replays = False
        """True if prompts are shown too: the client of a loaded session has not typed them."""
        self._prefix = prefix
        self._root = root
        self._action_of = action_of
        self._identifiers: dict[str, str] = {}
        """Session identifiers of the open calls, by the model's identifiers."""
        self._count = 0
        self._changes: list[ChangedFile] = []

    def feed(self, item: Step, /) -> list[Update]:
        match item:
            case TextPiece(text=text) | RefusalPiece(text=text) if text:
                return [update_agent_message_text(text)]
            case ReasoningPiece(text=text) if text:
                return [update_agent_thought_text(text)]
            case InvocationStarted(identifier=identifier, name=name):
                return [self._start(identifier, name)]
            case InvocationEnded(identifier=identifier, name=name, arguments=arguments):
                return self._describe(identifier, name, arguments)
            case InvocationIncomplete(identifier=identifier):
                return self._end(identifier, None)
            case ReplyEnded(reason="retry") | ReplyFailed() | RunEnded():
                return self.finish()
            case ReplyEnded(reason="invocations"):
                return [update_tool_call(each, status="in_progress") for each in self._identifiers.values()]
            case ResultReady(canister=canister):
                return self._end(canister.invocation_id, canister)
            case Usage(input=read, output=written) if self.context_tokens:
                used = read + written
                return [UsageUpdate(session_update="usage_update", used=used, size=self.context_tokens)]
            case Notice(text=text) | Note(kind="alert", text=text):
                return [update_agent_message_text(f"\n\n> {collapse(text, _MAX_NOTICE)}\n\n")]
            case PromptSent(text=text, pictures=pictures) if self.replays:
                shown = [image_block(base64.b64encode(each.data).decode("ascii"), each.mime_type) for each in pictures]
                return [update_user_message(text_block(text)), *map(update_user_message, shown)]
            case _:
                return []

    def finish(self, _why: Why = "stop", /) -> list[Update]:
        """End the calls that began but did not end."""
        self._changes.clear()
        open_calls, self._identifiers = self._identifiers, {}
        return [update_tool_call(each, status="failed") for each in open_calls.values()]

    def add_change(self, change: ChangedFile) -> None:
        """Add a file that the running call changed. It is shown at the end of the call."""
        self._changes.append(change)

    def identifier_of(self, identifier: str) -> str:
        """Return the session's identifier of an open call."""
        return self._identifiers.get(identifier) or self._identify(identifier)

    def _identify(self, identifier: str) -> str:
        self._count += 1
        self._identifiers[identifier] = f"call-{self._prefix}{self._count}"
        return self._identifiers[identifier]

    def _start(self, identifier: str, name: str) -> Update:
        kind = kind_of(self.action_of(name, None))
        return start_tool_call(self._identify(identifier), title_of(name, None), kind=kind, status="pending")

    def _describe(self, identifier: str, name: str, arguments: Mapping[str, Any] | None) -> list[Update]:
        started = [] if identifier in self._identifiers else [self._start(identifier, name)]
        update = update_tool_call(
            self.identifier_of(identifier),
            title=title_of(name, arguments),
            kind=kind_of(self.action_of(name, arguments)),
            locations=locations_of(self._root, arguments),
            raw_input=input_of(arguments),
        )
        return [*started, update]

    def _end(self, identifier: str, result: ResultCanister | None) -> list[Update]:
        if identifier not in self._identifiers:
            return []
        changes, self._changes = self._changes, []
        if result is None:
            return [update_tool_call(self._identifiers.pop(identifier), status="failed")]
        is_right = result.error is None
        contents = [*describe_changes(self._root, changes), *(() if changes and is_right else describe_result(result))]
        status: ToolCallStatus = "completed" if is_right else "failed"
        return [update_tool_call(self._identifiers.pop(identifier), status=status, content=contents)]

    def action_of(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """Return the name of our action for a call, or "" for other or unknown tools."""
        try:
            return self._action_of(name, arguments)
        except KeyError:
            return ""
