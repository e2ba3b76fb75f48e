"""Trust on first use: a hash of each tool and of the server's instructions, stored when the server is first used.

Laws: changed and new tools are not offered before the user accepts them. A damaged file of pins does not count as a
first use. A tool's own annotations, such as `readOnlyHint`, are hashed but decide nothing.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.errors import CallerError
from callboard.mcp.settings import ServerSettings, find_state_files, identity_hash, server_name, state_file
from callboard.storage.atomic_file import StoredFile, write_private
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    from mcp_types import Tool

_HASHED = ("name", "description", "inputSchema", "outputSchema", "annotations")


class PinnedServer(StoredFile, frozen=True):
    """The hashes of one server: for its instructions, and for its tools by name.

    `identity` identifies the program or URL with this name.
    """

    server: str
    identity: str = ""
    instructions: str = ""
    tools: Mapping[str, str] = {}


class PinComparison(msgspec.Struct, frozen=True):
    """Comparison of a server's tools with its pins: the names of unchanged, changed and new tools.

    `instructions` is True if the instructions match the pin. `replaces` is True on the first use of a program or URL
    whose name belonged to another one.
    """

    same: tuple[str, ...]
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    instructions: bool = True
    replaces: bool = False


class Pins:
    """The pins of servers in a `directory`, by default in our state directory. With `read_only`, nothing is pinned."""

    def __init__(self, directory: Path | None = None, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._directory = directory or state_directory() / "mcp" / "pins"

    def compare(self, server: ServerSettings, tools: Iterable[Tool], instructions: str = "") -> PinComparison:
        """Return how `tools` and `instructions` differ from the pins of `server`. The first use pins everything.

        Raises:
            CallerError: The file is damaged or cannot be written.
        """
        offered: dict[str, str] = {}
        for tool in tools:
            # If two tools have the same name, the first one counts, here and in the invokers.
            if tool.name not in offered:
                offered[tool.name] = hash_tool(tool)
        text = hash_text(instructions)
        pinned = self.get(server)
        if pinned is None:
            others = bool(find_state_files(self._directory, server.name))
            if not self._read_only:
                self._write(server, text, offered)
            return PinComparison(tuple(offered), replaces=others)
        return PinComparison(
            tuple(name for name, digest in offered.items() if pinned.tools.get(name) == digest),
            tuple(name for name, digest in offered.items() if pinned.tools.get(name, digest) != digest),
            tuple(name for name in offered if name not in pinned.tools),
            pinned.instructions == text,
        )

    def accept(self, server: ServerSettings, tools: Iterable[Tool], instructions: str | None = None) -> None:
        """Pin these `tools` of `server` as they are now, and the `instructions` unless they are None.

        Other pins stay.
        """
        pinned = self.get(server) or PinnedServer(server.name)
        self._write(
            server,
            pinned.instructions if instructions is None else hash_text(instructions),
            {**pinned.tools, **{tool.name: hash_tool(tool) for tool in reversed([*tools])}},
        )

    def get(self, server: ServerSettings) -> PinnedServer | None:
        """Return the pins of `server`, or None before its first use. Raises CallerError if the file is damaged."""
        path = state_file(self._directory, server)
        try:
            return _read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def forget(self, name: str) -> bool:
        """Return whether there were any pins under `name`, after removing them. The next use is then the first."""
        files = find_state_files(self._directory, name)
        for path in files:
            path.unlink(missing_ok=True)
        return bool(files)

    def list_all(self) -> list[PinnedServer]:
        """Return the pins of all servers, sorted by name. Raises CallerError if a file is damaged."""
        return sorted(map(_read, self._directory.glob("*.json")), key=lambda each: (each.server, each.identity))

    def _write(self, server: ServerSettings, instructions: str, tools: Mapping[str, str]) -> None:
        path = state_file(self._directory, server)
        pinned = PinnedServer(server.name, identity_hash(server), instructions, tools)
        try:
            write_private(path, msgspec.json.format(msgspec.json.encode(pinned)))
        except OSError as error:
            raise CallerError(
                f"what is trusted of {server.name} cannot be kept: {error.strerror or error}",
                path=str(path),
                hint="let XDG_STATE_HOME name a directory that you may write to, or set pinned = false",
            ) from None


def _read(path: Path) -> PinnedServer:
    """Read a file. Raises FileNotFoundError, NotADirectoryError, and CallerError if the file is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=PinnedServer)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, msgspec.MsgspecError) as error:
        hint = f"look at it; `callboard mcp pins forget {shlex.quote(server_name(path))}`"
        raise CallerError(f"not a file of pins: {error}", path=str(path), hint=hint) from None


def hash_tool(tool: Tool) -> str:
    """SHA-256 of the canonical JSON of a tool's definition."""
    facts: dict[str, Any] = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _sha256({key: facts[key] for key in _HASHED if key in facts})


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text, or an empty text for an empty one."""
    return _sha256(text) if text else ""


def _sha256(value: Any) -> str:
    # Sorted keys, no spaces, and ASCII escapes, so that lone surrogates can be hashed too.
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
