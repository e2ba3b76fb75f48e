"""The text that has arrived and is not emitted yet.

A grammar is a generator that reads from this buffer; a bare `yield` waits for more text. At a `yield` EndOfText is
raised when there is none, and NotACall when what was read since `hold` has grown longer than MAX_HELD characters.

    text:   ...emitted | read, pending | not read yet
                       ^ pending_offset ^ at

What was read is pending until it is emitted as text (`emit`), or dropped because it went into a call (`drop`).

Law: each character is looked at a constant number of times.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

from callboard.core import Event, Note, NoteKind, ReasoningPiece, TextPiece
from callboard.text.marker_pattern import MarkerPattern, Match

MAX_HELD = 64 * 1024
"""Characters that may wait until it is decided what they are."""

MAX_RUN = 64
"""Characters of a run that opens or closes a fence, of its language, and of white space around them."""

MAX_BEFORE = 512
"""Characters before a call that decide whether they quote it."""

_MAX_PIECES = 64
"""Pieces of emitted text that are kept before their last characters are joined."""
_NO_BLANK = re.compile(r"\S")
_NEVER = 1 << 62

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A generator that waits for text; its value is what it has read."""


class EndOfText(Exception):  # no error: it tells a generator that no text follows
    """There is no more text."""


class NotACall(Exception):  # no error either
    """What was read since `hold` is no call; it is text, and not emitted yet."""


class TooLong(Exception):  # the same for a recording
    """The recording has become too long."""


class TextBuffer:
    """`text[at]` is the next character to read, with the offset `base + at`."""

    __slots__ = (
        "_held_pieces",
        "_held_size",
        "_limit",
        "_pending_at",
        "_recent",
        "_record",
        "_record_from",
        "_record_limit",
        "at",
        "base",
        "discards",
        "out",
        "piece_type",
        "text",
    )

    def __init__(self, base: int = 0) -> None:
        self.text = ""
        self.at = 0
        self.base = base
        self.out: list[Event] = []
        self.piece_type: type[TextPiece | ReasoningPiece] = TextPiece
        """The event class for emitted text: TextPiece or ReasoningPiece."""
        self._recent: list[str] = []
        """Pieces of emitted text since the last call, the last MAX_BEFORE characters at least."""
        self.discards = False
        """What is read need not be kept, since it goes into a call."""
        self._pending_at = 0
        """Where the pending part of `text` begins; earlier parts are in `_held_pieces`."""
        self._held_pieces: list[str] = []
        self._held_size = 0
        self._limit = _NEVER
        self._record: list[str] | None = None
        self._record_from = 0
        self._record_limit = _NEVER

    # The text comes in.

    @property
    def room(self) -> int:
        """How many more characters may come before something has waited too long."""
        return min(self._limit, self._record_limit) - self.base - len(self.text)

    @property
    def limit_error(self) -> type[Exception]:
        """What to raise when there is no room."""
        return TooLong if self._record_limit <= self._limit else NotACall

    def push(self, piece: str) -> None:
        at = self.at
        if at > self._pending_at and not self.discards:
            self._held_pieces.append(self.text[self._pending_at : at])
            self._held_size += at - self._pending_at
        if self._record is not None:
            self._record.append(self.text[self._record_from : at])
            self._record_from = 0
        self.base += at
        self.text = self.text[at:] + piece if at < len(self.text) else piece
        self.at = self._pending_at = 0

    def skip(self, text: str) -> tuple[int, int]:
        """Pass over a text, where nothing is pending or unread. Returns its offsets."""
        begin = self.base + len(self.text)
        self.base = begin + len(text)
        self.text = ""
        self.at = self._pending_at = 0
        self._remember(text)
        return begin, self.base

    def unread(self, text: str) -> None:
        """Gives back the last characters that were read."""
        if self._record is not None:
            record = "".join([*self._record, self.text[self._record_from : self.at]])
            self._record = [record[: len(record) - len(text)]]
            self._record_from = 0
        self.text = text + self.text[self.at :]
        self.base += self.at - len(text)
        self.at = self._pending_at = 0

    # What was read is emitted, dropped or noted.

    @property
    def offset(self) -> int:
        """Of the next character."""
        return self.base + self.at

    @property
    def pending_offset(self) -> int:
        """The offset where the pending text begins."""
        return self.base + self._pending_at - self._held_size

    def take(self) -> str:
        taken = self.text[self._pending_at : self.at]
        if self._held_pieces:
            self._held_pieces.append(taken)
            taken = "".join(self._held_pieces)
        self.drop()
        return taken

    @property
    def pending_words(self) -> str:
        """The text that is pending or not read yet, without white space around it."""
        return self.pending_text.strip()

    @property
    def pending_text(self) -> str:
        """The text that is pending or not read yet."""
        return "".join(self._held_pieces) + self.text[self._pending_at :]

    @property
    def pending_lines(self) -> int:
        """Newlines in what was read and is pending."""
        held = sum(piece.count("\n") for piece in self._held_pieces)
        return held + self.text.count("\n", self._pending_at, self.at)

    def drop(self) -> None:
        if self._held_pieces:
            self._held_pieces = []
            self._held_size = 0
        self._pending_at = self.at

    def emit(self) -> None:
        text = self.take()
        if text:
            end = self.base + self.at
            self.out.append(self.piece_type(text, offsets=(end - len(text), end)))
            self._remember(text)

    def _remember(self, text: str) -> None:
        self._recent.append(text[-MAX_BEFORE:])
        if len(self._recent) > _MAX_PIECES:
            self._recent = [self.before]

    @property
    def before(self) -> str:
        """The last MAX_BEFORE characters of emitted text since the last call."""
        return "".join(self._recent)[-MAX_BEFORE:]

    @before.setter
    def before(self, text: str) -> None:
        self._recent = [text]

    def note(self, kind: NoteKind, text: str, begin: int) -> None:
        self.out.append(Note(kind, text, offsets=(begin, self.offset)))

    # What was read may turn out to be text.

    def hold(self) -> None:
        """The pending text may be a call: NotACall is raised if that is not decided (`release`) within MAX_HELD."""
        self._limit = self.pending_offset + MAX_HELD

    def release(self) -> None:
        self._limit = _NEVER

    def start_recording(self) -> None:
        """Record what is read from here on, emitted or not."""
        self._record = []
        self._record_from = self.at
        self._record_limit = self.offset + MAX_HELD

    def stop_recording(self) -> str:
        """End the recording and return it."""
        record, self._record = self._record or [], None
        self._record_limit = _NEVER
        return "".join([*record, self.text[self._record_from : self.at]])

    @property
    def is_holding(self) -> bool:
        """Between `hold` and `release`."""
        return self._limit < _NEVER

    # Reading.

    def skip_blank(self) -> Reading[None]:
        """Read white space."""
        while True:
            match = _NO_BLANK.search(self.text, self.at)
            if match is not None:
                self.at = match.start()
                return
            self.at = len(self.text)
            yield

    def peek(self) -> Reading[str]:
        """The next character, not read yet."""
        while self.at >= len(self.text):
            yield
        return self.text[self.at]

    def match_first(self, markers: Sequence[MarkerPattern]) -> Reading[tuple[int, Match] | None]:
        """The index and match of the first marker that matches here, which is not read yet; None for none."""
        while True:
            for index, marker in enumerate(markers):
                match = marker.match(self.text, self.at)
                if match is True:
                    break
                if match:
                    return index, match
            else:
                return None
            try:
                yield
            except EndOfText:
                for at, each in enumerate(markers):
                    last = each.match_end(self.text, self.at)
                    if last is not None:
                        return at, last
                raise

    def read_run(self, chars: str, most: int = MAX_HELD) -> Reading[int]:
        """Read up to `most` of these characters and return how many; they are emitted unless held."""
        count = 0
        while True:
            begin = at = self.at
            size = len(self.text)
            end = min(size, at + most - count)
            while at < end and self.text[at] in chars:
                at += 1
            count += at - begin
            self.at = at
            if at < size or count == most:
                return count
            if not self.is_holding:
                self.emit()
            yield
