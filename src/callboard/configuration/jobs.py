"""The settings of durable jobs: `[jobs]` in the user's callboard.toml.

They name programs to run and addresses to send to, and apply to all jobs of the user. So no project's file may have
them, not even a trusted one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.text.duration import parse_duration

NotifyFormat: TypeAlias = Literal["json", "slack", "discord", "teams", "ntfy"]
_BOARD_URL: Final = re.compile(r"https?://[^\s<>|\"]+", re.ASCII)


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[jobs.notify]]`: a notification when a job waits for a person or has ended."""

    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell."""
    url: str = ""
    """An http or https address that gets a POST."""
    format: NotifyFormat | None = None
    """Format of the POST; None chooses by the host."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("name either a command or a url")
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("a url begins with http:// or https:// and a host")
        elif not self.command[0]:
            raise ValueError("a command begins with a program")

    @property
    def place(self) -> str:
        """The program or the host; the rest of a URL may be secret."""
        return self.command[0] if self.command else urlsplit(self.url).hostname or ""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[jobs.queues.NAME]`."""

    starts_per_minute: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Maximum segment starts per minute, across all workers. 0 removes the limit; None keeps another worker's limit."""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Maximum concurrent segments of the queue in one worker; None means the worker's own limit."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[jobs.models."NAME"]`."""

    starts_per_minute: Annotated[int, msgspec.Meta(ge=1)]
    """Maximum segment starts per minute for the model's jobs, evenly spaced, across all workers."""


class TemporalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs.temporal]`. TEMPORAL_API_KEY and Temporal's own variables and file configure the rest."""

    address: str = ""
    """HOST:PORT of the server; by default as in Temporal's own settings, else localhost:7233."""
    namespace: str = ""
    """Namespace of the workflows; by default as in Temporal's own settings, else "default"."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs]`."""

    engine: Literal["embedded", "temporal"] = "embedded"
    """The engine that assigns segments to workers."""
    temporal: TemporalSettings = TemporalSettings()
    notify: tuple[NotifySettings, ...] = ()
    board_url: str = "http://127.0.0.1:8283"
    """Address of the board that messages to chats link to."""
    queues: Mapping[str, QueueSettings] = {}
    """Settings of queues, by name."""
    models: Mapping[str, ModelSettings] = {}
    """Settings of models, by their names in jobs."""
    budget_per_day: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Maximum cost of all jobs per day (UTC), in US dollars. When it is spent, jobs wait for the next day."""
    keep: str = ""
    """Age at which ended jobs are deleted, such as `30d`; empty keeps them."""
    directories: tuple[str, ...] = ()
    """Directory trees that jobs of a shared database may use. `~` is your home."""
    trust_database: bool = False
    """True to let jobs of a shared database name code, URLs and directories, push, and turn off the sandbox."""

    def __post_init__(self) -> None:
        if not (self.board_url.isascii() and _BOARD_URL.fullmatch(self.board_url)):
            raise ValueError("board_url begins with http:// or https:// and a host")
        for each in self.directories:
            if not each.startswith(("/", "~")):
                raise ValueError(f"a directory begins with / or ~, and {each!r} does not")
        if self.keep:
            try:
                parse_duration(self.keep)
            except CallerError as error:
                raise ValueError(str(error)) from None

    @property
    def keep_age(self) -> timedelta | None:
        """`keep` as a duration, None to keep jobs."""
        return parse_duration(self.keep) if self.keep else None
