"""The model's tools in a workspace: seven tools, in which each function is one action.

A job's model gets the seven tools, or one tool for each action.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from callboard.coding.edits.apply_patch import parse_patch
from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.tools.action_tool import ACTION, ActionTool
from callboard.coding.tools.code_edit import code_edit as _code_edit
from callboard.coding.tools.code_edit import patched_paths
from callboard.coding.tools.commands import bash as _bash
from callboard.coding.tools.commands import run_tests as _run_tests
from callboard.coding.tools.commands import test as _test
from callboard.coding.tools.file import file as _file
from callboard.coding.tools.git import git as _git
from callboard.coding.tools.navigate import navigate as _navigate
from callboard.coding.tools.search import search as _search
from callboard.coding.workspace.file_editor import normalize_newlines
from callboard.coding.workspace.workspace import Workspace
from callboard.tools import Ensemble, Invoker, Tool

TIMEOUT: Final = 60
"""Default time limit of a tool, in seconds."""

_OF_ONE_ACTION: Final = {"bash": "bash", "test": "run_tests"}
"""The tools of one action, and its name where each action is a tool."""
_TOOLS: Final[Mapping[str, Tool[..., Any]]] = {
    each.name: each for each in (_file, _code_edit, _search, _navigate, _git, _bash, _test)
}
_INVOKERS: Final = {name: Invoker.of(tool) for name, tool in _TOOLS.items() if isinstance(tool, ActionTool)}
_EDITS: Final = frozenset(
    (
        *("write_file", "replace_in_file", "append_file", "edit_lines", "insert_lines", "delete_lines", "apply_patch"),
        "delete_file",
    )
)
"""The actions that change files."""
_SINGLE_TOOLS: Final[dict[str, Tool[..., Any]]] = {}
for _tool in (*_TOOLS.values(), _run_tests):
    for _single in _tool.actions.values() if isinstance(_tool, ActionTool) else (_tool,):
        _SINGLE_TOOLS.setdefault(_single.name, _single)


def make_ensemble(workspace: Workspace, actions: Iterable[str], *, single: bool) -> Ensemble:
    """Return the tools for actions such as `read_file`: one tool each, or the seven with only these actions."""
    names = {*actions}
    tools: list[Tool[..., Any]] = []
    if single:
        tools = [each for name, each in _SINGLE_TOOLS.items() if name in names]
    else:
        for name, tool in _TOOLS.items():
            if isinstance(tool, ActionTool):
                tools += [remaining] if (remaining := tool.only(names)) else []
            elif _OF_ONE_ACTION[name] in names:
                tools.append(tool)
    return Ensemble("coding", tools, {"timeout": TIMEOUT}, workspace)


def single_action(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the action's own name, such as `read_file`, of a call; the tool's name if the call names no action."""
    invoker = _INVOKERS.get(name)
    if invoker is None:
        return _OF_ONE_ACTION.get(name, name)
    tool = _TOOLS[name]
    name_of_action = invoker.coerce(arguments).get(ACTION)
    action = (
        tool.actions.get(name_of_action) if isinstance(tool, ActionTool) and isinstance(name_of_action, str) else None
    )
    return action.name if action is not None else name


def edited_paths(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the files that a call of ours edits; empty for any other call."""
    if single_action(name, arguments) not in _EDITS:
        return []
    path, patch = arguments.get("path"), arguments.get("patch")
    own = [path] if isinstance(path, str) and path else []
    if not isinstance(patch, str):
        return own
    try:
        return patched_paths(parse_patch(normalize_newlines(patch), own[0] if own else ""))
    except EditRefused:
        return []


def purpose_of(invoker: Invoker) -> str:
    """Return the purpose of a tool, in a line."""
    tool = _TOOLS.get(invoker.name)
    return (tool.purpose if isinstance(tool, ActionTool) else invoker.description).partition("\n")[0]


def action_names(name: str) -> tuple[str, ...]:
    """Return the names of a tool's actions, without the tool's own name; empty for any other tool."""
    tool = _TOOLS.get(name)
    if tool is None:
        return ()
    singles = [each.name for each in tool.actions.values()] if isinstance(tool, ActionTool) else [_OF_ONE_ACTION[name]]
    also = ["put_code"] if name in ("file", "code_edit") else []
    return tuple(each for each in (*singles, *also) if each != name)


def tool_names() -> frozenset[str]:
    """Return the names of the seven tools and of all single actions."""
    return frozenset((*_TOOLS, *_SINGLE_TOOLS))
