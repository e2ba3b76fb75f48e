"""Give tools other names for a prompt if the dialect cannot spell their own, such as names with spaces.

Law: tools whose names the dialect can spell keep them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from callboard.core import InvocationCanister, NamedTool, Request
from callboard.dialects import Dialect, NotSpellable, render_calls
from callboard.wires.common.tool_declarations import ToolNames

_PLAIN: Final = re.compile(r"[\w.:/-]+")
"""Names that every dialect can spell."""


def spell_names(request: Request, dialect: Dialect) -> tuple[Request, Mapping[str, str]]:
    """Return the request as the prompt names its tools, and the declared names by those of the prompt."""
    odd = [
        tool.name for tool in request.tools if not _PLAIN.fullmatch(tool.name) and not _can_spell(dialect, tool.name)
    ]
    if not odd:
        return request, {}
    safe = ToolNames(request)
    names = {name: safe.on_wire(name) for name in odd}
    choice = request.tool_choice
    if isinstance(choice, NamedTool):
        choice = NamedTool(names.get(choice.name, choice.name))
    spelled = replace(
        request,
        tools=tuple([replace(tool, name=names.get(tool.name, tool.name)) for tool in request.tools]),
        tool_choice=choice,
        canisters=tuple(
            [
                replace(each, name=names[each.name])
                if isinstance(each, InvocationCanister) and each.name in names
                else each
                for each in request.canisters
            ]
        ),
    )
    return spelled, {sent: name for name, sent in names.items()}


def _can_spell(dialect: Dialect, name: str) -> bool:
    try:
        render_calls(dialect, [InvocationCanister("", name, {})])
    except NotSpellable:
        return False
    return True
