"""The tools of a phase.

Owns the table of single actions, and the ensembles that are made of some of them. Knows nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from callboard.coding.actions import ACTION, Actions
from callboard.coding.workspace import Workspace
from callboard.schema import ArgumentsInvalid
from callboard.tools import Ensemble, Tool

TESTS: Final = "run_tests"
DEFAULTS: Final = {"timeout": 60.0}


@cache
def _tools() -> tuple[tuple[Actions, ...], Mapping[str, Tool[..., Any]]]:
    """The tools of many actions, and the others by the name of their one action."""
    from callboard.coding.tools.bash import bash  # noqa: PLC0415  # tree-sitter and more come with them
    from callboard.coding.tools.code_edit import code_edit  # noqa: PLC0415
    from callboard.coding.tools.file import file  # noqa: PLC0415
    from callboard.coding.tools.git import git  # noqa: PLC0415
    from callboard.coding.tools.navigate import navigate  # noqa: PLC0415
    from callboard.coding.tools.search import search  # noqa: PLC0415
    from callboard.coding.tools.test import test  # noqa: PLC0415

    return (file, code_edit, search, navigate, git), {"bash": bash, TESTS: test}


@cache
def _singles() -> Mapping[str, Tool[..., Any]]:
    from callboard.coding.tools.test import run_tests  # noqa: PLC0415  # as above

    many, others = _tools()
    found: dict[str, Tool[..., Any]] = {}
    for tool in many:
        for each in tool.actions.values():
            found.setdefault(each.name, each)
    return {**found, **others, TESTS: run_tests}


def ensemble(workspace: Workspace, names: Iterable[str], *, single: bool) -> Ensemble:
    """The tools of these single actions: each by itself, or as the seven with these actions alone."""
    wanted = [*names]
    if single:
        return Ensemble("coding_single", [_singles()[name] for name in wanted], DEFAULTS, workspace)
    many, others = _tools()
    made: list[Tool[..., Any]] = [limited for tool in many if (limited := tool.only(wanted)) is not None]
    return Ensemble("coding", [*made, *(others[name] for name in wanted if name in others)], DEFAULTS, workspace)


def single_action(name: str, arguments: Mapping[str, Any]) -> str:
    """The single action that a call means, "" if it means none."""
    many, others = _tools()
    for tool in many:
        if tool.name == name:
            try:
                return tool.actions[tool.validate(arguments)[ACTION]].name
            except ArgumentsInvalid:
                return ""
    for single, other in others.items():
        if name in (single, other.name):
            return single
    return name if name in _singles() else ""
