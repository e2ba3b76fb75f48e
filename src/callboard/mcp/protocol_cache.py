"""Which servers speak an older protocol, remembered between processes.

A server that does not answer the newer protocol's first request costs ten seconds, and one that ends at it is started
twice; with this cache only once. The file holds the server's name and version, so that an updated server is asked again. A
cache that cannot be read or written is ignored.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from callboard.mcp.identity import state_file
from callboard.mcp.settings import ServerSettings
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory


class ProtocolCache:
    """The servers that speak an older protocol, in a directory, by default in our state directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory() / "mcp" / "eras"

    def is_legacy(self, settings: ServerSettings) -> bool:
        """Whether the server spoke an older protocol when it was last connected."""
        try:
            return state_file(self._directory, settings).exists()
        except OSError:
            return False

    def remember(self, settings: ServerSettings, *, legacy: bool, version: str) -> None:
        """Store how the server was connected; forget one that was updated since."""
        path = state_file(self._directory, settings)
        data = version.encode("utf-8", "replace")
        with suppress(OSError):
            if not legacy or (path.exists() and path.read_bytes() != data):
                path.unlink(missing_ok=True)
            elif not path.exists():
                write_private(path, data)

    def forget(self, settings: ServerSettings) -> None:
        with suppress(OSError):
            state_file(self._directory, settings).unlink(missing_ok=True)
