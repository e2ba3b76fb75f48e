"""A JSON object that may be a call.

Owns the decision: what the object's members say it is, and what is streamed of it meanwhile. Knows
nothing of what stands around it.
Law: nothing is given before the object is decided; then nothing that was given changes.
"""

from __future__ import annotations

import json
from enum import Enum, auto

from callboard.core import Event, ReasoningPiece, TextPiece
from callboard.dialects.calls import Calls, OpenCall, as_object
from callboard.dialects.dialect import Dialect, Role
from callboard.text.json_object import JsonObject, Token
from callboard.text.json_string import JsonString

_SAYING = (Role.TEXT, Role.REASONING)
_ENDING = (Token.MORE, Token.END, Token.BROKEN)
_NAMING = (Role.NAME, Role.WRAPPER)


class Fate(Enum):
    """What has become of the object."""

    READING = auto()
    CLOSED = auto()
    """It is at its end; `decided` says whether anything came of it."""
    REFUSED = auto()
    """It is nothing of ours, or no JSON: all of it so far is text."""
    BROKEN = auto()
    """It was a call, and then no JSON."""


class CallObject:
    """Reads one object from behind its opening brace, which stands at offset `begin`."""

    def __init__(self, dialect: Dialect, calls: Calls, begin: int) -> None:
        self.decided = False
        self._dialect = dialect
        self._calls = calls
        self._begin = begin
        self._reader = JsonObject()
        self._role: Role | None = None
        self._name: str | None = None
        self._captured: list[str] | None = None
        self._arguments: list[str] | None = None
        self._call: OpenCall | None = None
        self._said: JsonString | None = None
        self._said_from = -1
        self._streaming = False

    def feed(self, text: str, at: int, base: int, out: list[Event]) -> tuple[Fate, int]:
        """Goes on at `at` of `text`, whose first character has the offset `base`."""
        while True:
            begin = at
            token, at = self._reader.step(text, at)
            if begin < at and token in _ENDING:
                self._take(text[begin:at], base + begin, out)
            if token is Token.MORE:
                return Fate.READING, at
            if token is Token.KEY:
                self._role = self._dialect.keys.get(self._reader.key)
            elif token is Token.BEGIN:
                if self._role is Role.WRAPPER and self._reader.opener == "{":
                    self._reader.enter()
                    at += 1
                else:
                    self._begin_value(base, at, out)
            elif token is Token.END:
                if not self._end_value(base + at, out):
                    return Fate.REFUSED, at
            elif token is Token.DONE:
                if self._call is not None:
                    out.append(self._call.close(base + at))
                return Fate.CLOSED, at
            elif token is Token.BROKEN:
                if self._call is None:
                    return (Fate.CLOSED if self.decided else Fate.REFUSED), at
                out.append(self._call.close(base + at))
                return Fate.BROKEN, at
            # LEFT: the members of the object around it follow.

    def finish(self, cut: str, end: int, out: list[Event]) -> None:
        """The text ended inside the object. Only a decided one may be finished."""
        if self._said is not None:
            self._say(self._said.finish(), end, out)
        if self._call is None:
            return
        whole = as_object("".join(self._call.pieces)) is not None
        out.append(self._call.close(end) if whole and cut == "stop" else self._call.abandon(cut, end))

    def _begin_value(self, base: int, at: int, out: list[Event]) -> None:
        """Decides what to do with the value at `at`."""
        opener, role = self._reader.opener, self._role
        self._captured = None
        self._said = None
        self._streaming = False
        if role in _SAYING and opener == '"':
            self.decided = True
            self._said = JsonString()
            self._said_from = -1
        elif role in _SAYING or (role in _NAMING and self._name is None):
            self._captured = []
        elif role is Role.ARGUMENTS and self._arguments is None and opener in '{"':
            self._captured = self._arguments = []
            if self._name is not None and opener == "{":
                self._open(base + at, out)
                self._streaming = True

    def _take(self, raw: str, begin: int, out: list[Event]) -> None:
        """Some characters of the value that is being read."""
        if self._said is not None:
            end = begin + len(raw)
            if self._said_from < 0:
                raw, self._said_from = raw[1:], begin + 1
            if not self._reader.in_string:
                raw, end = raw[:-1], end - 1
            self._say(self._said.feed(raw), end - self._said.held, out)
        elif self._streaming and self._call is not None:
            out.append(self._call.append(raw, begin, begin + len(raw)))
        elif self._captured is not None:
            self._captured.append(raw)

    def _end_value(self, end: int, out: list[Event]) -> bool:
        """The value is whole. False if it shows that the object is none of ours."""
        captured, self._captured = self._captured, None
        if self._said is not None or self._streaming or captured is None:
            self._said = None
            self._streaming = False
            return True
        raw = "".join(captured)
        if self._role in _SAYING:
            if raw != "null":
                self.decided = True
                self._said_from = end - len(raw)
                self._say(raw, end, out)
            return True
        if raw == "null":
            return True
        if self._role is Role.ARGUMENTS:
            if raw.startswith('"'):
                raw = _unquoted(raw)
                if as_object(raw) is None:
                    return False
            self._arguments = [raw]
        else:
            name = _unquoted(raw)
            if not raw.startswith('"') or not (self._calls.declared(name) or self._dialect.undeclared):
                return False
            self._name = name
        if self._name is not None and self._arguments:
            self._open(end, out)
            if self._call is not None:
                out.append(self._call.append(self._arguments[0], self._begin, end))
        return True

    def _say(self, said: str, end: int, out: list[Event]) -> None:
        if said:
            piece = ReasoningPiece if self._role is Role.REASONING else TextPiece
            out.append(piece(said, offsets=(self._said_from, end)))
            self._said_from = end

    def _open(self, end: int, out: list[Event]) -> None:
        self.decided = True
        self._call, started = self._calls.open(self._name or "", self._begin, end)
        out.append(started)


def _unquoted(raw: str) -> str:
    """The characters of a JSON string, what is no string as it is."""
    try:
        value = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return raw
    return value if isinstance(value, str) else raw
