"""The text that has arrived and is not emitted yet.

A grammar is a generator that reads from this buffer; a bare `yield` waits for more text. If there is no more text, the
`yield` raises EndOfText. If the text since `hold` is longer than MAX_HELD characters, it raises NotACall.

    text:   ...emitted | read, pending | not read yet
                       ^ pending_offset ^ at

Text that was read is pending until it is emitted as text (`emit`), or dropped because it belongs to a call (`drop`).

Law: each character is read a constant number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from callboard.core import Event, Note, NoteKind, ReasoningPiece, TextPiece
from callboard.text.marker_pattern import MarkerPattern, Match

MAX_HELD = 64 * 1024
"""Maximum characters that may wait until they are decided."""

MAX_RUN = 64
"""Maximum characters of a run that opens or closes a fence, of its language, and of white space around them."""

MAX_BEFORE = 512
"""Number of characters before a call that decide whether they quote it."""

_MAX_PIECES = 16
"""Maximum pieces of emitted text before their last characters are joined."""
_NO_BLANK = re.compile(r"\S")
_NEVER = 1 << 62

T = TypeVar("T")
Write: TypeAlias = Callable[[str, int], object]
"""Takes the next text of a call and the offset of its end."""
Reading: TypeAlias = Generator[None, None, T]
"""A generator that waits for text and returns what it has read."""


class EndOfText(Exception):  # not an error: a signal to a generator that no text follows
    """There is no more text."""


class NotACall(Exception):  # not an error either
    """The text since `hold` is not a call. It is text that is not emitted yet."""


class TooLong(Exception):  # a signal about a recording
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
        "idle_pattern",
        "out",
        "piece_type",
        "plain_pattern",
        "plain_write",
        "text",
    )

    def __init__(self, base: int = 0) -> None:
        self.text = ""
        self.at = 0
        self.base = base
        self.out: list[Event] = []
        self.piece_type: type[TextPiece | ReasoningPiece] = TextPiece
        """The event class for emitted text: TextPiece or ReasoningPiece."""
        self.idle_pattern: re.Pattern[str] | None = None
        """While the reader waits, text without a match of this pattern is emitted instead of read."""
        self.plain_pattern: re.Pattern[str] | None = None
        """While the reader waits, text that this pattern matches is passed to `plain_write` instead of read."""
        self.plain_write: Write | None = None
        self._recent: list[str] = []
        """Pieces of emitted text since the last call, with at least the last MAX_BEFORE characters."""
        self.discards = False
        """True if text does not need to be kept, because it goes into a call."""
        self._pending_at = 0
        """Start of the pending part in `text`; earlier parts are in `_held_pieces`."""
        self._held_pieces: list[str] = []
        self._held_size = 0
        self._limit = _NEVER
        self._record: list[str] | None = None
        self._record_from = 0
        self._record_limit = _NEVER

    # Incoming text.

    @property
    def room(self) -> int:
        """Number of characters that may still arrive before the limit is reached."""
        return min(self._limit, self._record_limit) - self.base - len(self.text)

    @property
    def limit_error(self) -> type[Exception]:
        """The exception to raise at the limit."""
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
        """Skip a text while nothing is pending or unread. Return its offsets."""
        begin = self.base + len(self.text)
        self.base = begin + len(text)
        self.text = ""
        self.at = self._pending_at = 0
        self._remember(text)
        return begin, self.base

    def pass_plain(self, text: str) -> bool:
        """Pass text to `plain_write` if it is plain and there is room for it."""
        end = self.base + len(self.text) + len(text)
        if self.plain_pattern is None or self.plain_write is None or end > self._limit or end > self._record_limit:
            return False
        if self.plain_pattern.fullmatch(text) is None:
            return False
        self.push(text)
        self.at = len(text)
        self.plain_write(text, end)
        return True

    def unread(self, text: str) -> None:
        """Put back the last characters that were read."""
        if self._record is not None:
            record = "".join([*self._record, self.text[self._record_from : self.at]])
            self._record = [record[: len(record) - len(text)]]
            self._record_from = 0
        self.text = text + self.text[self.at :]
        self.base += self.at - len(text)
        self.at = self._pending_at = 0

    # Text that was read is emitted, dropped or noted.

    @property
    def offset(self) -> int:
        """The offset of the next character."""
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
        """Number of newlines in the pending text."""
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

    # Text that was read may turn out to be text of the reply.

    def hold(self) -> None:
        """Hold text that may be a call. NotACall is raised if it is not decided (`release`) within MAX_HELD characters."""
        self._limit = self.pending_offset + MAX_HELD

    def release(self) -> None:
        self._limit = _NEVER

    def start_recording(self) -> None:
        """Record the text that is read from here on, emitted or not."""
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
        """Whether `hold` was called without `release`."""
        return self._limit < _NEVER

    # Reading.

    def write_plain(self, plain: re.Pattern[str], write: Write) -> Reading[None]:
        """Wait for more text, when all text is read. Text that `plain` matches is passed to `write`."""
        self.plain_pattern, self.plain_write = plain, write
        try:
            yield
        finally:
            self.plain_pattern = self.plain_write = None

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
        """Return the next character without reading it."""
        while self.at >= len(self.text):
            yield
        return self.text[self.at]

    def match_first(self, markers: Sequence[MarkerPattern]) -> Reading[tuple[int, Match] | None]:
        """Return the index and match of the first marker that matches here, without reading it, or None."""
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
