"""The tool `navigate`: list directories, and show what source files define and import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from callboard.coding.outlines import ParsedText, make_outline
from callboard.coding.outlines.languages import NAMES, find_language
from callboard.coding.tools.action_tool import ActionTool, action
from callboard.coding.tools.file import SUBJECTS, FilePath
from callboard.coding.workspace.directory_walk import is_skipped, path_sort_key, walk_directory
from callboard.coding.workspace.file_editor import open_text
from callboard.coding.workspace.workspace import Workspace, get_workspace
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape
from callboard.tools import Context

MAX_ENTRIES: Final = 500
"""Names that are shown."""
MAX_SYMBOLS: Final = 500
_LINE: Final = 200

Directory = Annotated[str, "The directory"]
ALIASES: Final = {"path": "directory"}
_OF_DIRECTORY: Final = {"directory": "path"}


@action(aliases=ALIASES, idempotent=True, subjects=_OF_DIRECTORY)
def list_directory(
    context: Context,
    directory: Directory = ".",
    show_hidden: Annotated[bool, "Names that begin with a dot too"] = False,
    extension: Annotated[str, "Only files that end so, such as .py"] = "",
) -> str:
    """Lists a directory; the names of directories end with a slash."""
    files = get_workspace(context).files
    listing = walk_directory(files, directory, depth=1)
    permitted = _entry_filter(context, files, directory)
    end = extension if extension.startswith(".") or not extension else f".{extension}"
    names = [
        escape(entry.path) + "/" * (entry.kind == "directory")
        for entry in listing.entries
        if (show_hidden or not entry.path.startswith("."))
        and (not end or entry.path.endswith(end))
        and permitted(entry.path)
    ]
    return _limit_lines(names, "nothing is there", cut=listing.cut)


@action(aliases=ALIASES, idempotent=True, subjects=_OF_DIRECTORY)
def tree(
    context: Context,
    directory: Directory = ".",
    max_depth: Annotated[int, "Levels of directories"] = 3,
) -> str:
    """Shows a directory and what is below it, but not hidden ones nor what others wrote."""
    files = get_workspace(context).files
    listing = walk_directory(files, directory, depth=max(1, max_depth))
    permitted = _entry_filter(context, files, directory)
    shown = [
        entry
        for entry in listing.entries
        if not entry.path.rpartition("/")[2].startswith(".") and permitted(entry.path)
    ]
    # The walk is by level, so a large tree loses only its deepest entries.
    entries = sorted(shown[:MAX_ENTRIES], key=lambda entry: path_sort_key(entry.path))
    lines = []
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        closed = entry.kind == "directory" and is_skipped(name)
        lines.append("  " * (entry.depth - 1) + escape(name) + "/" * (entry.kind == "directory") + " ..." * closed)
    more = len(shown) > len(entries) or listing.cut
    return "\n".join([*(lines or ["nothing is there"]), *([f"... (limited to {MAX_ENTRIES} results)"] if more else [])])


@action(idempotent=True, subjects=SUBJECTS)
def outline(context: Context, path: FilePath) -> str:
    """Shows what a source file defines: functions, classes, methods, types, with their lines."""
    parsed, _ = _read_outline(get_workspace(context), path)
    lines = [f"{each.line}: [{each.kind}] {each.path[:_LINE]}" for each in parsed.symbols[: MAX_SYMBOLS + 1]]
    return _limit_lines(lines, "nothing is defined there", limit=MAX_SYMBOLS)


@action(idempotent=True, subjects=SUBJECTS)
def imports(context: Context, path: FilePath) -> str:
    """Shows what a source file imports, with the lines."""
    parsed, lines = _read_outline(get_workspace(context), path)
    shown = [f"{number}: {lines[number - 1].strip()[:_LINE]}" for number in parsed.imports[: MAX_SYMBOLS + 1]]
    return _limit_lines(shown, "nothing is imported there", limit=MAX_SYMBOLS)


def _entry_filter(context: Context, files: ConfinedDirectory, directory: str) -> Callable[[str], bool]:
    """Return whether the rules let an entry of a directory be shown, by its path from there."""
    start = files.canonical(directory)
    return lambda path: context.permits(f"{start}/{path}" if start else path)


def _read_outline(workspace: Workspace, path: str) -> tuple[ParsedText, list[str]]:
    opened = open_text(workspace, path)
    parsed = make_outline(opened.file.text, opened.canonical_path)
    if parsed is None and find_language(path) is not None:
        raise ValueError(f"{escape(path)} could not be parsed (the extra `coding` brings the grammars)")
    if parsed is None:
        raise ValueError(f"{escape(path)} is in none of the languages that are understood: {', '.join(NAMES)}")
    return parsed, opened.lines


def _limit_lines(lines: list[str], nothing: str, *, limit: int = MAX_ENTRIES, cut: bool = False) -> str:
    limited = [f"... (limited to {limit} results)"] if cut or len(lines) > limit else []
    return "\n".join([*(lines[:limit] or [nothing]), *limited])


navigate = ActionTool(
    "navigate",
    "Shows directories, and what source files define and import.",
    {
        "list_directory": list_directory,
        "get_file_outline": outline,
        "find_imports": imports,
        "get_tree": tree,
    },
    default="list_directory",
)
