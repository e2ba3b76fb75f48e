"""The tool `put_code`: replace functions and classes by their names; see `edits.replace_definitions`."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Annotated, Final

from callboard.coding.edits.replace_definitions import replace_definitions
from callboard.coding.edits.result import Change, Span, split_lines
from callboard.coding.outlines.languages import find_language
from callboard.coding.tools.action_tool import action
from callboard.coding.tools.file import SUBJECTS, FilePath, write_file
from callboard.coding.workspace.file_editor import open_text, save
from callboard.coding.workspace.text_file import normalize_newlines
from callboard.coding.workspace.workspace import get_workspace
from callboard.text.display import escape
from callboard.tools import Context

MAX_COMPARED: Final = 4000
"""Lines of both texts of which it is looked where they differ, which takes their product's time."""


@action(approval=True, subjects=SUBJECTS)
def put_code(
    context: Context, path: FilePath, code: Annotated[str, "Whole functions or classes, or the whole file"]
) -> str:
    """Puts functions, classes and tests in the place of those of the same names in a file; what is new comes behind."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        try:
            opened = open_text(workspace, path)
        except FileNotFoundError:
            whole = (
                replace_definitions("", normalize_newlines(code), path)[0]
                if find_language(path)
                else normalize_newlines(code)
            )
            return str(write_file.function(context, path, whole))
        text, names = replace_definitions(opened.file.text, normalize_newlines(code), path)
        shown = save(workspace, opened, Change(text, _diff_spans(opened.lines, split_lines(text))))
    return f"Put {', '.join(names)} into {escape(path)}:\n{shown}"


def _diff_spans(old: list[str], new: list[str]) -> tuple[Span, ...]:
    """The spans where the lines differ; one span of all lines for a large text."""
    if len(old) + len(new) > MAX_COMPARED:
        return (Span(1, len(old), len(new)),)
    opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(Span(begin + 1, end - begin, to - at) for tag, begin, end, at, to in opcodes if tag != "equal")
