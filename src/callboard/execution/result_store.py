"""Keep results that are too long for a model, and let the model read the rest.

Law: a model names a result by its identifier, never by a path. Only the newest results are kept.
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
"""Name of the ensemble that has only this tool."""
MAX_KEPT: Final = 256
"""Maximum results in one directory."""
MAX_READ: Final = 32 * 1024
"""Maximum bytes of one call, as many as a result has by default."""

_NOTICE: Final = 256
"""Maximum bytes of the notice of a cut."""
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
    """Texts by identifier, in a directory; by default in `mcp` of `state_directory()`."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or state_directory() / "mcp" / "results"
        self.tool_name = READ_RESULT
        """Name that models use for the reading tool, from its last declaration."""

    def keep(self, text: str) -> str:
        """Store a text, and return its identifier. Equal texts have the same identifier."""
        data = text.encode("utf-8", "replace")
        identifier = hashlib.sha256(data).hexdigest()[:16]
        write_private(self._path(identifier), data)
        files = [*self.directory.glob("*.txt")]
        if len(files) > MAX_KEPT:
            for path in sorted(files, key=_age)[: len(files) - MAX_KEPT]:
                path.unlink(missing_ok=True)
        return identifier

    def read(self, identifier: str, offset: int = 0, limit: int = MAX_READ) -> str:
        """Return a piece of a text, below a line with its byte range. Raises NoSuchTool."""
        path = self._path(identifier) if _IDENTIFIER.fullmatch(identifier) else None
        if path is None or not path.is_file():
            raise NoSuchTool(f"no result {identifier[:32]!r} is kept", hint="call the tool again")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(offset)
            data = file.read(limit)
        return f"[bytes {min(offset, size)} to {min(offset, size) + len(data)} of {size}]\n{data.decode('utf-8', 'ignore')}"

    def truncate(self, tool: str, result: ResultCanister, limit: int) -> ResultCanister:
        """Return the result with the first `limit` characters of its text and how to read on; the whole text is stored.

        The text is cut at the end of a line if one ends in the second half of these characters. A result with other
        contents than text does not change.
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
        """Return about `limit` bytes from both ends of a result and how to read on; the whole text is stored."""
        data = text.encode("utf-8", "replace")
        half = max(0, limit - _NOTICE) // 2
        begin, end = data[:half].decode("utf-8", "ignore"), data[len(data) - half :].decode("utf-8", "ignore")
        notice = (
            f"[cut: here are the first and the last {half} of {len(data)} bytes; "
            f'{self.tool_name} with identifier="{self.keep(text)}" and offset={half} reads on]'
        )
        return f"{begin}\n{notice}\n{end}"

    def invoker(self) -> Invoker:
        """Return the tool that reads on."""

        async def read(_: Context, arguments: Mapping[str, Any]) -> str:
            return self.read(arguments["identifier"], arguments["offset"], arguments["limit"])

        description = "Reads on in a result that was cut, where the result says so."
        invoker = _ReadResult(READ_RESULT, read, _SCHEMA, description=description, idempotent=True)
        invoker.results = self
        return invoker

    def ensemble(self) -> Ensemble:
        """Return an ensemble with only this tool, for several servers that share it."""
        return Ensemble(RESULTS, [self.invoker()])

    def _path(self, identifier: str) -> Path:
        return self.directory / f"{identifier}.txt"


class _ReadResult(Invoker):
    """The reading tool. It reports its declared name to the results."""

    results: KeptResults

    def declare(self, name: str | None = None) -> ToolDeclaration:
        self.results.tool_name = name or self.name
        return super().declare(name)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
