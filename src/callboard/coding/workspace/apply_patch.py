"""Apply a patch to the files of a workspace: first in memory, then on disk.

Law: all of a patch is applied, in all of its files, or nothing. If a write fails, the files before it are restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from callboard.coding.edits.hunks import FilePatch, apply_hunks
from callboard.coding.edits.result import Change, EditRefused, split_lines
from callboard.coding.workspace.file_editor import OpenedFile, describe_change, encode_file, open_text
from callboard.coding.workspace.text_file import MAX_BYTES, TextFile
from callboard.coding.workspace.workspace import Workspace
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape

_SHOWN: Final = 8
"""Files of which the changes are shown."""


class FileChange(msgspec.Struct, frozen=True):
    """A file's content before and after, None where there is no file, and its permissions."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


def write_files(files: ConfinedDirectory, changes: Sequence[FileChange]) -> None:
    """Write and delete files. Raises the first error; its notes name the files that could not be restored."""
    done: list[FileChange] = []
    try:
        for change in changes:
            _write_or_delete(files, change, change.after)
            done.append(change)
    except BaseException as error:
        for change in reversed(done):
            try:
                _write_or_delete(files, change, change.before)
            except OSError as further:
                error.add_note(f"{change.path} could not be put back: {further}")
        raise


def _write_or_delete(files: ConfinedDirectory, change: FileChange, data: bytes | None) -> None:
    if data is None:
        files.delete(change.path)
    else:
        files.write(change.path, data, change.mode)


class _Planned(msgspec.Struct, frozen=True):
    """What is written for one file, and how the result describes it."""

    writes: tuple[FileChange, ...]
    summary: str
    opened: OpenedFile | None = None
    change: Change | None = None


def patched_paths(patches: Iterable[FilePatch]) -> list[str]:
    """The paths that the patches change."""
    return list(dict.fromkeys(path for each in patches for path in (each.path, each.target) if path))


def apply_patches(workspace: Workspace, patches: list[FilePatch]) -> str:
    """Apply patches; return a description. Raises EditRefused, NotText and OSError, and then changes nothing."""
    merged = _merge_neighbours(patches)
    taken: set[str] = set()
    planned: list[_Planned] = []
    for each in merged:
        for path in patched_paths([each]):
            key = _canonical(workspace, path)
            if key in taken:
                raise EditRefused(f"{escape(path)} is in the patch twice; say what becomes of it in one place")
            taken.add(key)
        try:
            planned.append(_plan_file(workspace, each))
        except EditRefused as refused:
            rest = "; nothing was changed in the other files either" if len(merged) > 1 else ""
            raise EditRefused(f"{escape(each.path)}: {refused}{rest}") from None
    write_files(workspace.files, [write for each in planned for write in each.writes])
    results = [_describe(workspace, each, shown=count < _SHOWN) for count, each in enumerate(planned)]
    return "\n".join(results)


def _merge_neighbours(patches: list[FilePatch]) -> list[FilePatch]:
    """Merge neighbouring parts about the same file."""
    merged: list[FilePatch] = []
    for each in patches:
        last = merged[-1] if merged else None
        if last is not None and last.path == each.path and last.kind == each.kind == "update" and not last.target:
            merged[-1] = msgspec.structs.replace(last, target=each.target, hunks=(*last.hunks, *each.hunks))
        else:
            merged.append(each)
    return merged


def _plan_file(workspace: Workspace, patch: FilePatch) -> _Planned:
    path = patch.path
    if patch.kind == "add":
        _check_absent(workspace, path)
        data = encode_file(TextFile(patch.content))
        return _Planned(
            (FileChange(path, None, data),), f"Added {escape(path)} ({len(split_lines(patch.content))} lines)"
        )
    mode = workspace.files.stat(path).st_mode if patch.kind == "delete" or patch.target else None
    if patch.kind == "delete":
        return _Planned(
            (FileChange(path, workspace.files.read(path, MAX_BYTES), None, mode),), f"Deleted {escape(path)}"
        )
    opened = open_text(workspace, path)
    change = apply_hunks(opened.file.text, patch.hunks)
    if change.text == opened.file.text and not patch.target:
        raise EditRefused("nothing would change: the file has that already")
    data = encode_file(opened.file.apply(change))
    if not patch.target:
        return _Planned((FileChange(path, opened.data, data),), f"Updated {escape(path)}", opened, change)
    _check_absent(workspace, patch.target)
    moved = (FileChange(patch.target, None, data, mode), FileChange(path, opened.data, None, mode))
    return _Planned(moved, f"Moved {escape(path)} to {escape(patch.target)}")


def _describe(workspace: Workspace, planned: _Planned, *, shown: bool) -> str:
    if planned.opened is None or planned.change is None:
        return planned.summary
    around = describe_change(workspace, planned.opened, planned.change)
    return f"{planned.summary}:\n{around}" if shown else planned.summary


def _check_absent(workspace: Workspace, path: str) -> None:
    try:
        workspace.files.stat(path)
    except FileNotFoundError:
        return
    raise EditRefused(f"{escape(path)} is there already; update it, or delete it first")


def _canonical(workspace: Workspace, path: str) -> str:
    try:
        return workspace.files.canonical(path)
    except FileNotFoundError:
        return path
