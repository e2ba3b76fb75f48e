"""Conversations on disk: a folder each, in the data directory."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError
from callboard.storage.directories import data_directory

_FILE = "messages.jsonl"
_ROLLED_BACK = b'{"type":"rolled_back"'
_BLOCK = 4096


def conversations_directory() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/conversations`."""
    return data_directory() / "conversations"


class Conversation:
    """One kept conversation: a Store for an agent, and the history for its next run.

    `identifier` names it, `canisters` are those it goes on from.
    """

    def __init__(self, folder: Path) -> None:
        self.identifier = folder.name
        self._transcript = Transcript(folder / _FILE)
        self.canisters: list[core.Canister] = self._transcript.read() if self.path.exists() else []

    @property
    def path(self) -> Path:
        """Its file."""
        return self._transcript.path

    @classmethod
    def begin(cls, directory: Path | None = None) -> Conversation:
        """A new one, named by its time; on the disk from its first canister on."""
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        return cls((directory or conversations_directory()) / name)

    @classmethod
    def resume(cls, identifier: str, directory: Path | None = None) -> Conversation:
        """The one of that name. Raises CallerError."""
        folder = directory or conversations_directory()
        is_kept = False
        with suppress(OSError, TypeError, ValueError):  # a name that no file can have
            is_kept = Path(identifier).name == identifier and (folder / identifier / _FILE).is_file()
        if not is_kept:
            raise CallerError("no such conversation", path=str(identifier)[:64], hint=f"they are kept in {folder}")
        return cls(folder / identifier)

    @classmethod
    def latest(cls, directory: Path | None = None) -> Conversation:
        """The one that was begun last. Raises CallerError if there is none."""
        folder = directory or conversations_directory()
        names = sorted(path.parent.name for path in folder.glob(f"*/{_FILE}"))
        if not names:
            raise CallerError("no conversation is kept yet", path=str(folder))
        return cls(folder / names[-1])

    def append(self, item: core.Canister | core.RolledBack, /) -> None:
        """Keep it, on the disk when this returns. A canister that does not say when it was made is made now.

        Raises:
            CallerError: It is no canister, or goes back to before the beginning.
        """
        if isinstance(item, core.RolledBack) and item.to >= 0:
            self._transcript.append(item)
            del self.canisters[item.to :]
        elif isinstance(item, core.Canister):
            canister = item if item.timestamp else replace(item, timestamp=datetime.now(UTC))
            self._transcript.append(canister)
            self.canisters.append(canister)
        else:
            raise CallerError(
                f"{item!r} is no canister", path=self.identifier, hint="give UserCanister(...) or another"
            )

    def rollback(self) -> core.RolledBack:
        """Goes back to before what the user said last. Raises CallerError if nothing was said."""
        positions = [at for at, canister in enumerate(self.canisters) if isinstance(canister, core.UserCanister)]
        if not positions:
            raise CallerError("nothing to roll back", path=self.identifier)
        rolled_back = core.RolledBack(positions[-1])
        self.append(rolled_back)
        return rolled_back

    def fork(self, rounds: int | None = None) -> Conversation:
        """A new conversation that begins with this one's first `rounds` replies and their results; None takes all.

        Raises CallerError for more rounds than there are, and for what is no number of them.
        """
        if rounds is not None and (type(rounds) is not int or rounds < 0):
            hint = "give one from 0 up, or None for all"
            raise CallerError(f"{rounds!r} is no number of rounds", path=self.identifier, hint=hint)
        forked = Conversation.begin(self.path.parent.parent)
        for canister in self.canisters[: self._end_of(rounds)]:
            forked.append(canister)
        return forked

    def _end_of(self, rounds: int | None) -> int:
        if rounds is None:
            return len(self.canisters)
        replies = 0
        replying = False
        for at, canister in enumerate(self.canisters):
            replies_here = isinstance(canister, (core.AssistantCanister, core.InvocationCanister))
            if replies_here and not replying:
                if replies == rounds:
                    return at
                replies += 1
            if rounds and replies == rounds and isinstance(canister, core.UserCanister):
                return at
            replying = replies_here
        if replies < rounds:
            raise CallerError(f"it has {replies} rounds, not {rounds}", path=self.identifier)
        return len(self.canisters)


class Transcript:
    """A Store: a JSONL file with a canister a line, and lines that say where the conversation was rolled back.

    The file and its folder are made at the first canister, for their owner alone. Law: what was appended is on disk when
    `append` returns, and no line of the file is ever changed; what is taken away is only the beginning of a line that
    could not be written whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, item: core.Canister | core.RolledBack, /) -> None:
        """Raises OSError, with the file as it was, if it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            end = _end_of_lines(file, size)
            if end < size:
                os.ftruncate(file, end)
            try:
                rest = memoryview(core.encode_line(item) + b"\n")
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, end)
                raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            os.close(file)

    def read(self) -> list[core.Canister]:
        """The canisters of the conversation as it goes on: what was rolled back is not among them.

        A last line that was cut is left out. Raises CallerError that names the line that is no canister.
        """
        canisters: list[core.Canister] = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n")[:-1], 1):
            if not line.strip():
                continue
            place = f"{self.path}:{number}"
            if line.startswith(_ROLLED_BACK):
                event = core.decode_event(line, path=place)
                del canisters[event.to if isinstance(event, core.RolledBack) else len(canisters) :]
            else:
                canisters.append(core.decode_canister(line, path=place))
        return canisters


def _end_of_lines(file: int, end: int) -> int:
    """Where the last whole line ends: a process may have died in the middle of the next."""
    while end:
        begin = max(0, end - _BLOCK)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
