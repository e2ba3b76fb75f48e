"""Dry run of an edit: the tool's own function runs on files whose changes stay in memory.

`ObservedDirectory` reports the changes of the real run. Laws: a dry run writes nothing to disk, and files that it reads
do not count as read by the model. A failed write is not reported, and an unreadable file counts as absent.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

import msgspec

from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.edits.text_edits import split_lines
from callboard.coding.tools import single_action
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import ReadTracker, Workspace
from callboard.core import InvocationCanister, ResultCanister
from callboard.execution import run_invoker
from callboard.storage.confined_directory import ConfinedDirectory, ResolvedPath
from callboard.text.display import escape
from callboard.tools import Ensemble, Invoker

CONTEXT: Final = 3
"""Unchanged lines before and after a change in its diff."""
MAX_MATCHED: Final = 2000
"""Lines between the first and the last change of a file that are compared one by one; that takes their square."""


class ChangedFile(msgspec.Struct, frozen=True):
    """The change of one file: its path from the root, old bytes and new bytes. None means that there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class DryRun(msgspec.Struct, frozen=True):
    """The outcome: the changes of the edit, the `result` for the model, and the files that it would have `seen`."""

    changes: tuple[ChangedFile, ...]
    result: ResultCanister
    seen: ReadTracker

    @property
    def error(self) -> str:
        """Why the edit would fail, "" if it would not."""
        return self.result.error.message if self.result.error else ""


async def dry_run_edit(invoker: Invoker, invocation: InvocationCanister) -> DryRun | None:
    """Runs an edit of a workspace dry; None for any other call, which is never run."""
    arguments = invocation.arguments or {}
    workspace = invoker.ensemble.connection if invoker.ensemble else None
    if not isinstance(workspace, Workspace) or single_action(invoker.name, arguments) not in actions_of_groups(
        ("edit",)
    ):
        return None
    overlay = _OverlayWorkspace(workspace)
    group = Ensemble("dry_run", [invoker], connection=overlay)
    result = await run_invoker(
        group.access_invoker(invoker.name),
        arguments,
        identifier=invocation.identifier,
        on_error="feedback",
        timeout=invoker.timeout,
    )
    return DryRun(overlay.overlay_files.changes, result, overlay.seen)


class _OverlayWorkspace(Workspace):
    """A workspace that cannot be changed, and runs nothing."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.root)
        self.files = self.overlay_files = OverlayFiles(workspace.files)
        self.seen = workspace.seen.copy()


class OverlayFiles(ConfinedDirectory):
    """Files whose writes stay in memory; an unwritten file is read from `files`, while they are connected."""

    def __init__(self, files: ConfinedDirectory) -> None:
        super().__init__()
        # The same open directory, so that the same paths are refused.
        vars(self).update(vars(files))
        self._written: dict[str, bytes | None] = {}
        self._real = files

    def read(self, path: str, limit: int) -> bytes:
        key = self.canonical(path)
        if key not in self._written:
            return super().read(path, limit)
        written = self._written[key]
        if written is None:
            raise FileNotFoundError(path)
        return written

    def canonical(self, path: str) -> str:
        try:
            return super().canonical(path)
        except FileNotFoundError:
            # In a directory that the edit would make.
            steps = os.path.normpath(path)
            if steps.startswith("..") or any(step.casefold() in self._read_only for step in steps.split("/")):
                raise PermissionError(f"{path!r} is not to be changed") from None
            return steps.lstrip("/")

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        try:
            with self._resolve(path, change=True) as place:
                key = place.path
                _check(place, path)
        except FileNotFoundError:
            key = self.canonical(path)
        self._written[key] = data

    def delete(self, path: str) -> None:
        with self._resolve(path, change=True, follow=False) as place:
            _check(place, path)
            self._written[place.path] = None

    @property
    def changes(self) -> tuple[ChangedFile, ...]:
        """Return the files that were written."""
        return tuple([ChangedFile(path, read_before(self._real, path), data) for path, data in self._written.items()])


def read_before(files: ConfinedDirectory, path: str) -> bytes | None:
    """Return the content of a file before its change; None if it does not exist or cannot be read."""
    try:
        return files.read(path, MAX_BYTES)
    except OSError:
        return None


def _check(place: ResolvedPath, path: str) -> None:
    """Raises OSError for a path that leads to nothing, or to a directory."""
    if stat.S_ISDIR(os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def diff_of(changes: Iterable[ChangedFile]) -> str:
    """Return the changes as a unified diff; for binary files it says only that they differ."""
    return "".join([part for each in changes for part in _diff(each.path, each.before, each.after)])


def unified_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Return the hunks of a unified diff of lines without ends. Linear outside the range of changed lines."""
    head = _count_common(before, after)
    tail = min(_count_common(before[::-1], after[::-1]), min(len(before), len(after)) - head)
    start = max(head - CONTEXT, 0)
    old = before[start : len(before) - tail + min(tail, CONTEXT)]
    new = after[start : len(after) - tail + min(tail, CONTEXT)]
    if len(old) + len(new) > MAX_MATCHED:
        context, rest = head - start, min(tail, CONTEXT)
        blocks = [
            ("equal", 0, context, 0, context),
            ("replace", context, len(old) - rest, context, len(new) - rest),
            ("equal", len(old) - rest, len(old), len(new) - rest, len(new)),
        ]
        groups = iter([[each for each in blocks if each[1] < each[2] or each[3] < each[4]]])
    else:
        groups = iter(
            [[*each] for each in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT)]
        )
    for group in groups:
        first, last = group[0], group[-1]
        yield f"@@ -{_span(start + first[1], last[2] - first[1])} +{_span(start + first[3], last[4] - first[3])} @@"
        for kind, low, high, from_, to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[low:high])
                continue
            yield from (f"-{line}" for line in old[low:high])
            yield from (f"+{line}" for line in new[from_:to])


def _diff(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    name = escape(path)
    yield f"--- {f'a/{name}' if before is not None else '/dev/null'}\n"
    yield f"+++ {f'b/{name}' if after is not None else '/dev/null'}\n"
    try:
        old, new = (decode(data or b"").text for data in (before, after))
    except NotText:
        yield "(not shown: it is no text)\n"
        return
    yield from (f"{line}\n" for line in unified_diff(_lines(old), _lines(new)))


def _lines(text: str) -> list[str]:
    lines = split_lines(text)
    if lines and not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _span(start: int, length: int) -> str:
    """Format a range of lines for a hunk's header; an empty range has the number of the line before it."""
    return f"{start + bool(length)}" if length == 1 else f"{start + bool(length)},{length}"


class ObservedDirectory(ConfinedDirectory):
    """A ConfinedDirectory that calls `on_change` after each write and deletion, in the thread that did it."""

    def __init__(self, root: str, read_only: Collection[str], on_change: Callable[[ChangedFile], None]) -> None:
        super().__init__(root, read_only)
        self._on_change = on_change

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        before = read_before(self, path)
        super().write(path, data, mode)
        self._on_change(ChangedFile(self.canonical(path), before, data))

    def delete(self, path: str) -> None:
        before = read_before(self, path)
        with self._resolve(path, change=True, follow=False) as entry:
            name = entry.path
            if stat.S_ISLNK(os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False).st_mode):
                before = None  # the link goes, and what it leads to stays
        super().delete(path)
        self._on_change(ChangedFile(name, before, None))
