"""Encode the steps of a chat as updates of an ACP session: a Stage.

Laws: a call has one identifier in its session, though models repeat theirs; a call that began also ends, whatever ends
the turn.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
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
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    UsageUpdate,
    UserMessageChunk,
)

from callboard.coding.chat.dry_run import ChangedFile
from callboard.coding.jobs.log import Notice, PromptSent, Step
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
from callboard.servers.acp.tool_calls import (
    describe_changes,
    describe_result,
    input_of,
    kind_of,
    locations_of,
    title_of,
)
from callboard.text.display import collapse

Update: TypeAlias = (
    AgentMessageChunk | AgentThoughtChunk | UserMessageChunk | ToolCallStart | ToolCallProgress | UsageUpdate
)
ActionOf: TypeAlias = Callable[[str, Mapping[str, Any] | None], str]
"""The own name of the action that a call is; "" for a tool that is not ours."""

_MAX_NOTICE: Final = 2000


class UpdateEncoder:
    """The stage of one session.

    Args:
        root: The session's directory.
        action_of: What a call of the model is.
        prefix: Begins the identifiers of calls, so that they are others where a session goes on in another process.
        context_tokens: How much the model can read, 0 if that is not known.
    """

    def __init__(self, root: Path, action_of: ActionOf, *, prefix: str = "", context_tokens: int = 0) -> None:
        self.context_tokens = context_tokens
        self.replays = False
        """Whether prompts are shown too: the client of a session that is loaded has not typed them."""
        self._prefix = prefix
        self._root = root
        self._action_of = action_of
        self._identifiers: dict[str, str] = {}
        """The identifiers of the calls that have not ended, by those of the model."""
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
        """The calls that began and will not end."""
        self._changes.clear()
        open_calls, self._identifiers = self._identifiers, {}
        return [update_tool_call(each, status="failed") for each in open_calls.values()]

    def add_change(self, change: ChangedFile) -> None:
        """A file that the running call changed: the end of the call shows it."""
        self._changes.append(change)

    def identifier_of(self, identifier: str) -> str:
        """The session's identifier of a call that has not ended."""
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
        """The own name of the action that a call is; "" for a tool that is not ours, or not there."""
        try:
            return self._action_of(name, arguments)
        except KeyError:
            return ""
