"""The steps of a run that a command made itself, as the entries that they would be of a durable job.

A run's log has each piece of a reply, on a line each. `RunEntries` is a Stage that makes canisters of them; other steps
stay as they are. A reply is told when it is whole, so what becomes void on the way is never told.

Laws: the number of an entry is that of a line, no two have the same, and they grow; wherever in the log one begins, at
the beginning of a round, the same line brings the same entries; a line that cannot be read is a notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from callboard.coding.jobs.log import Notice, PhaseStarted, PromptSent, Resumed, RoundMeasured, TreeSnapshot
from callboard.core import (
    ArgumentsPiece,
    Canister,
    Fold,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Nested,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyExtra,
    ReplyFailed,
    ReplyStarted,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    TextPiece,
    ToolProgress,
    Usage,
)
from callboard.errors import CallerError
from callboard.jobs.entries import Item, JobEntry, decode_entry, encode_entry

MAX_REPLY: Final = 1_000_000
"""Characters of one reply that are read."""


class LogLine(NamedTuple):
    """A line of a log, without its line break; `text` is None for one that is too long to be read."""

    number: int
    text: bytes | None


def begins_of(*types: type) -> tuple[bytes, ...]:
    """How lines of steps of these types begin."""
    return tuple([b'{"type":"%s"' % each.__struct_config__.tag.encode() for each in types])  # type: ignore[attr-defined]


PIECES: Final = begins_of(TextPiece, ReasoningPiece, RefusalPiece)
SILENT: Final = begins_of(
    *(ArgumentsPiece, InvocationStarted, ReplyStarted, Usage, RoundMeasured, TreeSnapshot),
    *(ToolProgress, Logprobs, ReplyExtra, Nested),
)
"""Steps that say nothing, or what another one says again."""


class RunEntries:
    """The Stage: lines in, entries out. It is fed from the beginning of a round on, before which were so many `rounds`."""

    def __init__(self, rounds: int = 0) -> None:
        self._round = rounds
        self._held: list[tuple[int, str]] = []
        """What is told with the next entry: prompts and phases, which are of the round that they begin, and what happens
        while a reply comes."""
        self._reply: list[tuple[int, str]] = []
        """What is whole of the reply that comes."""
        self._fold = Fold()
        self._in_reply = False
        self._piece = 0
        """The line of the last piece."""
        self._length = 0
        """Characters of the reply, up to `MAX_REPLY`."""
        self._cut = 0
        """The first line of the reply that is not read any more."""

    def feed(self, line: LogLine, /) -> list[JobEntry]:
        """The entries that are told with this line."""
        if line.text is not None and line.text.startswith(SILENT):
            return []
        if self._length >= MAX_REPLY and line.text is not None and line.text.startswith(PIECES):
            self._cut = self._cut or line.number
            return []
        step = _read_step(line)
        match step:
            case TextPiece(text=text) | ReasoningPiece(text=text) | RefusalPiece(text=text):
                self._in_reply = True
                self._piece = line.number
                self._length += len(text)
                self._fold.feed(step)
                return []
            case InvocationEnded() | InvocationIncomplete():
                self._in_reply = True
                self._add_reply(self._fold.feed(step), line.number)
                return []
            case ReplyEnded(reason="retry"):
                self._drop_reply()
                return self._release()
            case ReplyEnded():
                self._add_reply(self._fold.feed(step), line.number)
                return self._release()
            case Resumed():
                self._drop_reply()
            case PhaseStarted() | PromptSent() | RoundStarted() | ReplyFailed() | RunEnded() | RolledBack():
                return self._end_reply(step, line.number)
            case ResultReady(canister=canister):
                step = canister
            case _:
                pass
        self._held.append((line.number, encode_entry(step)))
        return [] if self._in_reply else self._release()

    def finish(self, why: str = "stop", /) -> list[JobEntry]:
        """Nothing: a reply that is not whole is not told."""
        return []

    def _end_reply(self, step: Item, number: int) -> list[JobEntry]:
        """Tell a reply as far as it came, and the step behind it."""
        entries: list[JobEntry] = []
        if self._in_reply:
            self._add_reply(self._fold.finish("cancelled"), number)
            entries = self._release()
        self._held.append((number, encode_entry(step)))
        if isinstance(step, RoundStarted):
            self._round += 1
        return entries if isinstance(step, PhaseStarted | PromptSent) else entries + self._release()

    def _add_reply(self, canisters: Sequence[Canister], number: int) -> None:
        for canister in canisters:
            line = number if isinstance(canister, InvocationCanister) else self._piece
            self._reply.append((line, encode_entry(canister)))

    def _drop_reply(self) -> None:
        self._fold.finish()
        self._reply.clear()
        self._in_reply = False
        self._cut = 0

    def _release(self) -> list[JobEntry]:
        if self._cut:
            text = f"The reply has more than {MAX_REPLY:,} characters; callboard jobs logs prints all of it."
            self._held.append((self._cut, encode_entry(Notice(text))))
        entries = [JobEntry(number, self._round, line) for number, line in sorted(self._held + self._reply)]
        self._held.clear()
        self._reply.clear()
        self._in_reply = False
        self._length = self._cut = 0
        return entries


def _read_step(line: LogLine) -> Item:
    if line.text is None:
        return Notice(f"Line {line.number} of the log is too long to be shown; callboard jobs logs prints it.")
    try:
        return decode_entry(line.text.decode())
    except (CallerError, UnicodeDecodeError):
        return Notice(f"Line {line.number} of the log is none that this release of Callboard reads.")
