"""The tool `file`: read and write whole files, and replace texts in them."""

from __future__ import annotations

from typing import Annotated, Final

from callboard.coding.edits.text_edits import Change, Span, insert_lines, replace_text, split_lines
from callboard.coding.tools.action_tool import ActionTool, action
from callboard.coding.workspace.file_editor import MAX_SHOWN, TextFile, encode_file, normalize_newlines, open_text, save
from callboard.coding.workspace.workspace import get_workspace
from callboard.text.display import escape
from callboard.tools import Context

FilePath = Annotated[str, "The file's path"]
SUBJECTS: Final = {"path": "path"}


@action(idempotent=True, subjects=SUBJECTS)
def read_file(context: Context, path: FilePath) -> str:
    """Reads a file. Of a long one the beginning is given, and how to read on."""
    workspace = get_workspace(context)
    opened = open_text(workspace, path)
    text, lines = opened.file.text, opened.lines
    if len(text) <= MAX_SHOWN:
        workspace.seen.record(opened.canonical_path, 1, lines)
        return text or "(the file is empty)"
    end = text.rfind("\n", 0, MAX_SHOWN) + 1
    if not end:
        return f"{text[:MAX_SHOWN]}\n[the first {MAX_SHOWN} of {len(text)} characters; the first line goes on]"
    count = text.count("\n", 0, end)
    workspace.seen.record(opened.canonical_path, 1, lines[:count])
    return f"{text[:end]}[lines 1 to {count} of {len(lines)}; read on with get_lines from line {count + 1}]"


@action(approval=True, subjects=SUBJECTS)
def write_file(context: Context, path: FilePath, content: Annotated[str, "The whole content"]) -> str:
    """Writes a file, in place of what was in it; directories that are missing are made."""
    return _write(context, path, content)


@action(approval=True, subjects=SUBJECTS)
def replace_in_file(
    context: Context,
    path: FilePath,
    old: Annotated[str, "The text to replace, exactly as it is in the file"],
    new: Annotated[str, "The text to put in its place"],
    all: Annotated[bool, "Replace it wherever it is, not only where it is once"] = False,  # noqa: A002  # models know it by this name
) -> str:
    """Replaces a text in a file by another. The old text has to be there exactly once."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        opened = open_text(workspace, path)
        old, new = normalize_newlines(old), normalize_newlines(new)
        change = replace_text(opened.file.text, old, new, every=all)
        count = opened.file.text.count(old)
        shown = save(workspace, opened, change)
        return f"Replaced {count} occurrence{'s' if count > 1 else ''} in {escape(path)}:\n{shown}"


@action(approval=True, subjects=SUBJECTS)
def append_file(context: Context, path: FilePath, content: Annotated[str, "The lines to add"]) -> str:
    """Adds lines at the end of a file; one that is not there is made."""
    return append_text(context, path, content)


@action(approval=True, subjects=SUBJECTS)
def delete_file(context: Context, path: FilePath) -> str:
    """Deletes a file."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        workspace.files.delete(path)
    return f"Deleted {escape(path)}"


file = ActionTool(
    "file",
    "Reads and changes whole files.",
    {
        "read": read_file,
        "write": write_file,
        "replace": replace_in_file,
        "append": append_file,
        "delete": delete_file,
    },
    default="read",
    approval=True,
)


def append_text(context: Context, path: str, content: str) -> str:
    """See `append_file`."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        try:
            opened = open_text(workspace, path)
        except FileNotFoundError:
            return _write(context, path, content)
        change = insert_lines(opened.file.text, len(opened.lines) + 1, normalize_newlines(content))
        return f"Appended to {escape(path)}:\n{save(workspace, opened, change)}"


def _write(context: Context, path: str, content: str) -> str:
    workspace, text = get_workspace(context), normalize_newlines(content)
    lines = split_lines(text)
    with workspace.edit_lock:
        try:
            opened = open_text(workspace, path)
            data = encode_file(opened.file.apply(Change(text, (Span(1, len(opened.lines), len(lines)),))))
        except FileNotFoundError:
            data = encode_file(TextFile(content))
        workspace.files.write(path, data)
        canonical_path = workspace.files.canonical(path)
        workspace.seen.forget(canonical_path)
        workspace.seen.record(canonical_path, 1, lines)
        return f"Wrote {len(data)} bytes to {escape(path)}"
