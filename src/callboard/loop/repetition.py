"""Stop a reply that repeats itself endlessly.

A reply consists of units: sentences and lines that are not empty. It is stopped after `MAX_TIMES` copies in a row of a
cycle of at most `MAX_CYCLE` units that contains prose or a whole fenced block. Tables, drawings, lines in a fence and
arguments of calls may repeat without limit.
Laws: the same text is stopped at the same character, however it is split. The work per character is constant.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from callboard import core

MAX_TIMES: Final = 12
"""Number of copies in a row that stop the reply."""
MAX_CYCLE: Final = 24
"""Maximum units of a recognized cycle."""
MAX_UNIT: Final = 1000
"""Maximum characters of a unit; a longer one counts as several."""

_END: Final = re.compile(r"\n|[.!?][ \t]|[。！？]")  # noqa: RUF001  # sentences in Chinese and Japanese
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_FIRST_WIDE: Final = "\u2e80"
"""The first character of scripts without spaces between words."""
_MIN_WORDS: Final = 4
_MIN_WIDE: Final = 8
_NOTE: Final = "the reply repeated itself, and was stopped"


class RepetitionFilter:
    """A Stage between a model and the loop that passes the events of a reply until its text repeats itself endlessly.

    The reply then ends with an alert and `ReplyEnded("length")`. All later events are dropped.
    """

    def __init__(self) -> None:
        self._is_stopped = False
        self._open_calls = 0
        self._begin()

    def _begin(self) -> None:
        self._unit = ""
        """Beginning of the current unit."""
        self._starts_line = True
        self._fence = ""
        """Mark of the open fence."""
        self._units: deque[int] = deque(maxlen=MAX_CYCLE)
        """Hashes of the last units, newest first."""
        self._since_prose = MAX_CYCLE
        """Units since the last unit that is prose or closes a fence."""
        self._repeated = [0] * MAX_CYCLE
        """Number of units in a row that equal the unit one cycle before, indexed by the cycle's length less one."""

    def feed(self, event: core.Event, /) -> list[core.Event]:
        """Return the `event`, or the end of the reply."""
        if isinstance(event, core.ReplyStarted):
            self._is_stopped = False
        if self._is_stopped:
            return []
        match event:
            case core.TextPiece(text=text) if not self._open_calls:
                if (end := self._find_end(text)) is None:
                    return [event]
                self._is_stopped = True
                return [
                    core.TextPiece(text[:end]),
                    core.Note("alert", _NOTE, code="repetition"),
                    core.ReplyEnded("length"),
                ]
            case core.InvocationStarted():
                self._open_calls += 1
                self._begin()
            case core.InvocationEnded() | core.InvocationIncomplete():
                self._open_calls = max(0, self._open_calls - 1)
            case core.ReplyStarted() | core.ReplyEnded() | core.ReplyFailed():
                self._open_calls = 0
                self._begin()
            case _:
                pass
        return [event]

    def finish(self, _why: core.Why = "stop", /) -> list[core.Event]:
        """Return nothing for any `_why`: the filter holds no events back."""
        return []

    def _find_end(self, piece: str) -> int | None:
        text, start = self._unit + piece, 0
        position = max(0, len(self._unit) - 1)
        while True:
            hit = _END.search(text, position, start + MAX_UNIT)
            if hit is None and len(text) < start + MAX_UNIT:
                self._unit = text[start:]
                return None
            end = hit.end() if hit else start + MAX_UNIT
            if self._ends_cycle(text[start:end]):
                return end - (len(text) - len(piece))
            self._starts_line = text[end - 1] == "\n"
            start = position = end

    def _ends_cycle(self, unit: str) -> bool:
        unit = " ".join(unit.split())
        if not unit:
            return False
        closes = self._read_fence(unit)
        is_prose = closes or (not self._fence and _is_prose(unit))
        self._since_prose = 0 if is_prose else self._since_prose + 1
        key = hash(unit)
        for index, before in enumerate(self._units):
            self._repeated[index] = self._repeated[index] + 1 if before == key else 0
        self._units.appendleft(key)
        if self._fence or self._since_prose >= MAX_CYCLE:
            return False
        lengths = range(self._since_prose + 1, MAX_CYCLE + 1)
        return any(self._repeated[length - 1] >= length * (MAX_TIMES - 1) for length in lengths)

    def _read_fence(self, unit: str) -> bool:
        """Follow the fences. Return whether the unit closes one."""
        mark = _FENCE.match(unit) if self._starts_line else None
        if mark is None:
            return False
        if not self._fence:
            self._fence = "" if unit[0] in unit[mark.end() :] else mark[0]
        elif unit.startswith(self._fence) and not unit.strip(unit[0]):
            self._fence = ""
            return True
        return False


def _is_prose(unit: str) -> bool:
    """Whether most words of a unit are plain words, and the unit is not a row of a table."""
    if unit[0] in "|+":
        return False
    words = unit.split(" ")
    plain = sum(word.strip("*_`\"'(),.;:!?-").isalpha() for word in words)
    wide = sum(character >= _FIRST_WIDE for character in unit)
    return wide >= _MIN_WIDE or (plain >= _MIN_WORDS and 2 * plain >= len(words))
