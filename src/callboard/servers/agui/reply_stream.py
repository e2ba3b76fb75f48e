"""A reply while it comes: its texts, thoughts and calls as AG-UI events, until canisters confirm them.

A reply may be told twice: its pieces while it comes, and its canisters when it was committed. What the canisters say
otherwise is void, and so is a reply that is asked for again; the thread is stale then.

Laws: a part of a reply is told once, whether by pieces, by canisters, or by both; what begins has an end; constant work
for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core import InvocationCanister
from callboard.servers.agui.conversation import AguiThread, ThreadCall, ThreadMessage
from callboard.servers.agui.events import (
    AguiEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

AguiEvents: TypeAlias = list[AguiEvent]
Kind: TypeAlias = Literal["text", "refusal", "reasoning", "call"]

_REFUSAL: Final[Mapping[str, Any]] = {"callboard": {"refusal": True}}


class ReplyPart:
    """A text, a thought or a call of the reply that comes."""

    __slots__ = ("call", "is_open", "kind", "message", "origin", "texts")

    def __init__(self, kind: Kind, message: ThreadMessage, origin: str = "", call: ThreadCall | None = None) -> None:
        self.kind = kind
        self.message = message
        self.origin = origin
        self.call = call
        self.texts = message.texts if call is None else call.arguments
        self.is_open = True


class ReplyStream:
    """The replies of one agent.

    Args:
        thread: The messages of the whole thread.
        author: The identifier of the run within the run, "" for the run itself.
    """

    def __init__(self, thread: AguiThread, author: str = "") -> None:
        self.is_whole = False
        """Whether the reply has come to its end."""
        self._thread = thread
        self._author = author
        self._attribution = {"subagentRunId": author} if author else {}
        self._parts: deque[ReplyPart] = deque()
        """Those that no canister has confirmed, in order."""
        self._open: ReplyPart | None = None
        """The text or thought that goes on."""
        self._calls: dict[int, ReplyPart] = {}
        """The calls that go on, by their index in the reply."""
        self._turn: ThreadMessage | None = None
        """The message that the next call belongs to."""

    @property
    def begin(self) -> int:
        """The first message that is not confirmed, else the next one."""
        return self._parts[0].message.ordinal if self._parts else self._thread.next_ordinal

    @property
    def is_unsure(self) -> bool:
        """Whether there are parts of a reply that has not come to its end."""
        return bool(self._parts) and not self.is_whole

    def has_call(self, call: ThreadCall) -> bool:
        """Whether a call is among the parts that are not confirmed."""
        return any(each.call is call for each in self._parts)

    # Pieces

    def say(self, kind: Kind, text: str, origin: str = "", encrypted: str = "") -> AguiEvents:
        """The next piece of a text or thought. Behind one that is `encrypted` another thought begins."""
        if not text and not encrypted:
            return []
        if self.is_whole:
            self.confirm()
        part = self._open
        events: AguiEvents = []
        if part is None or part.kind != kind or part.origin != origin or part.message.encrypted:
            events += self._close_text()
            part, started = self._start_text(kind, origin)
            events += started
        if text:
            part.texts.append(text)
            content = ReasoningMessageContentEvent if kind == "reasoning" else TextMessageContentEvent
            events.append(content(message_id=part.message.identifier, delta=text, subagent_run_id=self._author))
        return events + self._encrypt(part.message, encrypted)

    def _encrypt(self, message: ThreadMessage, encrypted: str) -> AguiEvents:
        """The provider's own form of a thought, where there is one that was not told."""
        if encrypted == message.encrypted:
            return []
        message.encrypted = encrypted
        return [
            ReasoningEncryptedValueEvent(
                subtype="message",
                entity_id=message.identifier,
                encrypted_value=encrypted,
                subagent_run_id=self._author,
            )
        ]

    def _start_text(self, kind: Kind, origin: str = "") -> tuple[ReplyPart, AguiEvents]:
        is_thought = kind == "reasoning"
        fields: dict[str, Any] = {"role": "reasoning" if is_thought else "assistant", **self._attribution}
        if kind == "refusal":
            fields["metadata"] = _REFUSAL
        message = self._thread.add_message(**fields)
        part = self._open = ReplyPart(kind, message, origin)
        self._parts.append(part)
        name, author = message.identifier, self._author
        self._turn = None if is_thought else message
        if is_thought:
            return part, [
                ReasoningStartEvent(message_id=name, subagent_run_id=author),
                ReasoningMessageStartEvent(message_id=name, role="reasoning", subagent_run_id=author),
            ]
        metadata = _REFUSAL if kind == "refusal" else None
        start = TextMessageStartEvent(message_id=name, role="assistant", subagent_run_id=author, metadata=metadata)
        return part, [start]

    def _close_text(self) -> AguiEvents:
        part, self._open = self._open, None
        if part is None:
            return []
        part.is_open = False
        name, author = part.message.identifier, self._author
        if part.kind == "reasoning":
            return [
                ReasoningMessageEndEvent(message_id=name, subagent_run_id=author),
                ReasoningEndEvent(message_id=name, subagent_run_id=author),
            ]
        return [TextMessageEndEvent(message_id=name, subagent_run_id=author)]

    def _start_call(self, identifier: str, name: str) -> tuple[ReplyPart, AguiEvents]:
        if self.is_whole:
            self.confirm()
        events = self._close_text()
        if self._turn is None:
            self._turn = self._thread.add_message(role="assistant", **self._attribution)
        call = self._thread.add_call(self._turn, identifier, name)
        part = ReplyPart("call", self._turn, call=call)
        self._parts.append(part)
        start = ToolCallStartEvent(
            tool_call_id=call.identifier,
            tool_call_name=name,
            parent_message_id=self._turn.identifier,
            subagent_run_id=self._author,
        )
        return part, [*events, start]

    def _add_arguments(self, part: ReplyPart, text: str) -> AguiEvents:
        if not text or part.call is None or not part.is_open:
            return []
        part.texts.append(text)
        return [ToolCallArgsEvent(tool_call_id=part.call.identifier, delta=text, subagent_run_id=self._author)]

    def _end_call(self, part: ReplyPart, arguments: Mapping[str, Any] | None, raw: str) -> AguiEvents:
        """The rest of the arguments, and the end; what was told otherwise is void."""
        if part.call is None:
            return []
        events: AguiEvents = []
        text, whole = "".join(part.texts), _arguments_text(arguments, raw)
        if part.is_open and whole.startswith(text):
            events = self._add_arguments(part, whole[len(text) :])
        elif text != whole and (arguments is None or _read(text) != arguments):
            part.texts[:] = [whole]
            self._thread.is_stale = True
        if part.is_open:
            part.is_open = False
            events.append(ToolCallEndEvent(tool_call_id=part.call.identifier, subagent_run_id=self._author))
        return events

    def begin_call(self, index: int, identifier: str, name: str) -> AguiEvents:
        """A call begins, whose arguments come in pieces."""
        events = self._close_call(index)
        part, started = self._start_call(identifier, name)
        self._calls[index] = part
        return events + started

    def add_arguments(self, index: int, text: str) -> AguiEvents:
        """The next piece of the arguments of a call that goes on."""
        part = self._calls.get(index)
        return [] if part is None else self._add_arguments(part, text)

    def end_call(
        self, index: int, identifier: str, name: str, arguments: Mapping[str, Any] | None, raw: str
    ) -> tuple[int, AguiEvents]:
        """A call is whole; the message that it is in, and its events."""
        events: AguiEvents = []
        part = self._calls.pop(index, None)
        if part is None:
            part, events = self._start_call(identifier, name)
        return part.message.ordinal, events + self._end_call(part, arguments, raw)

    def _close_call(self, index: int) -> AguiEvents:
        part = self._calls.pop(index, None)
        if part is None or part.call is None or not part.is_open:
            return []
        part.is_open = False
        return [ToolCallEndEvent(tool_call_id=part.call.identifier, subagent_run_id=self._author)]

    # What becomes of a reply

    def close(self) -> AguiEvents:
        """The ends of all that goes on."""
        events = self._close_text()
        for index in [*self._calls]:
            events += self._close_call(index)
        self._turn = None
        return events

    def confirm(self) -> None:
        """The reply is a part of the conversation."""
        self._parts.clear()
        self.is_whole = False
        self._turn = None

    def revoke(self) -> AguiEvents:
        """The reply as far as it came is no part of the conversation."""
        events = self.close()
        while self._parts:
            part = self._parts.pop()
            if part.call is None:
                self._thread.remove_message(part.message)
            else:
                self._thread.remove_call(part.call)
                if not part.message.calls and not part.message.texts:
                    self._thread.remove_message(part.message)
        self.is_whole = False
        return events

    def settle(self) -> AguiEvents:
        """What comes behind a reply shows whether the reply came whole."""
        if self.is_whole or not self._parts:
            self.confirm()
            return []
        return self.revoke()

    def confirm_text(self, kind: Kind, text: str, encrypted: str = "") -> AguiEvents:
        """A text or thought of a canister, of which pieces may have been told."""
        if not text and not encrypted:
            return []
        self.is_whole = self.is_whole and bool(self._parts)
        events: AguiEvents = []
        if self._parts:
            part = self._parts[0]
            if self._may_become(part, kind, text, encrypted):
                sent = "".join(part.texts)
                if part is self._open:
                    events = self.say(kind, text[len(sent) :], part.origin) + self._close_text()
                self._parts.popleft()
                self._turn = None if kind == "reasoning" else part.message
                return events + self._encrypt(part.message, encrypted)
            events = self.revoke()
        events += [*self._close_text(), *self.say(kind, text, encrypted=encrypted), *self._close_text()]
        self._parts.clear()
        return events

    def _may_become(self, part: ReplyPart, kind: Kind, text: str, encrypted: str) -> bool:
        """Whether what was told of a part is the text or thought of a canister, or its beginning."""
        known, sent = part.message.encrypted, "".join(part.texts)
        is_begun = part is self._open and not known and text.startswith(sent)
        return part.kind == kind and known in ("", encrypted) and (sent == text or is_begun)

    def confirm_call(self, canister: InvocationCanister) -> AguiEvents:
        """A call of a canister, of which pieces may have been told; several calls may end in another order."""
        part, events = None, []
        self.is_whole = self.is_whole and bool(self._parts)
        if self._parts:
            calls = takewhile(lambda each: each.call is not None, self._parts)
            part = next((each for each in calls if _is_call(each, canister)), None)
            if part is None:
                events = self.revoke()
        if part is None:
            part, started = self._start_call(canister.identifier, canister.name)
            events += started
        self._parts.remove(part)
        if part.call is not None:
            self._thread.confirm_call(part.call)
        return events + self._end_call(part, canister.arguments, canister.raw)


def _is_call(part: ReplyPart, canister: InvocationCanister) -> bool:
    return part.call is not None and part.call.source == canister.identifier and part.call.name == canister.name


def _arguments_text(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """As the model wrote them."""
    return raw or ("" if arguments is None else msgspec.json.encode(arguments).decode())


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
