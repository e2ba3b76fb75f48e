"""The settings of durable jobs: `[jobs]` in the user's callboard.toml.

They name programs to run and addresses to send to, so no project's file may have them, trusted or not.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec


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


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs]`."""

    notify: tuple[NotifySettings, ...] = ()
