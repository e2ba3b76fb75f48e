"""How a call is spelled in text, as data.

Owns the rows. Knows nothing of how text is read: a dialect differs from another by its row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

import msgspec

from callboard.errors import CallerError
from callboard.plugins import plugins


class Role(Enum):
    """What a member of a call object is for."""

    NAME = "name"
    ARGUMENTS = "arguments"
    TEXT = "text"
    REASONING = "reasoning"
    WRAPPER = "wrapper"
    """An object whose members count as the call's own. A string in its place is the name."""


# Without this sentence Qwen2.5-Coder-0.5B answers from nothing; with it, it calls.
_NEVER_GUESS = "Never compute or guess what a tool can tell: call the tool."

_CALL = {
    "name": Role.NAME,
    "tool": Role.NAME,
    "tool_name": Role.NAME,
    "function": Role.WRAPPER,
    "arguments": Role.ARGUMENTS,
    "args": Role.ARGUMENTS,
    "parameters": Role.ARGUMENTS,
    "input": Role.ARGUMENTS,
}


class Dialect(msgspec.Struct, frozen=True):
    """One way to spell calls.

    `keys` are the members of a call object; `undeclared` says whether an object with a name that no tool has
    is a call all the same (an unknown one) or stays text. `call` spells one, with NAME and ARGUMENTS for
    their JSON, and `thought` a thought with THOUGHT ("" where it has no place for one); `manner` tells a model how to call and how to answer.
    """

    name: str
    summary: str
    keys: Mapping[str, Role]
    undeclared: bool
    call: str
    manner: str
    thought: str = ""


JSON = Dialect(
    "json",
    summary="a JSON object, fenced or bare at the beginning of a line, any key spelling",
    keys=MappingProxyType(_CALL),
    undeclared=False,
    call='```json\n{"name": NAME, "arguments": ARGUMENTS}\n```',
    manner=(
        f"{_NEVER_GUESS} To call one, write only a JSON object with its name and arguments:\n"
        '```json\n{"name": "the tool", "arguments": {"parameter": "value"}}\n```\n'
        "You are then told what it returned, and answer from that in plain text."
    ),
)

ACTION = Dialect(
    "action",
    summary='{"tool", "arguments"}, {"answer"} or {"scratchpad"}, also inside {"action": …} (seed 001)',
    keys=MappingProxyType(_CALL | {"action": Role.WRAPPER, "answer": Role.TEXT, "scratchpad": Role.REASONING}),
    undeclared=True,
    call='{"action": {"tool": NAME, "arguments": ARGUMENTS}}',
    thought='{"action": {"scratchpad": THOUGHT}}',
    manner=(
        f"{_NEVER_GUESS} "
        'Reply with one JSON object. To call a tool: {"action": {"tool": "its name", "arguments": {…}}}. '
        "You are then told what it returned. "
        'To answer: {"action": {"answer": "the answer"}}. To think first: {"action": {"scratchpad": "the thought"}}.'
    ),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (JSON, ACTION)})


def dialect_named(name: str) -> Dialect:
    """The dialect of that name, ours or a plug-in's; `-` and `_` are the same, case does not matter.

    Raises CallerError.
    """
    wanted = name.lower().replace("-", "_")
    found = DIALECTS.get(wanted)
    if found is not None:
        return found
    added: dict[str, Dialect] = {dialect.name: dialect for dialect in plugins("callboard.dialects")}
    if wanted not in added:
        raise CallerError(f"no dialect {name!r}", hint=f"there are {', '.join([*DIALECTS, *added])}")
    return added[wanted]
