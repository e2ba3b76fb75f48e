"""The calls of one text: their order, identifiers, allowed names, and events.

Law: arguments are only appended to. An opened call is always closed, whole or incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    Offsets,
    ToolDeclaration,
    identify_in_turn,
)

_decode = msgspec.json.Decoder().decode
_MANY = 512
"""Maximum pieces before they are joined, so that small pieces take no more memory than their text."""
_LONE = re.compile("[\ud800-\udfff]")
Repair = Callable[[str], Any]


class CallBuilder:
    """Create calls. If `tools` is None, every name counts as declared.

    A call keeps the identifier from the model, unless another call of the text has the same one. An identifier that
    only counts the calls of its reply is kept only if there is no `identify`.
    """

    __slots__ = ("_declared", "_identify", "_repair", "_taken", "_usable_identifier", "count")

    def __init__(
        self, tools: Iterable[ToolDeclaration] | None, identify: Identify | None = None, repair: Repair | None = None
    ) -> None:
        self._declared: Mapping[str, ToolDeclaration] | None = (
            None if tools is None else {tool.name: tool for tool in tools}
        )
        self._identify = identify or identify_in_turn(0)
        self._usable_identifier = re.compile(r"(?s)." if identify is None else r".*\D")
        self._repair = repair
        self._taken: set[str] = set()
        self.count = 0

    @property
    def names(self) -> Iterable[str]:
        return self._declared or ()

    @property
    def takes_any(self) -> bool:
        """Whether any name may be called."""
        return self._declared is None

    def is_declared(self, name: str) -> bool:
        return self._declared is None or name in self._declared

    def without_namespace(self, name: str) -> str:
        """Return the name of a declared tool without the namespace that the model called it in."""
        head, _, tail = name.partition(".")
        if self._declared is None or name in self._declared:
            return head if head == tail and self._declared is None else name
        leaf = name.rpartition(".")[2]
        return head if head == tail else leaf if leaf in self._declared else name

    def schema(self, name: str) -> Mapping[str, Any]:
        """Return the schema of a tool's arguments, or an empty schema for an undeclared tool."""
        tool = self._declared.get(name) if self._declared else None
        return tool.schema if tool else {}

    def fits(self, name: str, arguments: Mapping[str, Any] | None) -> bool:
        """Whether the tool accepts these arguments after coercion."""
        from callboard.errors import SchemaError  # noqa: PLC0415  # for objects that may not be calls
        from callboard.schema import ArgumentsInvalid, compile_schema  # noqa: PLC0415  # as above

        if arguments is None:
            return False
        try:
            compile_schema(self.schema(name)).validate(arguments)
        except ArgumentsInvalid:
            return False
        except SchemaError:
            pass
        return True

    def flags(self, name: str) -> Mapping[str, str]:
        """Return the flags of a tool as a command, with their arguments."""
        tool = self._declared.get(name) if self._declared else None
        return tool.cli if tool else {}

    def open(self, name: str, begin: int, end: int, identifier: str = "") -> tuple[OpenCall, InvocationStarted]:
        index = self.count
        self.count += 1
        if not identifier or identifier in self._taken or not self._usable_identifier.match(identifier):
            identifier = self._identify(index, name)
        self._taken.add(identifier)
        started = InvocationStarted(index, identifier, name, self.is_declared(name), (begin, end))
        return OpenCall(started, (begin, end), self._repair), started

    def take_back(self, count: int, events: Iterable[Event]) -> None:
        """Take back all calls after the first `count`."""
        self.count = count
        self._taken -= {event.identifier for event in events if isinstance(event, InvocationStarted)}


class OpenCall:
    """A call whose arguments are arriving. `flush` turns them into an event."""

    __slots__ = (
        "_blocks",
        "_emitted_to",
        "_pending",
        "_pieces",
        "_repair",
        "begin",
        "end",
        "identifier",
        "index",
        "name",
    )

    def __init__(self, started: InvocationStarted, span: Offsets, repair: Repair | None) -> None:
        self.index = started.index
        self.identifier = started.identifier
        self.name = started.name
        self.begin, self.end = span
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._pending: list[str] = []
        self._emitted_to = self.end
        self._repair = repair

    def write(self, json: str, end: int) -> None:
        """Append arguments that were read up to the offset `end`. Lone surrogates are replaced."""
        self._pending.append(json if json.isascii() else _LONE.sub("\ufffd", json))
        self.end = end

    def flush(self, out: list[Event]) -> None:
        if self._pending:
            piece = self._pending[0] if len(self._pending) == 1 else "".join(self._pending)
            self._pending.clear()
            if piece:
                self._pieces.append(piece)
                if len(self._pieces) == _MANY:
                    self._blocks.append("".join(self._pieces))
                    self._pieces.clear()
                out.append(ArgumentsPiece(self.index, piece, (self._emitted_to, self.end)))
                self._emitted_to = self.end

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are an object so far."""
        return parse_object(self._text()) is not None

    def _text(self) -> str:
        return "".join([*self._blocks, *self._pieces, *self._pending])

    def close(self, end: int, out: list[Event]) -> None:
        """End the call as a whole call."""
        self.flush(out)
        raw = self._text()
        self._blocks.clear()
        self._pieces.clear()
        arguments = parse_object(raw)
        if arguments is None and self._repair is not None:
            repaired = self._repair(raw)
            if isinstance(repaired, dict):
                arguments = repaired
                out.append(Note("repaired", f"the arguments of {self.name}", (self.begin, end)))
        out.append(InvocationEnded(self.index, self.identifier, self.name, arguments, raw, (self.begin, end)))

    def abandon(self, why: str, end: int, out: list[Event]) -> None:
        """End the call as incomplete, because the text ended inside it."""
        self.flush(out)
        raw = self._text()
        out.append(InvocationIncomplete(self.index, self.identifier, self.name, raw, why, (self.begin, end)))


def parse_object(raw: str) -> dict[str, Any] | None:
    """Return the JSON object in `raw`, or None if there is none."""
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def escape_json(text: str) -> str:
    """Escape the characters for a JSON string. Lone surrogates are replaced."""
    if not text.isascii():
        text = _LONE.sub("\ufffd", text)
    return encode_basestring(text)[1:-1]


def quote_json(text: str) -> str:
    """Return the characters as a JSON string."""
    return f'"{escape_json(text)}"'
