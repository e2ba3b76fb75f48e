"""What a person allowed, for a session or for good.

Owns the answers of one project, and the file that keeps those for good. Knows nothing of how a person is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.tools import Rule
from callboard.tools.shell_parser import parse_command

FILE: Final = "answers.json"

_PLAIN = re.compile(r"[\w@%+=:,./-]+")


class Answers:
    """The patterns that were allowed in one project: `rules` are those for good and those of this session."""

    def __init__(self, project: Path, file: Path) -> None:
        self._project = str(project)
        self._file = file
        self._kept = _read(file)
        self._session: list[str] = []

    @property
    def rules(self) -> list[Rule]:
        return [Rule(pattern, "allow") for pattern in (*self._kept.get(self._project, ()), *self._session)]

    def allow(self, pattern: str, *, for_good: bool) -> None:
        """Allows what a pattern matches, on disk when this returns if it is for good."""
        if not for_good:
            self._session.append(pattern)
            return
        self._kept = _read(self._file)
        patterns = self._kept.setdefault(self._project, [])
        if pattern not in patterns:
            patterns.append(pattern)
        write_private(self._file, json.dumps(self._kept, indent=2).encode())


def pattern_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The pattern that allows a call and those like it: of a command its program with the next word, of a file its
    folder. "" where no pattern says just that: for several programs, or a command that cannot be read for sure.
    """
    command = arguments.get("command")
    if isinstance(command, str):
        read = parse_command(command)
        if read.unclear or len(read.segments) != 1 or read.segments[0].opaque:
            return ""
        words = read.segments[0].words[:2]
        plain = all(word.certain and _PLAIN.fullmatch(word.text) for word in words)
        return f"{name}({' '.join([word.text for word in words])} *)" if plain else ""
    path = arguments.get("path")
    if isinstance(path, str):
        folder = path.rpartition("/")[0]
        if not _PLAIN.fullmatch(path) or ".." in path or path.startswith("/"):
            return ""
        return f"{name}({folder}/**)" if folder else f"{name}(*)"
    return name


def _read(file: Path) -> dict[str, list[str]]:
    try:
        kept = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CallerError(f"not JSON: {error}", path=str(file), hint="mend or remove it") from None
    if not isinstance(kept, dict) or not all(isinstance(each, list) for each in kept.values()):
        raise CallerError("not the answers of projects", path=str(file), hint="mend or remove it")
    return kept
