"""The log of a run that a command made itself: which lines a page shows, and which are new.

A log may have 100 MB, nearly all of it pieces of replies. So a line is looked at by its first characters alone, unless it
is shown. All of this reads files, and is called in a thread.

Laws: a last line that is not whole is not there yet; what is held of a log is a few bytes for each line that is no piece.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Final, NamedTuple

from callboard.coding.jobs.log import PhaseStarted, PromptSent, RoundMeasured
from callboard.core import ArgumentsPiece, RoundStarted
from callboard.errors import CallerError
from callboard.jobs.entries import decode_entry
from callboard.jobs.reader import JobRound
from callboard.servers.board.run_entries import PIECES, SILENT, LogLine, begins_of

MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of a line that is read."""
MAX_LOG: Final = 1024 * 1024 * 1024
"""Bytes of a log; what is behind them is not shown."""
_PIECES: Final = (*PIECES, *begins_of(ArgumentsPiece))
_MEASURED: Final = begins_of(RoundMeasured)
_ROUND: Final = begins_of(RoundStarted)
_HEADS: Final = (*begins_of(PhaseStarted, PromptSent), *_ROUND)
"""Steps that a round begins with."""


class LogPlace(NamedTuple):
    """The beginning of a line: its number, its place in the file, and how many rounds began before it."""

    line: int
    offset: int
    rounds: int


class RunLog:
    """A log as far as it was read. Its methods raise CallerError where it cannot be read; one that is not there is empty."""

    def __init__(self, path: Path) -> None:
        self.lines = 0
        """Those that were read."""
        self.marks = array("Q")
        """The numbers of the lines that may bring an entry."""
        self._path = path
        self._offset = 0
        self._size = -1
        """That of the file when its end was reached."""
        self._heads: list[LogPlace] = []
        """Where the rounds begin, with their prompts and phases."""
        self._rounds: list[tuple[int, int]] = []
        """For each round its own line, and how many marks are before it."""
        self._usage: Counter[str] = Counter()
        self._costs: list[float | None] = []
        self._head: LogPlace | None = None
        """That of the next round, if its prompt or phase was read."""

    def read_on(self, until: int = sys.maxsize, *, with_pieces: bool = True) -> Iterator[LogLine]:
        """The whole lines behind those that were read, up to the line of a number."""
        with self._open() as file:
            size = file.seek(0, 2)
            if size == self._size:
                return
            file.seek(self._offset)
            while self.lines < until and self._offset < MAX_LOG:
                length, text = _read_line(file)
                if not length:
                    self._size = size
                    return
                is_piece = text is not None and text.startswith(_PIECES)
                if not is_piece:
                    self._note(text or b"")
                self.lines += 1
                self._offset += length
                if with_pieces or not is_piece:
                    yield LogLine(self.lines, text)

    def skim(self, until: int = sys.maxsize) -> None:
        """Read on, for what is known of the lines alone."""
        deque(self.read_on(until, with_pieces=False), maxlen=0)

    def begin_before(self, line: int) -> LogPlace:
        """Where the round begins that a line is of, or the log."""
        at = bisect_left(self._heads, (line + 1,))
        return self._heads[at - 1] if at else LogPlace(1, 0, 0)

    def read(self, begin: LogPlace, last: int) -> Iterator[LogLine]:
        """The lines from a place up to the line of a number, once more."""
        with self._open() as file:
            file.seek(begin.offset)
            for number in range(begin.line, last + 1):
                length, text = _read_line(file)
                if not length:
                    return
                yield LogLine(number, text)

    @property
    def usage(self) -> dict[str, int]:
        """The tokens of the rounds that are over."""
        return dict(self._usage)

    @property
    def cost(self) -> float | None:
        """Theirs in US dollars, None where that of one is not known."""
        known = [each for each in self._costs if each is not None]
        return sum(known) if known and len(known) == len(self._costs) else None

    @property
    def rounds(self) -> list[JobRound]:
        """The rounds, as those of a durable job."""
        ends = [*[before for _, before in self._rounds[1:]], len(self.marks)]
        rows = zip(self._rounds, ends, strict=False)  # the end of no round, where none has begun
        return [JobRound(number, line, end - before) for number, ((line, before), end) in enumerate(rows, 1)]

    def _note(self, text: bytes) -> None:
        if text.startswith(SILENT):
            self._measure(text)
            return
        number = self.lines + 1
        self.marks.append(number)
        if not text.startswith(_HEADS):
            self._head = None
            return
        self._head = self._head or LogPlace(number, self._offset, len(self._rounds))
        if text.startswith(_ROUND):
            self._heads.append(self._head)
            self._rounds.append((number, len(self.marks) - 1))
            self._head = None

    def _measure(self, text: bytes) -> None:
        if not text.startswith(_MEASURED):
            return
        with suppress(CallerError, UnicodeDecodeError):
            step = decode_entry(text.decode())
            if isinstance(step, RoundMeasured):
                self._usage.update(step.usage)
                self._costs.append(step.cost)

    def _open(self) -> IO[bytes]:
        try:
            return self._path.open("rb")
        except FileNotFoundError:
            return BytesIO()
        except OSError as error:
            raise CallerError(f"it cannot be read: {error.strerror}", path=str(self._path)) from None


def _read_line(file: IO[bytes]) -> tuple[int, bytes | None]:
    """The next line: its length with the line break, and its text without, None if it is too long; 0 if it is not whole."""
    text = file.readline(MAX_LINE)
    length = len(text)
    if text.endswith(b"\n"):
        return length, text[:-1]
    while len(text) == MAX_LINE:
        text = file.readline(MAX_LINE)
        length += len(text)
        if text.endswith(b"\n"):
            return length, None
    return 0, None
