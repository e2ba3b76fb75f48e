"""What the sessions of an ACP client need of the command line, which makes the chats of the terminal too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.chat.session import ChatSession
from callboard.coding.jobs.job import Job
from callboard.coding.jobs.store import JobStore
from callboard.providers.registry import PlannedModel


class PreparedChat(NamedTuple):
    """A chat that is to be opened; `models` are the names of those to choose from, the first its own."""

    request: JobRequest
    model: PlannedModel
    models: tuple[str, ...]


class Chats(Protocol):
    """Prepares chats, and runs their commands."""

    @property
    def jobs(self) -> JobStore:
        """Where chats are recorded."""
        ...

    @property
    def commands(self) -> Mapping[str, tuple[str, str]]:
        """The commands that a person may type: what follows the name, and a summary."""
        ...

    async def prepare(self, directory: Path, *, earlier: Job | None = None, model: str = "") -> PreparedChat:
        """A chat in a directory, or one that goes on; with `model` in place of that of the settings.

        The caller closes the model. Raises CallboardError.
        """
        ...

    async def run_command(self, chat: ChatSession, line: str) -> str | None:
        """What a command shows; None where the line is none. Raises CallboardError, OSError."""
        ...
