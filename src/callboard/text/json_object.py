"""Tokenize one JSON object that arrives in pieces: which member is read, and where its value begins and ends.

Inside a member's value only strings and brackets are followed; whether the value is valid JSON is for its reader to
decide once it is whole.

Law: each character is looked at once.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from callboard.text.json_value import STRING_STOP, Brackets

MAX_KEY = 256
"""Characters; a longer key is broken."""

_SCALAR = re.compile(r"[,}\]\s]")
_SPACE = " \t\r\n"


class Token(Enum):
    """The token at which `step` stopped."""

    MORE = auto()
    """The end of the piece."""
    KEY = auto()
    """The key of a member, in `key`; the position is after its closing quote."""
    BEGIN = auto()
    """A member's value begins at the position; its first character is in `opener`."""
    END = auto()
    """The member's value ended before the position."""
    LEFT = auto()
    """An object that was entered is closed; the position is after its brace."""
    DONE = auto()
    """The object is closed; the position is after its brace."""
    BROKEN = auto()
    """Not a JSON object: the character at the position is not allowed there."""


class _State(Enum):
    OPENED = auto()
    BEFORE_KEY = auto()
    KEY = auto()
    BEFORE_COLON = auto()
    BEFORE_VALUE = auto()
    VALUE = auto()
    STRING = auto()
    SCALAR = auto()
    DEEP = auto()
    AFTER_VALUE = auto()
    OVER = auto()


_IS = {
    _State.OPENED: '"}',
    _State.BEFORE_KEY: '"',
    _State.BEFORE_COLON: ":",
    _State.AFTER_VALUE: ",}",
}
"""Characters allowed in each state, besides white space."""

_VALUE_STATE = {'"': _State.STRING, "{": _State.DEEP, "[": _State.DEEP} | dict.fromkeys("-0123456789tfn", _State.SCALAR)


class JsonObject:
    """Reads the inside of one object, after its opening brace.

    `step(text, at)` continues from `at` to the next token, and returns the token and its position.
    After BEGIN of a value that opens with a brace, `enter()` also reports its members; the next
    step then begins after that brace.
    """

    __slots__ = ("_escaped", "_key", "_state", "_value", "key", "levels", "opener")

    def __init__(self) -> None:
        self.key = ""
        self.opener = ""
        self._state = _State.OPENED
        self.levels = 1
        """Number of the entered objects, including the first."""
        self._value = Brackets()
        self._key: list[str] = []
        self._escaped = False

    @property
    def is_in_string(self) -> bool:
        """True if the next text belongs to a string of a value, as far as it matches `STRING_TEXT`."""
        if self._state is _State.DEEP:
            return self._value.is_in_string
        return self._state is _State.STRING and not self._escaped

    def enter(self) -> None:
        self.levels += 1
        self._state = _State.OPENED

    def skip_value(self) -> None:
        """Skip the value that begins, because the caller has read it; the next step continues after it."""
        self._state = _State.AFTER_VALUE

    def step(self, text: str, at: int) -> tuple[Token, int]:  # noqa: PLR0915  # one loop over one table of states
        state = self._state
        size = len(text)
        while True:
            if state is _State.VALUE:
                # Entered only after BEGIN was given and `enter` was not called.
                state = self._state = _VALUE_STATE[self.opener]
                if state is _State.DEEP:
                    self._value = Brackets()
                else:
                    at += 1
            if state is _State.STRING or state is _State.KEY:
                begin = at
                at, closed = self._string(text, at)
                if state is _State.KEY:
                    before = sum(map(len, self._key))
                    self._key.append(text[begin:at])
                    if before + at - begin > MAX_KEY:
                        self._state = _State.OVER
                        return Token.BROKEN, begin + MAX_KEY - before
                if not closed:
                    return Token.MORE, size
                if state is _State.STRING:
                    self._state = _State.AFTER_VALUE
                    return Token.END, at
                return self._end_key(at)
            if state is _State.DEEP:
                closed, at = self._value.step(text, at)
                if not closed:
                    return Token.MORE, at
                if self._value.broken:
                    self._state = _State.OVER
                    return Token.BROKEN, at
                self._state = _State.AFTER_VALUE
                return Token.END, at
            if state is _State.SCALAR:
                match = _SCALAR.search(text, at)
                if match is None:
                    return Token.MORE, size
                self._state = _State.AFTER_VALUE
                return Token.END, match.start()
            if state is _State.OVER:
                return Token.BROKEN, at
            while at < size and text[at] in _SPACE:
                at += 1
            if at == size:
                return Token.MORE, size
            char = text[at]
            if state is _State.BEFORE_VALUE:
                if char not in _VALUE_STATE:
                    self._state = _State.OVER
                    return Token.BROKEN, at
                self.opener = char
                self._state = _State.VALUE
                return Token.BEGIN, at
            if char not in _IS[state]:
                self._state = _State.OVER
                return Token.BROKEN, at
            at += 1
            if char == '"':
                self._key = []
                state = self._state = _State.KEY
            elif char == ":":
                state = self._state = _State.BEFORE_VALUE
            elif char == ",":
                state = self._state = _State.BEFORE_KEY
            else:
                self.levels -= 1
                if self.levels:
                    self._state = _State.AFTER_VALUE
                    return Token.LEFT, at
                self._state = _State.OVER
                return Token.DONE, at

    def _string(self, text: str, at: int) -> tuple[int, bool]:
        """Return the position after the string's closing quote, or the end of the piece."""
        size = len(text)
        if self._escaped and at < size:
            self._escaped = False
            at += 1
        while (match := STRING_STOP.search(text, at)) is not None:
            at = match.end()
            if match[0] == '"':
                return at, True
            if at == size:
                self._escaped = True
            at += 1
        return size, False

    def _end_key(self, at: int) -> tuple[Token, int]:
        try:
            self.key = json.loads('"' + "".join(self._key), strict=False)
        except ValueError:
            self._state = _State.OVER
            return Token.BROKEN, at - 1
        self._state = _State.BEFORE_COLON
        return Token.KEY, at
