"""The questions about calls: what a call does, before a person decides. All of it is shown, and escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.cli.diffs import count_lines
from callboard.coding.workspace.changed_files import ChangedFile, count_changed_lines, diff_of
from callboard.text.display import escape, make_visible


def describe_call(name: str, arguments: Mapping[str, Any] | None) -> str:
    """Return the question about a call: its command, such as `Run: make test`, or its name with all arguments."""
    rest = dict(arguments or {})
    command = rest.pop("command", None)
    if not isinstance(command, str):
        return f"Run {make_visible(name, keep='')}? {json.dumps(arguments or {})}"
    others = f" {json.dumps(rest)}" if rest else ""
    which = "" if name == "bash" else f" {make_visible(name, keep='')}"
    return f"Run{which}: {make_visible(command)}{others}"


def describe_changes(changes: Sequence[ChangedFile]) -> str:
    """Return what an edit does, such as `Edit calc.py? +2 -1`."""
    counts = count_lines(*count_changed_lines(diff_of(changes)))
    if len(changes) != 1:
        return f"Edit {len(changes)} files? {counts}"
    change = changes[0]
    verb = "Create" if change.before is None else "Delete" if change.after is None else "Edit"
    return f"{verb} {escape(change.path)}? {counts}"
