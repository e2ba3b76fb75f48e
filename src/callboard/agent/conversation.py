"""Conversations on disk: a folder each, in the data directory."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from callboard.agent.transcript import Transcript
from callboard.core import AssistantCanister, Canister, InvocationCanister, RolledBack, UserCanister
from callboard.core.ports import Clock
from callboard.errors import CallerError

_FILE = "messages.jsonl"


def conversations_directory() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/conversations`."""
    from callboard.storage.directories import data_directory  # noqa: PLC0415 - not for `import callboard`

    return data_directory() / "conversations"


class Conversation:
    """One kept conversation: a Store for an agent, and the history for its next run.

    `identifier` names it, `canisters` are those it goes on from.
    """

    def __init__(self, folder: Path) -> None:
        self.identifier = folder.name
        self._transcript = Transcript(folder / _FILE)
        self.canisters: list[Canister] = self._transcript.read() if self.path.exists() else []

    @property
    def path(self) -> Path:
        """Its file."""
        return self._transcript.path

    @classmethod
    def begin(
        cls,
        directory: Path | None = None,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        token: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> Conversation:
        """A new one, named by its time; on the disk from its first canister on."""
        return cls((directory or conversations_directory()) / f"{clock():%Y%m%d-%H%M%S}-{token()}")

    @classmethod
    def resume(cls, identifier: str, directory: Path | None = None) -> Conversation:
        """The one of that name. Raises CallerError."""
        folder = directory or conversations_directory()
        if not isinstance(identifier, str) or Path(identifier).name != identifier or not _is_there(folder / identifier):
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

    def append(self, item: Canister | RolledBack, /) -> None:
        """Keep it, on the disk when this returns. A canister that does not say when it was made is made now.

        Raises:
            CallerError: It is no canister, or goes back to before the beginning.
        """
        if isinstance(item, RolledBack) and item.to >= 0:
            self._transcript.append(item)
            del self.canisters[item.to :]
        elif isinstance(item, Canister):
            canister = item if item.timestamp else replace(item, timestamp=datetime.now(UTC))
            self._transcript.append(canister)
            self.canisters.append(canister)
        else:
            raise CallerError(
                f"{item!r} is no canister", path=self.identifier, hint="give UserCanister(...) or another"
            )

    def rollback(self) -> RolledBack:
        """Goes back to before what the user said last. Raises CallerError if nothing was said."""
        positions = [at for at, canister in enumerate(self.canisters) if isinstance(canister, UserCanister)]
        if not positions:
            raise CallerError("nothing to roll back", path=self.identifier)
        rolled_back = RolledBack(positions[-1])
        self.append(rolled_back)
        return rolled_back

    def fork(self, rounds: int | None = None, *, directory: Path | None = None) -> Conversation:
        """A new conversation that begins with this one's first `rounds` replies and their results; None takes all.

        Raises CallerError for more rounds than there are, and for what is no number of them.
        """
        if rounds is not None and (type(rounds) is not int or rounds < 0):
            hint = "give one from 0 up, or None for all"
            raise CallerError(f"{rounds!r} is no number of rounds", path=self.identifier, hint=hint)
        forked = Conversation.begin(directory or self.path.parent.parent)
        for canister in self.canisters[: self._end_of(rounds)]:
            forked.append(canister)
        return forked

    def _end_of(self, rounds: int | None) -> int:
        if rounds is None:
            return len(self.canisters)
        replies = 0
        replying = False
        for at, canister in enumerate(self.canisters):
            replies_here = isinstance(canister, (AssistantCanister, InvocationCanister))
            if replies_here and not replying:
                if replies == rounds:
                    return at
                replies += 1
            if rounds and replies == rounds and isinstance(canister, UserCanister):
                return at
            replying = replies_here
        if replies < rounds:
            raise CallerError(f"it has {replies} rounds, not {rounds}", path=self.identifier)
        return len(self.canisters)


def _is_there(folder: Path) -> bool:
    try:
        return (folder / _FILE).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
