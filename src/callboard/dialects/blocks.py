"""Call objects between the lines of a text.

Owns where a call object may stand: at the beginning of a line, bare or in a list, or in a fence whose
language is none, JSON or a word for a call. Knows nothing of what the object says.
Law: each character is looked at once; what is held back is at most `MAX_HELD` characters, and text as
soon as it is no call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from callboard.core import Event, Note, TextPiece, Why
from callboard.dialects.call_object import CallObject, Fate
from callboard.dialects.calls import Calls
from callboard.dialects.dialect import Dialect

MAX_HELD = 64 * 1024
"""Characters."""

_LANGUAGES = frozenset(
    {"", "json", "jsonc", "json5", "tool", "tools", "tool_call", "tool_calls", "tool_use", "function"}
)
_MAX_INFO = 64
_INFO_END = re.compile(r"[\n`{\[]")
_NO_SPACE = re.compile(r"[^ \t\r]")
_NO_BLANK = re.compile(r"\S")
_NO_SEPARATOR = re.compile(r"[^\s,;]")


class _At(Enum):
    """Where in the text the next character stands."""

    LINE = auto()
    """Inside a line of text."""
    INDENT = auto()
    """At the beginning of a line, or in the white space there."""
    RUN = auto()
    """In the run of characters that may open a fence."""
    INFO = auto()
    """Behind that run: the fence's language."""
    CANDIDATE = auto()
    """In a fence or a list that may hold calls, before an object."""
    OBJECT = auto()
    AFTER = auto()
    """Behind a call in a fence or a list."""
    CLOSING_RUN = auto()
    CLOSING = auto()
    """Behind the run that closed a fence, in the rest of its line."""
    QUOTED = auto()
    """In a line of a fence that holds no calls, or none any more."""
    QUOTED_INDENT = auto()
    QUOTED_RUN = auto()
    QUOTED_CLOSING = auto()


_HOLDING = frozenset({_At.INDENT, _At.RUN, _At.INFO, _At.CANDIDATE, _At.OBJECT})
_FRAMING = frozenset({_At.AFTER, _At.CLOSING})


class Blocks:
    """Reads a text for the call objects of a dialect: a Stage, text to events."""

    def __init__(self, dialect: Dialect, calls: Calls) -> None:
        self._dialect = dialect
        self._calls = calls
        self._base = 0
        self._held: list[str] = []
        self._held_size = 0
        self._begin_text()

    def _begin_text(self) -> None:
        self._at = _At.INDENT
        self._mark = 0
        """Where in the piece begins what has not been given yet, besides what is held."""
        self._line = 0
        """Where in the piece its last line begins."""
        self._fence = ""
        """What opened the fence that we are in."""
        self._listed = False
        """Whether we are in a list."""
        self._run = 0
        self._info = ""
        self._object: CallObject | None = None
        self._called = False
        """Whether the fence or list held a call: what is no call in it is then noted, not said."""

    def feed(self, text: str, /) -> list[Event]:
        out: list[Event] = []
        at = self._mark = self._line = 0
        size = len(text)
        while at < size:
            at = self._STEPS[self._at](self, text, at, out)
        self._end_piece(text, out)
        self._base += size
        return out

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """What is held. Feeding may go on afterwards: it begins a new line, offsets go on."""
        out: list[Event] = []
        if self._object is not None and self._object.decided:
            self._object.finish(why, self._base, out)
        elif self._called:
            self._note(out)
        else:
            self._say("", 0, out)
        self._drop("", 0)
        self._begin_text()
        return out

    # What happens to characters: they are said, dropped as framing, noted, or held.

    def _end_piece(self, text: str, out: list[Event]) -> None:
        size = len(text)
        at = self._at
        if at in _FRAMING or (self._object is not None and self._object.decided):
            self._drop(text, size)
        elif at in _HOLDING or self._called:
            if at in (_At.INDENT, _At.RUN, _At.INFO):
                self._say_lines(text, out)
            self._held.append(text[self._mark :])
            self._held_size += size - self._mark
            self._mark = size
            if self._held_size > MAX_HELD:
                self._give_up(text, size, out)
        else:
            self._say(text, size, out)

    def _say(self, text: str, end: int, out: list[Event]) -> None:
        said = self._take(text, end)
        if said:
            at = self._base + end
            out.append(TextPiece(said, offsets=(at - len(said), at)))

    def _say_lines(self, text: str, out: list[Event]) -> None:
        """What stands before the line that is being read. Of that line, only its beginning is ever held."""
        if self._line > self._mark:
            self._say(text, self._line, out)

    def _note(self, out: list[Event], text: str = "", end: int = 0) -> None:
        rest = self._take(text, end)
        at = self._base + end
        if said := rest.strip().rstrip(self._fence[:1]).rstrip():
            out.append(Note("dropped", f"after the call in its block: {said}", offsets=(at - len(rest), at)))

    def _drop(self, text: str, end: int) -> None:
        self._held.clear()
        self._held_size = 0
        self._mark = end

    def _take(self, text: str, end: int) -> str:
        taken = "".join(self._held) + text[self._mark : end] if self._held else text[self._mark : end]
        self._drop(text, end)
        return taken

    def _give_up(self, text: str, end: int, out: list[Event]) -> None:
        if self._called:
            self._note(out, text, end)
        else:
            self._say(text, end, out)
        if self._object is not None:
            self._object = None
            self._refuse(_At.QUOTED)

    # The steps. Each reads from `at` and gives the position where the next one goes on.

    def _line_step(self, text: str, at: int, out: list[Event]) -> int:
        newline = text.find("\n", at)
        if newline < 0:
            return len(text)
        self._at = _At.INDENT
        self._line = newline + 1
        return newline + 1

    def _indent(self, text: str, at: int, out: list[Event]) -> int:
        found = _NO_SPACE.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        match text[at]:
            case "`" | "~" as char:
                self._at, self._fence, self._info = _At.RUN, char, ""
                return at + 1
            case "{":
                self._say_lines(text, out)
                return self._begin_object(at)
            case "[":
                self._say_lines(text, out)
                self._at, self._listed = _At.CANDIDATE, True
                return at + 1
            case _:
                self._at = _At.LINE
                return at

    def _run_step(self, text: str, at: int, out: list[Event]) -> int:
        char = self._fence[0]
        if text[at] == char:
            self._fence += char
            return at + 1
        if len(self._fence) >= 3:
            self._at = _At.INFO
        else:
            self._at, self._fence = _At.LINE, ""
        return at

    def _info_step(self, text: str, at: int, out: list[Event]) -> int:
        found = _INFO_END.search(text, at)
        end = len(text) if found is None else found.start()
        if len(self._info) <= _MAX_INFO:
            self._info += text[at:end]
        if found is None:
            return end
        language = self._info.strip().lower() in _LANGUAGES
        if found[0] == "`" and self._fence[0] == "`":
            self._at, self._fence = _At.LINE, ""
        elif language:
            self._say_lines(text, out)
            self._at = _At.CANDIDATE
        elif found[0] == "\n":
            self._at = _At.QUOTED_INDENT
            return end + 1
        else:
            self._info += found[0]
            return end + 1
        return end

    def _candidate(self, text: str, at: int, out: list[Event]) -> int:
        found = _NO_BLANK.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        if text[at] == "{":
            return self._begin_object(at)
        if text[at] == "[":
            self._listed = True
            return at + 1
        self._refuse(_At.QUOTED_INDENT)
        return at

    def _object_step(self, text: str, at: int, out: list[Event]) -> int:
        current = self._object
        if current is None:
            raise AssertionError
        fate, at = current.feed(text, at, self._base, out)
        if fate is Fate.READING:
            return at
        self._object = None
        if current.decided:
            self._drop(text, at)
            self._called = True
            if fate is Fate.CLOSED:
                self._at = _At.AFTER
            else:
                self._refuse(_At.QUOTED)
            return at
        if not self._called:
            self._say(text, at, out)
        self._refuse(_At.QUOTED)
        return at

    def _after(self, text: str, at: int, out: list[Event]) -> int:
        if not self._fence and not self._listed:
            # A bare object ends where it ends.
            self._refuse(_At.LINE)
            return at
        found = _NO_SEPARATOR.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        self._drop(text, at)
        char = text[at]
        if char == "{":
            return self._begin_object(at)
        if char == "]":
            self._listed = False
            self._drop(text, at + 1)
            return at + 1
        if self._fence and char == self._fence[0]:
            self._at, self._run = _At.CLOSING_RUN, 0
        else:
            self._refuse(_At.QUOTED)
        return at

    def _closing_run(self, text: str, at: int, out: list[Event]) -> int:
        if text[at] == self._fence[0]:
            self._run += 1
            return at + 1
        self._at = _At.CLOSING if self._run >= len(self._fence) else _At.QUOTED
        return at

    def _closing(self, text: str, at: int, out: list[Event]) -> int:
        found = _NO_SPACE.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        self._end_block()
        if text[at] == "\n":
            self._drop(text, at + 1)
            self._line = at + 1
            self._at = _At.INDENT
            return at + 1
        self._drop(text, at)
        return at

    def _quoted(self, text: str, at: int, out: list[Event]) -> int:
        newline = text.find("\n", at)
        if newline < 0:
            return len(text)
        self._at = _At.QUOTED_INDENT
        return newline + 1

    def _quoted_indent(self, text: str, at: int, out: list[Event]) -> int:
        found = _NO_SPACE.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        if text[at] == "\n":
            return at + 1
        self._at, self._run = (_At.QUOTED_RUN if text[at] == self._fence[0] else _At.QUOTED), 0
        return at

    def _quoted_run(self, text: str, at: int, out: list[Event]) -> int:
        if text[at] == self._fence[0]:
            self._run += 1
            return at + 1
        self._at = _At.QUOTED_CLOSING if self._run >= len(self._fence) else _At.QUOTED
        return at

    def _quoted_closing(self, text: str, at: int, out: list[Event]) -> int:
        found = _NO_SPACE.search(text, at)
        if found is None:
            return len(text)
        at = found.start()
        if text[at] != "\n":
            self._at = _At.QUOTED
            return at
        if self._called:
            self._note(out, text, at)
            self._drop(text, at + 1)
        self._end_block()
        self._at = _At.INDENT
        self._line = at + 1
        return at + 1

    def _begin_object(self, at: int) -> int:
        self._at = _At.OBJECT
        self._object = CallObject(self._dialect, self._calls, self._base + at)
        return at + 1

    def _refuse(self, quoted: _At) -> None:
        """What follows is no call: it is quoted to the fence's end, or goes on as a line of text."""
        self._listed = False
        if self._fence:
            self._at = quoted
        else:
            self._end_block()

    def _end_block(self) -> None:
        self._at = _At.LINE
        self._fence = ""
        self._listed = False
        self._called = False

    _STEPS: ClassVar[dict[_At, Callable[[Blocks, str, int, list[Event]], int]]] = {
        _At.LINE: _line_step,
        _At.INDENT: _indent,
        _At.RUN: _run_step,
        _At.INFO: _info_step,
        _At.CANDIDATE: _candidate,
        _At.OBJECT: _object_step,
        _At.AFTER: _after,
        _At.CLOSING_RUN: _closing_run,
        _At.CLOSING: _closing,
        _At.QUOTED: _quoted,
        _At.QUOTED_INDENT: _quoted_indent,
        _At.QUOTED_RUN: _quoted_run,
        _At.QUOTED_CLOSING: _quoted_closing,
    }
