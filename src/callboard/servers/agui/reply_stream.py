"""The open reply of an agent as AG-UI events: its texts, thoughts and calls, until they are confirmed.

The end of a reply confirms all its parts. In a job, each canister confirms its part. Pieces that differ from the
canisters become void, and so does a reply that is retried. The thread is then stale.

Laws: a part of a reply is sent once, whether it comes from pieces, canisters or both. Everything that begins also ends.
Each piece costs constant work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core import InvocationCanister
from callboard.servers.agui.conversation import AguiThread, ThreadCall, ThreadMessage
from callboard.servers.agui.events import AguiEvent, make_event

AguiEvents: TypeAlias = list[AguiEvent]
Kind: TypeAlias = Literal["text", "refusal", "reasoning", "call"]

_REFUSAL: Final[Mapping[str, Any]] = {"callboard": {"refusal": True}}


@dataclass(slots=True, eq=False)
class ReplyPart:
    """A text, a thought or a call of the open reply."""

    kind: Kind
    message: ThreadMessage
    origin: str = ""
    call: ThreadCall | None = None
    is_open: bool = True

    @property
    def texts(self) -> list[str]:
        return self.message.texts if self.call is None else self.call.arguments


class ReplyStream:
    """The replies of one agent.

    Args:
        thread: The messages of the whole thread.
        author: Identifier of the nested run, "" for the run itself.
    """

    def __init__(self, thread: AguiThread, author: str = "") -> None:
        self._thread = thread
        self._author = author
        self._attribution = {"subagentRunId": author} if author else {}
        self._parts: deque[ReplyPart] = deque()
        """The unconfirmed parts, in order."""
        self._open: ReplyPart | None = None
        """The text or thought that is growing."""
        self._calls: dict[int, ReplyPart] = {}
        """The calls that are growing, by their index in the reply."""
        self._turn: ThreadMessage | None = None
        """The message that the next call belongs to."""

    @property
    def begin(self) -> int:
        """Return the ordinal of the first unconfirmed message, or of the next message."""
        return self._parts[0].message.ordinal if self._parts else self._thread.next_ordinal

    # Pieces

    def say(self, kind: Kind, text: str, origin: str = "", encrypted: str = "") -> AguiEvents:
        """Add the next piece of a text or thought. After an `encrypted` piece, another thought begins."""
        if not text and not encrypted:
            return []
        part = self._open
        events: AguiEvents = []
        if part is None or part.kind != kind or part.origin != origin or part.message.encrypted:
            events = self._close_text()
            part, started = self._start_text(kind, origin)
            events += started
        if text:
            part.texts.append(text)
            name = "REASONING_MESSAGE_CONTENT" if kind == "reasoning" else "TEXT_MESSAGE_CONTENT"
            events.append(make_event(name, self._author, messageId=part.message.identifier, delta=text))
        return events + self._encrypt(part.message, encrypted)

    def begin_call(self, index: int, identifier: str, name: str) -> AguiEvents:
        events = self._close_call(index)
        self._calls[index], started = self._start_call(identifier, name)
        return events + started

    def add_arguments(self, index: int, text: str) -> AguiEvents:
        part = self._calls.get(index)
        return [] if part is None else self._add_arguments(part, text)

    def end_call(self, index: int, call: InvocationCanister) -> AguiEvents:
        events: AguiEvents = []
        part = self._calls.pop(index, None)
        if part is None:
            part, events = self._start_call(call.identifier, call.name)
        return events + self._end_call(part, call)

    def close(self) -> AguiEvents:
        events = self._close_text()
        for index in [*self._calls]:
            events += self._close_call(index)
        self._turn = None
        return events

    # Confirm or revoke

    def confirm(self) -> list[int]:
        """Make the reply part of the conversation. Return the first message of each of its canisters."""
        marks: list[int] = []
        follows_text = False
        for part in self._parts:
            if part.call is not None or not follows_text:
                marks.append(part.message.ordinal)
            follows_text = part.call is None
        self._parts.clear()
        self._turn = None
        return marks

    def revoke(self) -> AguiEvents:
        """Make all messages of the reply void."""
        events = self.close()
        while self._parts:
            part = self._parts.pop()
            if part.call is None:
                self._thread.remove_message(part.message)
            else:
                self._thread.remove_call(part.call)
                if not part.message.calls and not part.message.texts:
                    self._thread.remove_message(part.message)
        return events

    def confirm_text(self, kind: Kind, text: str, encrypted: str = "") -> AguiEvents:
        """Confirm a text or thought with its canister. Its pieces may have been sent."""
        if not text and not encrypted:
            return []
        events: AguiEvents = []
        if self._parts:
            part = self._parts[0]
            if _may_become(part, kind, text, encrypted):
                if part is self._open:
                    events = self.say(kind, text[len("".join(part.texts)) :], part.origin) + self._close_text()
                self._parts.popleft()
                self._turn = None if kind == "reasoning" else part.message
                return events + self._encrypt(part.message, encrypted)
            events = self.revoke()
        events += [*self.say(kind, text, encrypted=encrypted), *self._close_text()]
        self._parts.clear()
        return events

    def confirm_call(self, canister: InvocationCanister) -> AguiEvents:
        """Confirm a call with its canister. Its pieces may have been sent; calls may end in a different order."""
        events: AguiEvents = []
        key = canister.identifier, canister.name
        for part in takewhile(lambda each: each.call is not None, self._parts):
            if part.call is not None and (part.call.source, part.call.name) == key:
                break
        else:
            events = self.revoke() if self._parts else []
            part, started = self._start_call(*key)
            events += started
        self._parts.remove(part)
        if part.call is not None:
            self._thread.confirm_call(part.call)
        return events + self._end_call(part, canister)

    # Parts

    def _start_text(self, kind: Kind, origin: str) -> tuple[ReplyPart, AguiEvents]:
        is_thought = kind == "reasoning"
        metadata = {"metadata": _REFUSAL} if kind == "refusal" else {}
        role = "reasoning" if is_thought else "assistant"
        message = self._thread.add_message(role=role, **self._attribution, **metadata)
        part = self._open = ReplyPart(kind, message, origin)
        self._parts.append(part)
        self._turn = None if is_thought else message
        name = message.identifier
        if is_thought:
            begin = make_event("REASONING_START", self._author, messageId=name)
            return part, [begin, make_event("REASONING_MESSAGE_START", self._author, messageId=name, role=role)]
        return part, [make_event("TEXT_MESSAGE_START", self._author, messageId=name, role=role, **metadata)]

    def _close_text(self) -> AguiEvents:
        part, self._open = self._open, None
        if part is None:
            return []
        part.is_open = False
        names = ("REASONING_MESSAGE_END", "REASONING_END") if part.kind == "reasoning" else ("TEXT_MESSAGE_END",)
        return [make_event(each, self._author, messageId=part.message.identifier) for each in names]

    def _encrypt(self, message: ThreadMessage, encrypted: str) -> AguiEvents:
        """Send the provider's own form of a thought, unless it was sent before."""
        if encrypted == message.encrypted:
            return []
        message.encrypted = encrypted
        fields = {"subtype": "message", "entityId": message.identifier, "encryptedValue": encrypted}
        return [make_event("REASONING_ENCRYPTED_VALUE", self._author, **fields)]

    def _start_call(self, identifier: str, name: str) -> tuple[ReplyPart, AguiEvents]:
        events = self._close_text()
        if self._turn is None:
            self._turn = self._thread.add_message(role="assistant", **self._attribution)
        call = self._thread.add_call(self._turn, identifier, name)
        part = ReplyPart("call", self._turn, call=call)
        self._parts.append(part)
        fields = {"toolCallId": call.identifier, "toolCallName": name, "parentMessageId": self._turn.identifier}
        return part, [*events, make_event("TOOL_CALL_START", self._author, **fields)]

    def _add_arguments(self, part: ReplyPart, text: str) -> AguiEvents:
        if not text or part.call is None or not part.is_open:
            return []
        part.texts.append(text)
        return [make_event("TOOL_CALL_ARGS", self._author, toolCallId=part.call.identifier, delta=text)]

    def _end_call(self, part: ReplyPart, call: InvocationCanister) -> AguiEvents:
        """Send the rest of the arguments, and the end. Arguments that differ from the sent ones become void."""
        events: AguiEvents = []
        arguments = call.arguments
        text = "".join(part.texts)
        whole = call.raw or ("" if arguments is None else msgspec.json.encode(arguments).decode())
        if part.is_open and whole.startswith(text):
            events = self._add_arguments(part, whole[len(text) :])
        elif text != whole and (arguments is None or _read(text) != arguments):
            part.texts[:] = [whole]
            self._thread.is_stale = True
        return events + self._close_part(part)

    def _close_call(self, index: int) -> AguiEvents:
        part = self._calls.pop(index, None)
        return [] if part is None else self._close_part(part)

    def _close_part(self, part: ReplyPart) -> AguiEvents:
        if part.call is None or not part.is_open:
            return []
        part.is_open = False
        return [make_event("TOOL_CALL_END", self._author, toolCallId=part.call.identifier)]


def _may_become(part: ReplyPart, kind: Kind, text: str, encrypted: str) -> bool:
    """True if the sent part is the text or thought of a canister, or its beginning."""
    known, sent = part.message.encrypted, "".join(part.texts)
    is_begun = part.is_open and not known and text.startswith(sent)
    return part.kind == kind and known in ("", encrypted) and (sent == text or is_begun)


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
