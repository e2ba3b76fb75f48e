"""The messages of an AG-UI thread, as the client has them after the events that it received.

The messages are kept for snapshots. A snapshot is sent if messages become void: when a reply is retried or the
conversation is rolled back.

Laws: identifiers of messages and calls are never reused. Each piece of a text costs constant work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class ThreadCall:
    """A call, with the arguments received so far.

    `source` is the identifier that the model uses. The model of a nested run may use the same identifier.
    """

    message: ThreadMessage
    identifier: str
    source: str
    name: str
    arguments: list[str] = field(default_factory=list)
    is_answered: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The author's run and the source."""
        return self.message.author, self.source

    def as_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.identifier, "type": "function", "function": function}


@dataclass(slots=True, eq=False)
class ThreadMessage:
    identifier: str
    ordinal: int
    fields: Mapping[str, Any]
    texts: list[str] = field(default_factory=list)
    encrypted: str = ""
    """The provider's own form of a thought."""
    calls: dict[str, ThreadCall] = field(default_factory=dict)

    @property
    def author(self) -> str:
        """Identifier of the nested run that wrote the message, "" for the run itself."""
        return str(self.fields.get("subagentRunId") or "")

    def as_json(self) -> dict[str, Any]:
        if "content" in self.fields:
            return {"id": self.identifier, **self.fields}
        message = {"id": self.identifier, **self.fields}
        if self.texts or not self.calls:
            message["content"] = "".join(self.texts)
        if self.calls:
            message["toolCalls"] = [each.as_json() for each in self.calls.values()]
        if self.encrypted:
            message["encryptedValue"] = self.encrypted
        return message


class AguiThread:
    """The messages of a thread, and the identifiers in use.

    Args:
        prefix: Prefix of message identifiers. Each run of the thread has its own.
        messages: Messages that the client already has.
    """

    def __init__(self, prefix: str, messages: Iterable[Mapping[str, Any]] = ()) -> None:
        self.is_stale = False
        """True if the client has messages that are void."""
        self._prefix = prefix
        self._before = list(messages)
        self._messages: dict[str, ThreadMessage] = {}
        self._message_ids = {str(each.get("id")) for each in self._before}
        self._ordinal = 0
        self._number = 0
        """Number in the identifier of the last message."""
        self._names: dict[str, int] = {}
        """Number of times that each identifier of a call or nested run was requested."""
        self._calls: dict[tuple[str, str], ThreadCall] = {}
        """The last call of each key."""
        self.unanswered: dict[str, ThreadCall] = {}
        """Calls that began in this run and have no result yet."""
        self._add_earlier_calls()

    @property
    def next_ordinal(self) -> int:
        """Ordinal of the next message. Ordinals only grow."""
        return self._ordinal + 1

    def add_message(self, **fields: Any) -> ThreadMessage:
        self._ordinal += 1
        self._number += 1
        while (identifier := f"{self._prefix}-{self._number}") in self._message_ids:
            self._number += 1
        self._message_ids.add(identifier)
        message = ThreadMessage(identifier, self._ordinal, fields)
        self._messages[identifier] = message
        return message

    def add_call(self, message: ThreadMessage, source: str, name: str) -> ThreadCall:
        """Add a call to a message. If the model reuses an identifier, the client gets a new one."""
        if source and source not in self._names:
            self._names[source] = 1
            identifier = source
        else:
            identifier = self._make_name(source, f"{source or 'call'}-")
        call = ThreadCall(message, identifier, source, name)
        message.calls[identifier] = call
        self._calls[call.key] = call
        self.unanswered[identifier] = call
        return call

    def find_call(self, source: str, author: str = "") -> ThreadCall | None:
        """Return the last call with this identifier of the model."""
        return self._calls.get((author, source))

    def client_call_id(self, source: str, author: str = "") -> str:
        """Return the client's identifier for the call with this identifier of the model."""
        call = self._calls.get((author, source))
        return source if call is None else call.identifier

    def confirm_call(self, call: ThreadCall) -> None:
        """If the model used an identifier for several calls, results belong to this call."""
        self._calls[call.key] = call

    def answer(self, source: str, author: str = "") -> ThreadCall | None:
        """Return the call that a result belongs to, or None if it was answered before."""
        call = self.find_call(source, author)
        if call is None:
            call = self.add_call(ThreadMessage("", 0, {"subagentRunId": author}), source, "")
        if call.is_answered:
            return None
        call.is_answered = True
        self.unanswered.pop(call.identifier, None)
        return call

    def name_subagent(self, call: str) -> str:
        """Return a new identifier for a nested run."""
        return self._make_name(f"{call}/", f"{call}/")

    def _make_name(self, key: str, prefix: str) -> str:
        count = self._names.get(key, 0) + 1
        while (name := f"{prefix}{count}") in self._names:
            count += 1
        self._names[key] = count
        self._names[name] = 1
        return name

    def remove_message(self, message: ThreadMessage) -> None:
        if self._messages.pop(message.identifier, None) is not None:
            self.is_stale = True
        for call in [*message.calls.values()]:
            self.remove_call(call)

    def remove_call(self, call: ThreadCall) -> None:
        if call.message.calls.pop(call.identifier, None) is not None:
            self.is_stale = True
        self.unanswered.pop(call.identifier, None)
        if self._calls.get(call.key) is call:
            del self._calls[call.key]

    def cut(self, ordinal: int) -> None:
        """Make all messages from this one on void."""
        while self._messages:
            message = next(reversed(self._messages.values()))
            if message.ordinal < ordinal:
                return
            self.remove_message(message)

    def cut_earlier(self) -> None:
        """Make the client's own messages after the last user message void."""
        while self._before and self._before[-1].get("role") != "user":
            self._before.pop()
            self.is_stale = True

    def snapshot(self) -> list[Mapping[str, Any]]:
        """Return all messages. The client then has no void messages."""
        self.is_stale = False
        return [*self._before, *[each.as_json() for each in self._messages.values()]]

    def _add_earlier_calls(self) -> None:
        answered = {str(each.get("toolCallId")) for each in self._before if each.get("role") == "tool"}
        for message in self._before:
            earlier = ThreadMessage("", 0, message)
            for each in message.get("toolCalls") or ():
                identifier = str(each["id"])
                call = ThreadCall(earlier, identifier, identifier, str(each["function"]["name"]))
                call.is_answered = identifier in answered
                self._names[identifier] = 1
                self._calls[call.key] = call
                source, _, number = identifier.rpartition("-")
                before = self._calls.get((earlier.author, source))
                if before is not None and before.is_answered and number.isdecimal():
                    # The identifier may differ from the model's own, see `add_call`.
                    self._calls[earlier.author, source] = call
