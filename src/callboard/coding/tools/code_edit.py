"""The tool `code_edit`: edit lines by their numbers, and apply patches.

Law: all of a patch is applied, in all of its files, or nothing. If a write fails, the files before it are restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from callboard.coding.edits.apply_patch import parse_patch
from callboard.coding.edits.hunks import FilePatch, apply_hunks
from callboard.coding.edits.text_edits import Change, EditRefused, check_range, parse_range, replace_lines, split_lines
from callboard.coding.edits.text_edits import insert_lines as inserted
from callboard.coding.tools.action_tool import ActionTool, ToolAction, action
from callboard.coding.tools.file import SUBJECTS, FilePath, append_text
from callboard.coding.workspace.file_editor import (
    MAX_BYTES,
    OpenedFile,
    TextFile,
    check_seen,
    describe_change,
    encode_file,
    normalize_newlines,
    open_text,
    save,
    show_lines,
)
from callboard.coding.workspace.workspace import Workspace, get_workspace
from callboard.schema import ArgumentsInvalid
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape
from callboard.tools import Context

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
    """The planned content of one file, and its description in the result."""

    writes: tuple[FileChange, ...]
    summary: str
    edit: tuple[OpenedFile, Change] | None = None


def patched_paths(patches: Iterable[FilePatch]) -> list[str]:
    """Return the paths that the patches change."""
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
    results: list[str] = []
    for count, part in enumerate(planned):
        around = f":\n{describe_change(workspace, *part.edit)}" if part.edit else ""
        results.append(part.summary + around * (count < _SHOWN))
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
        added = FileChange(path, None, encode_file(TextFile(patch.content)))
        return _Planned((added,), f"Added {escape(path)} ({len(split_lines(patch.content))} lines)")
    mode = workspace.files.stat(path).st_mode if patch.kind == "delete" or patch.target else None
    if patch.kind == "delete":
        deleted = FileChange(path, workspace.files.read(path, MAX_BYTES), None, mode)
        return _Planned((deleted,), f"Deleted {escape(path)}")
    opened = open_text(workspace, path)
    change = apply_hunks(opened.file.text, patch.hunks)
    if change.text == opened.file.text and not patch.target:
        raise EditRefused("nothing would change: the file has that already")
    data = encode_file(opened.file.apply(change))
    if not patch.target:
        return _Planned((FileChange(path, opened.data, data),), f"Updated {escape(path)}", (opened, change))
    _check_absent(workspace, patch.target)
    moved = (FileChange(patch.target, None, data, mode), FileChange(path, opened.data, None, mode))
    return _Planned(moved, f"Moved {escape(path)} to {escape(patch.target)}")


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


FirstLine = Annotated[int | str, "The first line, from 1; or a range such as 3:9"]
LastLine = Annotated[int | None, "The last line; by default the first"]
NewContent = Annotated[str, "The lines to put there"]


@action(idempotent=True, subjects=SUBJECTS)
def get_lines(
    context: Context,
    path: FilePath,
    start_line: FirstLine = 1,
    end_line: Annotated[int | None, "The last line; by default as far as one result goes"] = None,
) -> str:
    """Shows lines of a file with their numbers."""
    workspace = get_workspace(context)
    opened = open_text(workspace, path)
    count = len(opened.lines)
    if not count:
        return "(the file is empty)"
    # A number alone is where to begin.
    alone = end_line is None and str(start_line).isdigit()
    start, end = _resolve_range(opened, start_line, count if alone else end_line)
    end = min(end, count)
    check_range(opened.lines, start, end)
    shown, last = show_lines(workspace, opened, start, end)
    return shown if last == count else f"{shown}\n[lines {start} to {last} of {count}]"


@action(approval=True, subjects=SUBJECTS)
def edit_lines(
    context: Context, path: FilePath, start_line: FirstLine, end_line: LastLine = None, *, new_content: NewContent
) -> str:
    """Puts new lines in place of lines of a file. Read these lines first."""
    return _replace_range(context, path, start_line, end_line, new_content)


@action(approval=True, subjects=SUBJECTS)
def insert_lines(
    context: Context,
    path: FilePath,
    line_number: Annotated[int, "The number that the first new line gets, from 1"],
    content: NewContent,
) -> str:
    """Puts new lines into a file before a line."""
    return _insert_at(context, path, line_number, content)


@action(approval=True, subjects=SUBJECTS)
def delete_lines(context: Context, path: FilePath, start_line: FirstLine, end_line: LastLine = None) -> str:
    """Deletes lines of a file. Read these lines first."""
    return _replace_range(context, path, start_line, end_line, "")


@action(name="append_file", approval=True, subjects=SUBJECTS)
def append_lines(
    context: Context,
    path: FilePath,
    added: Annotated[str, "The lines to add"],
    start_line: Annotated[int | str | None, "The line behind which they come; by default the last"] = None,
) -> str:
    """Adds lines behind a line of a file, or at its end; a file that is not there is made."""
    if start_line is None:
        return append_text(context, path, added)
    _, last = _resolve_range(open_text(get_workspace(context), path), start_line, None)
    return _insert_at(context, path, last + 1, added)


def _replace_range(context: Context, path: str, start_line: int | str, end_line: int | None, content: str) -> str:
    workspace = get_workspace(context)
    with workspace.edit_lock:
        opened = open_text(workspace, path)
        start, end = _resolve_range(opened, start_line, end_line)
        change = replace_lines(opened.file.text, start, end, normalize_newlines(content))
        check_seen(workspace, opened, start, end)
        what = "Edited" if content else "Deleted lines of"
        return f"{what} {escape(path)}:\n{save(workspace, opened, change)}"


def _insert_at(context: Context, path: str, line: int, content: str) -> str:
    workspace = get_workspace(context)
    with workspace.edit_lock:
        opened = open_text(workspace, path)
        change = inserted(opened.file.text, line, normalize_newlines(content))
        if opened.lines:
            # At the end it is the last line that says where.
            beside = min(line, len(opened.lines))
            check_seen(workspace, opened, beside, beside)
        return f"Inserted into {escape(path)}:\n{save(workspace, opened, change)}"


def _resolve_range(opened: OpenedFile, start_line: int | str, end_line: int | None) -> tuple[int, int]:
    """Return the first and the last line of a range; by default one line."""
    if isinstance(start_line, int):
        return start_line, end_line or start_line
    first, last = parse_range(start_line)
    if last == first:
        return first, end_line or first
    return first, end_line or last or len(opened.lines)


class _Patch(ToolAction):
    """Fills in `files` from the patch, whatever the call wrote: the permission rules judge these paths."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = super().validate(arguments)
        try:
            patches = parse_patch(normalize_newlines(values["patch"]), values["path"] or "")
        except EditRefused as refused:
            raise ArgumentsInvalid([(("patch",), str(refused))]) from None
        return {**values, "files": patched_paths(patches)}


def _apply_patch(
    context: Context,
    patch: Annotated[str, "A unified diff, or a patch from *** Begin Patch to *** End Patch"],
    path: Annotated[str | None, "The file of a diff that names none"] = None,
    files: Annotated[Sequence[str], "The files that it changes: read from the patch"] = (),  # noqa: ARG001  # for permissions to look at
) -> str:
    """Applies a patch: all of it, to all of its files, or nothing."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        return apply_patches(workspace, parse_patch(normalize_newlines(patch), path or ""))


apply_patch = _Patch(_apply_patch, name="apply_patch", approval=True, subjects={"path": "path", "files": "path"})

code_edit = ActionTool(
    "code_edit",
    "Reads and changes lines of a file by their numbers, and applies patches.",
    {
        "get_lines": get_lines,
        "edit_lines": edit_lines,
        "insert_at_line": insert_lines,
        "delete_lines": delete_lines,
        "append": append_lines,
        "apply_patch": apply_patch,
    },
    default="get_lines",
    approval=True,
    cli={"-f": "path", "-l": "start_line", "-r": "new_content", "-a": "added", "-p": "patch"},
)
