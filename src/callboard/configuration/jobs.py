"""The settings of durable jobs: `[jobs]` in the user's callboard.toml.

They name programs to run and addresses to send to, and what is done with all jobs of the user, so no project's file may
have them, trusted or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.text.duration import parse_duration


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[jobs.notify]]`: who is told when a job waits for somebody or has ended."""

    command: tuple[str, ...] = ()
    """A program and its arguments; no shell reads them."""
    url: str = ""
    """An http or https address that gets a POST."""

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
        """The program or the host; the rest of an address may be secret."""
        return self.command[0] if self.command else urlsplit(self.url).hostname or ""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[jobs.queues.NAME]`."""

    starts_per_minute: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many segments may start a minute, whichever workers serve the queue. 0 lifts the limit; None leaves it as
    another worker has set it."""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many of its segments one worker runs at once; None: as many as the worker runs of all queues."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[jobs.models."NAME"]`."""

    starts_per_minute: Annotated[int, msgspec.Meta(ge=1)]
    """How many segments of jobs of the model start a minute, evenly spaced, in all workers together."""


class TemporalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs.temporal]`. TEMPORAL_API_KEY and Temporal's other variables and file say what else a connection needs."""

    address: str = ""
    """HOST:PORT of the server; by default as in Temporal's own settings, else localhost:7233."""
    namespace: str = ""
    """Namespace of the workflows; by default as in Temporal's own settings, else "default"."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs]`."""

    engine: Literal["embedded", "temporal"] = "embedded"
    """What decides which worker runs which segment."""
    temporal: TemporalSettings = TemporalSettings()
    notify: tuple[NotifySettings, ...] = ()
    queues: Mapping[str, QueueSettings] = {}
    """By their names."""
    models: Mapping[str, ModelSettings] = {}
    """By their names, as jobs have them."""
    budget_per_day: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """US dollars that all jobs may cost in a day (UTC); a job that finds it spent waits for the next."""
    keep: str = ""
    """For how long a job is kept that has ended, such as `30d`; empty keeps it."""
    directories: tuple[str, ...] = ()
    """Directories in which, and below which, jobs of a database that others write to may work. `~` is your home."""
    trust_database: bool = False
    """Whether jobs of a database that others write to may name code, addresses and directories, push, and turn off the
    sandbox."""

    def __post_init__(self) -> None:
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
        """`keep` as a span of time, None where jobs are kept."""
        return parse_duration(self.keep) if self.keep else None
