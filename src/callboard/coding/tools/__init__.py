"""What a model can do in a workspace: each module is one of seven tools, each function one action.

A job's model gets the seven tools, or one tool for each action. The tools are imported at their first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from callboard.coding.tools.action_tool import ACTION, ActionTool
from callboard.coding.workspace.workspace import Workspace
from callboard.tools import Ensemble, Invoker, Tool

TIMEOUT: Final = 60
"""Default time limit of a tool, in seconds."""

_OF_ONE_ACTION: Final = {"bash": "bash", "test": "run_tests"}
"""The tools of one action, and its name where each action is a tool."""


def make_ensemble(workspace: Workspace, actions: Iterable[str], *, single: bool) -> Ensemble:
    """The tools for some actions, by their single names such as `read_file`: one for each, or the seven with these alone."""
    names = {*actions}
    tools: list[Tool[..., Any]] = []
    if single:
        tools = [each for name, each in _single_tools().items() if name in names]
    else:
        for name, tool in _tools().items():
            if isinstance(tool, ActionTool):
                tools += [remaining] if (remaining := tool.only(names)) else []
            elif _OF_ONE_ACTION[name] in names:
                tools.append(tool)
    return Ensemble("coding", tools, {"timeout": TIMEOUT}, workspace)


def single_action(name: str, arguments: Mapping[str, Any]) -> str:
    """The action's own name, such as `read_file`, of a call; the tool's name if the call names no action."""
    invoker = _invokers().get(name)
    if invoker is None:
        return _OF_ONE_ACTION.get(name, name)
    tool = _tools()[name]
    name_of_action = invoker.coerce(arguments).get(ACTION)
    action = (
        tool.actions.get(name_of_action) if isinstance(tool, ActionTool) and isinstance(name_of_action, str) else None
    )
    return action.name if action is not None else name


def purpose_of(invoker: Invoker) -> str:
    """What a tool is for, in a line."""
    tool = _tools().get(invoker.name)
    return (tool.purpose if isinstance(tool, ActionTool) else invoker.description).partition("\n")[0]


def action_names(name: str) -> tuple[str, ...]:
    """The own names of a tool's actions, except the tool's; empty for a name that is none of the seven."""
    tool = _tools().get(name)
    if tool is None:
        return ()
    singles = [each.name for each in tool.actions.values()] if isinstance(tool, ActionTool) else [_OF_ONE_ACTION[name]]
    also = ["put_code"] if name in ("file", "code_edit") else []
    return tuple(each for each in (*singles, *also) if each != name)


def tool_names() -> frozenset[str]:
    """The names of the seven tools and of all single actions."""
    return frozenset((*_tools(), *_single_tools()))


@cache
def _tools() -> Mapping[str, Tool[..., Any]]:
    from callboard.coding.tools.bash import bash  # noqa: PLC0415  # tools import this package
    from callboard.coding.tools.code_edit import code_edit  # noqa: PLC0415
    from callboard.coding.tools.file import file  # noqa: PLC0415
    from callboard.coding.tools.git import git  # noqa: PLC0415
    from callboard.coding.tools.navigate import navigate  # noqa: PLC0415
    from callboard.coding.tools.search import search  # noqa: PLC0415
    from callboard.coding.tools.test import test  # noqa: PLC0415

    return {each.name: each for each in (file, code_edit, search, navigate, git, bash, test)}


@cache
def _single_tools() -> Mapping[str, Tool[..., Any]]:
    from callboard.coding.tools.test import run_tests  # noqa: PLC0415  # as above

    tools: dict[str, Tool[..., Any]] = {}
    for tool in (*_tools().values(), run_tests):
        for each in tool.actions.values() if isinstance(tool, ActionTool) else (tool,):
            tools.setdefault(each.name, each)
    return tools


@cache
def _invokers() -> Mapping[str, Invoker]:
    return {name: Invoker.of(tool) for name, tool in _tools().items() if isinstance(tool, ActionTool)}
