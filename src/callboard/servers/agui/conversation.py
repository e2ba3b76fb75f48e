"""The messages of an AG-UI thread, as a client has them after the events that it was sent.

It is kept so that a snapshot of it can be sent where messages turn out to be void: a reply that is asked for again, a
conversation that is rolled back.

Laws: an identifier of a message, and one of a call, is never given twice; constant work for each piece of a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class ThreadCall:
    """A call, with its arguments as far as they came.

    `source` is the identifier that the model knows it by, which the model of a run within the run may have given as well.
    """

    message: ThreadMessage
    identifier: str
    source: str
    name: str
    arguments: list[str] = field(default_factory=list)
    is_answered: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Which run it is of, and its source."""
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
        """The run within the run that it is of, "" for the run itself."""
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
    """The messages of a thread, and the identifiers that were given.

    Args:
        prefix: What identifiers of messages begin with; no other run of the thread has it.
        messages: Those that the client has already.
    """

    def __init__(self, prefix: str, messages: Iterable[Mapping[str, Any]] = ()) -> None:
        self.is_stale = False
        """Whether the client has messages that are void."""
        self._prefix = prefix
        self._before = list(messages)
        self._messages: dict[str, ThreadMessage] = {}
        self._message_ids = {str(each.get("id")) for each in self._before}
        self._ordinal = 0
        self._number = 0
        """In the identifier of the last message."""
        self._names: dict[str, int] = {}
        """How often each identifier of a call, or of a run within the run, was asked for."""
        self._calls: dict[tuple[str, str], ThreadCall] = {}
        """The last call of each key."""
        self.unanswered: dict[str, ThreadCall] = {}
        """Those that began in this run."""
        self._add_earlier_calls()

    @property
    def next_ordinal(self) -> int:
        """That of the next message; they grow."""
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
        """A new call of a message. Models give an identifier twice; clients are given another one then."""
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
        """The last call that the model of a run knows by this identifier."""
        return self._calls.get((author, source))

    def client_call_id(self, source: str, author: str = "") -> str:
        """What the client knows the call by that the model of a run knows by this identifier."""
        call = self._calls.get((author, source))
        return source if call is None else call.identifier

    def confirm_call(self, call: ThreadCall) -> None:
        """Of several calls that the model gave this identifier, it is the one that results are of."""
        self._calls[call.key] = call

    def answer(self, source: str, author: str = "") -> ThreadCall | None:
        """The call that a result is of, None where it was answered before."""
        call = self.find_call(source, author)
        if call is None:
            call = self.add_call(ThreadMessage("", 0, {"subagentRunId": author}), source, "")
        if call.is_answered:
            return None
        call.is_answered = True
        self.unanswered.pop(call.identifier, None)
        return call

    def name_subagent(self, call: str) -> str:
        """A new identifier of a run that begins within this one."""
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
        """All messages from this one on are void."""
        while self._messages:
            message = next(reversed(self._messages.values()))
            if message.ordinal < ordinal:
                return
            self.remove_message(message)

    def cut_earlier(self) -> None:
        """Of the client's own messages those are void that follow the user's last one."""
        while self._before and self._before[-1].get("role") != "user":
            self._before.pop()
            self.is_stale = True

    def snapshot(self) -> list[Mapping[str, Any]]:
        """All messages; what was void at the client is no more, once it has them."""
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
                    # It may have got another identifier than the model gave it, as `add_call` does.
                    self._calls[earlier.author, source] = call
