"""Name the findings of the project's own checkers that are new since the first edit.

Law: a checker that the repository does not configure is not started. A checker that is slow, missing or unreadable is
turned off, and says so once.

Findings are compared by file, rule, message and the text of the line: each edit moves the lines below it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard.coding.outlines import find_syntax_error
from callboard.coding.workspace.checkers import (
    CHECKERS,
    MAX_FINDINGS,
    MAX_MESSAGE,
    SETTINGS_FILES,
    Checker,
    CheckFinding,
)
from callboard.coding.workspace.directory_walk import walk_directory
from callboard.coding.workspace.run_command import run_command
from callboard.coding.workspace.workspace import Workspace
from callboard.core import ResultCanister, contents
from callboard.errors import CallerError, SandboxUnavailable
from callboard.text.display import escape

SECONDS: Final = 30.0
"""Time limit of one run of a checker. A slower one is turned off."""
MAX_NAMED: Final = 10
"""Findings that one result names."""
MAX_PLACES: Final = 10
"""Checkers of one repository, each in its folder."""
MAX_DEPTH: Final = 3
"""Folders between the root and a folder with settings."""

_MAX_SETTINGS: Final = 256 * 1024
_MAX_SOURCE: Final = 2 * 1024 * 1024
_MAX_NAMES: Final = 20_000
_NOT_FOUND: Final = 127
_CD: Final = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@" 2>&1')

_Key = tuple[str, str, str, str]


class CheckPlace(msgspec.Struct, frozen=True):
    """A checker, and the folder whose settings it uses; "" is the root."""

    checker: Checker
    folder: str

    def has(self, path: str) -> bool:
        """Return whether the checker looks at a file."""
        return path.endswith(self.checker.suffixes) and (not self.folder or path.startswith(f"{self.folder}/"))


class ProjectChecks:
    """The checkers of one workspace, from `begin` on.

    Args:
        workspace: The workspace with the files and the sandbox.
        unconfined: Whether checkers run without a sandbox. Their settings can be programs.
    """

    def __init__(self, workspace: Workspace, *, unconfined: bool = False) -> None:
        self._workspace = workspace
        self._unconfined = unconfined
        self._known: dict[tuple[str, str], Counter[_Key]] | None = None
        self._places: list[CheckPlace] = []
        self._notes: list[str] = []

    async def begin(self) -> None:
        """Record the findings before the first edit; later calls do nothing."""
        sandbox = self._workspace.sandbox
        if self._known is not None:
            return
        self._known = {}
        if sandbox is None or (sandbox.name == "none" and not self._unconfined):
            return
        self._places = await asyncio.to_thread(find_places, self._workspace)
        for place in [*self._places]:
            findings = await self._run(place)
            if findings is not None:
                keys = await asyncio.to_thread(self._read_keys, findings)
                self._known[place.checker.name, place.folder] = Counter(keys)

    async def add(self, paths: Sequence[str], result: ResultCanister) -> ResultCanister:
        """Return the result of an edit of these files, with syntax errors and new findings."""
        if not paths or result.error is not None:
            return result
        broken = [] if "does not parse" in result.text else self.find_syntax_errors(paths)
        text = "\n".join([*broken, *filter(None, [await self.describe_new(paths)])])
        return replace(result, content=(*result.content, *contents(f"\n{text}"))) if text else result

    async def describe_new(self, paths: Iterable[str]) -> str:
        """Return the lines about new findings after these files were edited; "" if there are none."""
        canonical = [self._canonical(path) for path in paths]
        lines: list[str] = []
        for place in [*self._places]:
            known = (self._known or {}).get((place.checker.name, place.folder))
            if known is not None and any(place.has(path) for path in canonical):
                findings = await self._run(place) or []
                keys = await asyncio.to_thread(self._read_keys, findings)
                lines += _new_lines(place, findings, keys, known)
        notes, self._notes = self._notes, []
        more = [f"and {len(lines) - MAX_NAMED} more"] if len(lines) > MAX_NAMED else []
        title = ["New findings of the project's checkers since the first edit:"] if lines else []
        return "\n".join([*title, *lines[:MAX_NAMED], *more, *notes])

    def find_syntax_errors(self, paths: Iterable[str]) -> list[str]:
        """Return a line for each of the files that does not parse."""
        lines = []
        for path in paths:
            with suppress(OSError, UnicodeDecodeError):
                number = find_syntax_error(self._workspace.files.read(path, _MAX_SOURCE).decode("utf-8"), path)
                if number is not None:
                    lines.append(f"{escape(path)} does not parse; the first syntax error is at line {number}.")
        return lines

    async def _run(self, place: CheckPlace) -> list[CheckFinding] | None:
        """Run a checker; None if it is turned off by that."""
        checker, workspace = place.checker, self._workspace
        root = f"{workspace.root}/{place.folder}".rstrip("/")
        with tempfile.TemporaryDirectory(prefix="checks-", ignore_cleanup_errors=True) as folder:
            home = workspace.confinement.home or Path(folder)
            command = checker.command(workspace.find_python(), str(home))
            try:
                outcome = await run_command(
                    workspace,
                    [*_CD, place.folder or ".", *command],
                    seconds=SECONDS,
                    progress=lambda *_: None,
                    environment={"NO_COLOR": "1", "CI": "1", "PYTHONDONTWRITEBYTECODE": "1", "GOTOOLCHAIN": "local"},
                    home=home,
                )
            except (SandboxUnavailable, CallerError) as error:
                return self._turn_off(place, f"{checker.name} cannot run: {error.message}")
        text = outcome.output.decode("utf-8", "replace")
        if outcome.stop_reason:
            limit = f"takes longer than {SECONDS:g} s" if outcome.stop_reason == "timeout" else "uses too much"
            return self._turn_off(place, f"{checker.name} {limit} and is turned off.")
        if outcome.code == _NOT_FOUND or f"No module named {checker.name}" in text:
            install = checker.install.format(python=workspace.find_python())
            return self._turn_off(place, f"{checker.name} is configured but not installed; {install} installs it.")
        findings = checker.parse(text)
        if findings is None or (outcome.code and not findings):
            last = (text.strip().splitlines() or [f"exit code {outcome.code}"])[-1][:MAX_MESSAGE]
            return self._turn_off(place, f"{checker.name} cannot check the project: {escape(last)}")
        if not outcome.code and checker.name != "go vet":
            return []
        return [_from_root(each, root, place.folder) for each in findings[:MAX_FINDINGS]]

    def _turn_off(self, place: CheckPlace, note: str) -> list[CheckFinding] | None:
        self._places.remove(place)
        self._notes.append(note)
        return None

    def _read_keys(self, findings: Sequence[CheckFinding]) -> list[_Key]:
        texts: dict[str, list[str]] = {}
        keys = []
        for each in findings:
            if each.path not in texts:
                texts[each.path] = []
                with suppress(OSError):
                    data = self._workspace.files.read(each.path, _MAX_SOURCE)
                    texts[each.path] = data.decode("utf-8", "replace").splitlines()
            lines = texts[each.path]
            keys.append(each.key(lines[each.line - 1] if 0 < each.line <= len(lines) else ""))
        return keys

    def _canonical(self, path: str) -> str:
        try:
            return self._workspace.files.canonical(path)
        except OSError:
            return path


def find_places(workspace: Workspace) -> list[CheckPlace]:
    """Find the checkers that the repository configures, each in the folders with its settings."""
    files = workspace.files
    try:
        listing = walk_directory(files, ".", limit=_MAX_NAMES, depth=MAX_DEPTH + 1)
    except OSError:
        return []
    folders: dict[str, dict[str, str]] = {}
    for entry in listing.entries:
        folder, _, name = entry.path.rpartition("/")
        if entry.kind == "file" and name in SETTINGS_FILES:
            with suppress(OSError):
                text = files.read(entry.path, _MAX_SETTINGS).decode("utf-8", "replace")
                folders.setdefault(folder, {})[name] = text
    places = [
        CheckPlace(checker, folder)
        for folder in sorted(folders)
        for checker in CHECKERS
        if checker.is_configured(folders[folder])
    ]
    return places[:MAX_PLACES]


def _from_root(finding: CheckFinding, root: str, folder: str) -> CheckFinding:
    path = finding.path.removeprefix("./").removeprefix(f"{root}/")
    return replace(finding, path=path if path.startswith("/") or not folder else f"{folder}/{path}")


def _new_lines(
    place: CheckPlace, findings: Sequence[CheckFinding], keys: Sequence[_Key], known: Counter[_Key]
) -> list[str]:
    rest = Counter(known)
    lines = []
    for finding, key in zip(findings, keys, strict=True):
        if rest[key] > 0:
            rest[key] -= 1
            continue
        rule = f" [{finding.rule}]" if finding.rule else ""
        message = " ".join(finding.message.split())[:MAX_MESSAGE]
        lines.append(f"- {escape(finding.path)}:{finding.line}: {escape(message)}{rule} ({place.checker.name})")
    return lines
