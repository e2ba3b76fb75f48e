"""Changes of files: what a tool did, or would do, and its diff.

`ObservedDirectory` reports each change, and `EditLog` collects them. Laws: a failed write is not reported, and an
unreadable file counts as absent.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq
from typing import Final

import msgspec

from callboard.coding.edits.text_edits import split_lines
from callboard.coding.job import FileEdited
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape
from callboard.text.truncate import truncate

CONTEXT: Final = 3
"""Unchanged lines before and after a change in its diff."""
MAX_MATCHED: Final = 2000
"""Lines between the first and the last change of a file that are compared one by one; that takes their square."""
MAX_EDIT: Final = 20_000
"""Maximum characters of the diff of one edit in the record of a job."""
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")


class ChangedFile(msgspec.Struct, frozen=True):
    """The change of one file: its path from the root, old bytes and new bytes. None means that there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


def read_before(files: ConfinedDirectory, path: str) -> bytes | None:
    """Return the content of a file before its change; None if it does not exist or cannot be read."""
    try:
        return files.read(path, MAX_BYTES)
    except OSError:
        return None


def diff_of(changes: Iterable[ChangedFile]) -> str:
    """Return the changes as a unified diff; for binary files it says only that they differ."""
    return "".join([part for each in changes for part in _diff(each.path, each.before, each.after)])


def unified_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Return the hunks of a unified diff of lines without ends. Linear outside the range of changed lines."""
    # The lines that both begin and end with.
    head = sum(takewhile(bool, map(eq, before, after)))
    tail = sum(takewhile(bool, map(eq, reversed(before[head:]), reversed(after[head:]))))
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
        groups = [[each for each in blocks if each[1] < each[2] or each[3] < each[4]]]
    else:
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        groups = [[*each] for each in matcher.get_grouped_opcodes(CONTEXT)]
    for group in groups:
        first, last = group[0], group[-1]
        yield f"@@ -{_span(start + first[1], last[2] - first[1])} +{_span(start + first[3], last[4] - first[3])} @@"
        for kind, low, high, from_, to in group:
            yield from (f"{' ' if kind == 'equal' else '-'}{line}" for line in old[low:high])
            yield from (f"+{line}" for line in new[from_:to] if kind != "equal")


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


class EditLog:
    """Collects the changes of files, from any thread. Several changes of a file count as one."""

    def __init__(self) -> None:
        self._changes: dict[str, ChangedFile] = {}

    def add(self, change: ChangedFile) -> None:
        """Add the change of a file."""
        first = self._changes.get(change.path, change)
        self._changes[change.path] = ChangedFile(change.path, first.before, change.after)

    def take(self) -> list[FileEdited]:
        """Return and forget the changes. Omit files that have their old content again."""
        changes, self._changes = self._changes, {}
        return [describe_edit(each) for each in changes.values() if each.before != each.after]


def describe_edit(change: ChangedFile) -> FileEdited:
    """Return the step of a change."""
    diff = diff_of([change])
    added, removed = count_changed_lines(diff)
    return FileEdited(change.path, added, removed, truncate(diff, MAX_EDIT, "\n..."))


def count_changed_lines(diff: str) -> tuple[int, int]:
    """Return the numbers of added and removed lines of a unified diff."""
    marks = [mark for mark, _ in mark_lines(diff)]
    return marks.count("+"), marks.count("-")


def mark_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each after its mark: "+", "-", or "" for any other line."""
    before = after = 0  # lines that the hunk still has
    for line in diff.split("\n"):
        mark = line[:1]
        if (before > 0 or after > 0) and mark in ("", " ", "+", "-", "\\"):
            before -= mark in ("", " ", "-")  # an empty line is one whose blank was cut
            after -= mark in ("", " ", "+")
            yield mark.strip(" \\"), line
        else:
            hunk = _HUNK.match(line)
            before, after = [int(length or 1) for length in hunk.groups()] if hunk else (0, 0)
            yield "", line
