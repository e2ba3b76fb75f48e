"""Keep results that are too long for a model, and let it read on.

Law: a model names a result by its identifier and never by a path; only the newest results are kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from callboard.core import ResultCanister, TextualContent, ToolDeclaration, contents
from callboard.errors import NoSuchTool
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import state_directory
from callboard.tools import Context, Ensemble, Invoker

READ_RESULT: Final = "read_result"
RESULTS: Final = "results"
"""The ensemble of that tool alone."""
MAX_KEPT: Final = 256
"""Results in one directory."""
MAX_READ: Final = 32 * 1024
"""Bytes that one call reads, as many as a result has by default."""

_NOTICE: Final = 256
"""Bytes that the notice of a cut may take."""
_IDENTIFIER = re.compile(r"[0-9a-f]{16}")
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "identifier": {"type": "string", "description": "As the cut result says"},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "First byte"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_READ, "default": MAX_READ, "description": "Bytes"},
    },
    "required": ["identifier"],
    "additionalProperties": False,
}


class KeptResults:
    """Texts by their identifiers, in a directory, by default `mcp` of `state_directory()`."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or state_directory() / "mcp" / "results"
        self.tool_name = READ_RESULT
        """The name by which models call the tool that reads on: the last one that it was declared by."""

    def keep(self, text: str) -> str:
        """Keeps a text; the same text has the same identifier."""
        data = text.encode("utf-8", "replace")
        identifier = hashlib.sha256(data).hexdigest()[:16]
        write_private(self._path(identifier), data)
        files = [*self.directory.glob("*.txt")]
        if len(files) > MAX_KEPT:
            for path in sorted(files, key=_age)[: len(files) - MAX_KEPT]:
                path.unlink(missing_ok=True)
        return identifier

    def read(self, identifier: str, offset: int = 0, limit: int = MAX_READ) -> str:
        """A piece of a text, and a line before it that says which, in bytes. Raises NoSuchTool."""
        path = self._path(identifier) if _IDENTIFIER.fullmatch(identifier) else None
        if path is None or not path.is_file():
            raise NoSuchTool(f"no result {identifier[:32]!r} is kept", hint="call the tool again")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(offset)
            data = file.read(limit)
        return f"[bytes {min(offset, size)} to {min(offset, size) + len(data)} of {size}]\n{data.decode('utf-8', 'ignore')}"

    def truncate(self, tool: str, result: ResultCanister, limit: int) -> ResultCanister:
        """The result with the first `limit` characters of its text, and how to read on; the whole text is kept.

        It is cut at the end of a line if one ends in the second half of these characters. A result with other contents
        than text stays as it is.
        """
        text = result.text
        if len(text) <= limit or not all(isinstance(each, TextualContent) for each in result.content):
            return result
        end = text.rfind("\n", limit // 2, limit) + 1 or limit
        head = text[:end]
        identifier = self.keep(text)
        offset = len(head.encode("utf-8", "replace"))
        tokens = (len(text) - len(head)) // 4
        notice = (
            f"[Output of {tool} truncated: ~{tokens} more tokens. "
            f'Read on with {self.tool_name}(identifier="{identifier}", offset={offset})]'
        )
        return replace(result, content=contents(f"{head.rstrip()}\n{notice}"))

    def truncate_middle(self, text: str, limit: int) -> str:
        """The beginning and the end of a result, about `limit` bytes, and how to read on; the whole text is kept."""
        data = text.encode("utf-8", "replace")
        half = max(0, limit - _NOTICE) // 2
        begin, end = data[:half].decode("utf-8", "ignore"), data[len(data) - half :].decode("utf-8", "ignore")
        notice = (
            f"[cut: here are the first and the last {half} of {len(data)} bytes; "
            f'{self.tool_name} with identifier="{self.keep(text)}" and offset={half} reads on]'
        )
        return f"{begin}\n{notice}\n{end}"

    def invoker(self) -> Invoker:
        """The tool that reads on."""

        async def read(_: Context, arguments: Mapping[str, Any]) -> str:
            return self.read(arguments["identifier"], arguments["offset"], arguments["limit"])

        description = "Reads on in a result that was cut, where the result says so."
        invoker = _ReadResult(READ_RESULT, read, _SCHEMA, description=description, idempotent=True)
        invoker.results = self
        return invoker

    def ensemble(self) -> Ensemble:
        """An ensemble with nothing but that tool, where several servers share it."""
        return Ensemble(RESULTS, [self.invoker()])

    def _path(self, identifier: str) -> Path:
        return self.directory / f"{identifier}.txt"


class _ReadResult(Invoker):
    """Tells the results by which name it is declared."""

    results: KeptResults

    def declare(self, name: str | None = None) -> ToolDeclaration:
        self.results.tool_name = name or self.name
        return super().declare(name)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
