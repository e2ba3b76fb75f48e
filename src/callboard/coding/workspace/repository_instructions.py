"""The AGENTS.md files of a repository: the one at the top, and the nearest one above each file that a call names.

Law: each nested file is shown once in a conversation. Files that the rules deny are not shown.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from msgspec.structs import replace

from callboard.coding.workspace.workspace import Workspace
from callboard.core import InvocationCanister, ResultCanister, contents
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape
from callboard.tools.context import Permits, everything

FILE: Final = "AGENTS.md"
MAX_CHARS: Final = 8000
"""Maximum characters of one file that the model reads."""
MAX_BYTES: Final = 200_000
"""Maximum bytes of a file."""


def read_instructions(files: ConfinedDirectory, folder: str = "", permits: Permits = everything) -> str:
    """Return the start of the AGENTS.md in a folder, "" if there is none that may be read."""
    path = f"{folder}/{FILE}".lstrip("/")
    with suppress(OSError):
        if permits(files.canonical(path)):
            return files.read(path, MAX_BYTES).decode("utf-8", "replace")[:MAX_CHARS]
    return ""


def format_document(title: str, text: str) -> str:
    """Return the repository's own text, marked as a source: a call that repeats it is an echo.

    The text cannot end the mark.
    """
    text = text.replace("</document", "&lt;/document")
    return f'<document title="{escape(title)}">\n{text}\n</document>'


class NestedInstructions:
    """Adds the nearest nested AGENTS.md to the result of the first call about a file below it."""

    def __init__(self, workspace: Workspace, permits: Permits) -> None:
        self._workspace = workspace
        self._permits = permits
        self._shown: set[str] = set()

    def add(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        """Return the result, with the instructions for the file that the call names."""
        path: Any = (invocation.arguments or {}).get("path")
        if not isinstance(path, str) or result.error is not None:
            return result
        title, text = self._find_nearest(path)
        if not text or title in self._shown:
            return result
        self._shown.add(title)
        note = f"Instructions for the files in {escape(title.rpartition('/')[0])}:\n{format_document(title, text)}"
        return replace(result, content=(*result.content, *contents(note)))

    def _find_nearest(self, path: str) -> tuple[str, str]:
        files = self._workspace.files
        try:
            folders = PurePosixPath(files.canonical(path)).parents
        except OSError:
            return "", ""
        for folder in folders[:-1]:  # the last one is the top, which the instructions have
            if text := read_instructions(files, str(folder), self._permits):
                return f"{folder}/{FILE}", text
        return "", ""
