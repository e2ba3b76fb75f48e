"""Conversations on disk: one folder each, in the data directory."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError
from callboard.storage.atomic_file import VERSION, check_version
from callboard.storage.directories import data_directory

_FILE = "messages.jsonl"
_ROLLED_BACK = b'{"type":"rolled_back"'
_HEADER = b'{"type":"conversation"'
_BLOCK = 4096


def conversations_directory() -> Path:
    """Return `${XDG_DATA_HOME:-~/.local/share}/callboard/conversations`."""
    return data_directory() / "conversations"


class Conversation:
    """One stored conversation: a Store for an agent, and the history for its next run.

    `identifier` is its name, and `folder` its place on disk. `canisters` is the conversation so far.
    """

    def __init__(self, folder: Path) -> None:
        self.identifier = folder.name
        self._transcript = Transcript(folder / _FILE)
        self.canisters: list[core.Canister] = self._transcript.read() if self.path.exists() else []

    @property
    def path(self) -> Path:
        """The file of the conversation."""
        return self._transcript.path

    @classmethod
    def begin(cls, directory: Path | None = None) -> Conversation:
        """Return a new conversation in `directory`, named by its time. Its file is created with the first canister."""
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        return cls((directory or conversations_directory()) / name)

    @classmethod
    def resume(cls, identifier: str, directory: Path | None = None) -> Conversation:
        """Return the conversation `identifier` of `directory`. Raises CallerError."""
        folder = directory or conversations_directory()
        is_kept = False
        with suppress(OSError, TypeError, ValueError):  # not a valid file name
            is_kept = Path(identifier).name == identifier and (folder / identifier / _FILE).is_file()
        if not is_kept:
            raise CallerError("no such conversation", path=str(identifier)[:64], hint=f"they are kept in {folder}")
        return cls(folder / identifier)

    @classmethod
    def latest(cls, directory: Path | None = None) -> Conversation:
        """Return the newest conversation of `directory`. Raises CallerError if there is none."""
        folder = directory or conversations_directory()
        names = sorted(path.parent.name for path in folder.glob(f"*/{_FILE}"))
        if not names:
            raise CallerError("no conversation is kept yet", path=str(folder))
        return cls(folder / names[-1])

    def messages(self, *, reasoning: bool = False) -> list[dict[str, Any]]:
        """Return `canisters` as messages of Chat Completions. `reasoning` is as for `RunResult.messages`."""
        from callboard.wires.chat import encode_messages  # noqa: PLC0415  # only for messages

        return encode_messages(self.canisters, reasoning=reasoning)

    def append(self, item: core.Canister | core.RolledBack, /) -> None:
        """Store the `item`; it is on disk when this returns. A canister without a time gets the current time.

        Raises:
            CallerError: The item is not a canister, or rolls back to before the beginning.
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
                f"{item!r} is not a canister", path=self.identifier, hint="give UserCanister(...) or another"
            )

    def rollback(self) -> core.RolledBack:
        """Return the event that resets the conversation to before the last user prompt.

        Raises CallerError if there is none.
        """
        positions = [at for at, canister in enumerate(self.canisters) if isinstance(canister, core.UserCanister)]
        if not positions:
            raise CallerError("nothing to roll back", path=self.identifier)
        rolled_back = core.RolledBack(positions[-1])
        self.append(rolled_back)
        return rolled_back

    def fork(self, rounds: int | None = None) -> Conversation:
        """Return a new conversation with the first `rounds` replies of this one and their results; None copies all.

        Raises CallerError if `rounds` is not a number of rounds that this conversation has.
        """
        if rounds is not None and (type(rounds) is not int or rounds < 0):
            hint = "give one from 0 up, or None for all"
            raise CallerError(f"{rounds!r} is not a number of rounds", path=self.identifier, hint=hint)
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
    """A Store: the JSONL file `path` with its version, one canister per line, and lines for rollbacks.

    The first canister creates the file and its folder, for their owner alone. Law: an appended item is on disk when
    `append` returns, and no line of the file ever changes. Only an incomplete last line is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, item: core.Canister | core.RolledBack, /) -> None:
        """Write the `item`. Raises OSError and leaves the file as it was if it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            end = _end_of_lines(file, size)
            if end < size:
                os.ftruncate(file, end)
            try:
                rest = memoryview(
                    (b"" if end else b'%s,"version":%d}\n' % (_HEADER, VERSION)) + core.encode_line(item) + b"\n"
                )
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, end)
                raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            os.close(file)

    def read(self) -> list[core.Canister]:
        """Return the canisters of the conversation, without those that were rolled back.

        An incomplete last line is ignored. Raises CallerError that names the line if a line is not a canister.
        """
        canisters: list[core.Canister] = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n")[:-1], 1):
            place = f"{self.path}:{number}"
            if not line.strip():
                continue
            if line.startswith(_HEADER):
                _check_header(line, place)
            elif line.startswith(_ROLLED_BACK):
                event = core.decode_event(line, path=place)
                del canisters[event.to if isinstance(event, core.RolledBack) else len(canisters) :]
            else:
                canisters.append(core.decode_canister(line, path=place))
        return canisters


def _check_header(line: bytes, place: str) -> None:
    try:
        check_version(msgspec.json.decode(line)["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise CallerError(f"not a conversation: {error}", path=place) from None


def _end_of_lines(file: int, end: int) -> int:
    """Return where the last whole line ends: a process may have died in the middle of the next line."""
    while end:
        begin = max(0, end - _BLOCK)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
