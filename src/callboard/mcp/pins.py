"""What a server offered when it was first used.

Owns the pins: a hash of each tool and of the server's instructions, trusted at the first use, in one file for a
server's name and for what is started or asked under it. Knows nothing of connections.
Law: what changed, or came later, is not offered before its user accepted it; whatever is wrong with a file of pins
is no first use. What a tool says of its own harmlessness is hashed and decides nothing.
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
from callboard.mcp.identity import files_of, identity_of, name_of, state_file
from callboard.mcp.settings import ServerSettings
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    from mcp_types import Tool

_HASHED = ("name", "description", "inputSchema", "outputSchema", "annotations")


class Pinned(msgspec.Struct, frozen=True):
    """The hashes of one server: of its instructions, and of its tools by their names.

    `identity` is that of the program or URL which had the name.
    """

    server: str
    identity: str = ""
    instructions: str = ""
    tools: Mapping[str, str] = {}


class Compared(msgspec.Struct, frozen=True):
    """What a server offers now, beside its pins: the names of tools that are as pinned, that changed, that are new.

    `instructions` says whether those are as pinned. `replaces` is true at the first use of a program or URL whose name
    another one had.
    """

    same: tuple[str, ...]
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    instructions: bool = True
    replaces: bool = False


class Pins:
    """The pins of servers, kept in a directory, by default `mcp` of `state_directory()`.

    Whoever only `looks` trusts nobody: a first use is none.
    """

    def __init__(self, directory: Path | None = None, *, looks: bool = False) -> None:
        self._looks = looks
        self._directory = directory or state_directory() / "mcp" / "pins"

    def compare(self, server: ServerSettings, tools: Iterable[Tool], instructions: str = "") -> Compared:
        """What is as pinned; at the first use all is, and is pinned.

        Raises CallerError for a file that is none or cannot be written.
        """
        offered: dict[str, str] = {}
        for tool in tools:
            # Of two with one name the first is meant, here and where invokers are made.
            if tool.name not in offered:
                offered[tool.name] = tool_hash(tool)
        text = text_hash(instructions)
        pinned = self.of(server)
        if pinned is None:
            others = bool(files_of(self._directory, server.name))
            if not self._looks:
                self._write(server, text, offered)
            return Compared(tuple(offered), replaces=others)
        return Compared(
            tuple(name for name, found in offered.items() if pinned.tools.get(name) == found),
            tuple(name for name, found in offered.items() if pinned.tools.get(name, found) != found),
            tuple(name for name in offered if name not in pinned.tools),
            pinned.instructions == text,
        )

    def accept(self, server: ServerSettings, tools: Iterable[Tool], instructions: str | None = None) -> None:
        """Pins these tools as they are now, and the instructions unless they are None; other pins stay."""
        pinned = self.of(server) or Pinned(server.name)
        self._write(
            server,
            pinned.instructions if instructions is None else text_hash(instructions),
            {**pinned.tools, **{tool.name: tool_hash(tool) for tool in reversed([*tools])}},
        )

    def of(self, server: ServerSettings) -> Pinned | None:
        """The pins of a server; None before its first use. Raises CallerError for a file that is none."""
        path = state_file(self._directory, server)
        try:
            return _read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def forget(self, name: str) -> bool:
        """The next use of whatever has this name is its first. Whether there was something to forget."""
        files = files_of(self._directory, name)
        for path in files:
            path.unlink(missing_ok=True)
        return bool(files)

    def every(self) -> list[Pinned]:
        """The pins of all servers, by their names. Raises CallerError for a file that is none."""
        return sorted(map(_read, self._directory.glob("*.json")), key=lambda each: (each.server, each.identity))

    def _write(self, server: ServerSettings, instructions: str, tools: Mapping[str, str]) -> None:
        path = state_file(self._directory, server)
        pinned = Pinned(server.name, identity_of(server), instructions, tools)
        try:
            write_private(path, msgspec.json.format(msgspec.json.encode(pinned)))
        except OSError as error:
            raise CallerError(
                f"what is trusted of {server.name} cannot be kept: {error.strerror or error}",
                path=str(path),
                hint="let XDG_STATE_HOME name a directory that you may write to, or set pinned = false",
            ) from None


def _read(path: Path) -> Pinned:
    """Raises FileNotFoundError and NotADirectoryError, and CallerError for what is no file of pins."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Pinned)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, msgspec.MsgspecError) as error:
        hint = f"look at it; `callboard mcp pins forget {shlex.quote(name_of(path))}`"
        raise CallerError(f"not a file of pins: {error}", path=str(path), hint=hint) from None


def tool_hash(tool: Tool) -> str:
    """SHA-256 over the canonical JSON of what a tool says of itself."""
    said: dict[str, Any] = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _sha256({key: said[key] for key in _HASHED if key in said})


def text_hash(text: str) -> str:
    """SHA-256 of a text; of none, nothing."""
    return _sha256(text) if text else ""


def _sha256(value: Any) -> str:
    # Keys sorted, no spaces, all but ASCII escaped: half a character has a form too.
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
