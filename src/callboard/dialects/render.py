"""Write tools, calls and results as text for a model without fields for them.

Law: the text parses back to the same calls. If it would not, NotSpellable says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from callboard.core import (
    ArgumentsPiece,
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ResultCanister,
    ToolDeclaration,
    join_texts,
    result_contents,
)
from callboard.dialects.dialect import Dialect
from callboard.dialects.grammar import NotSpellable, arguments_json, to_json
from callboard.dialects.parser import parse

_EXAMPLE = InvocationCanister("0", "the_tool", {"parameter": "value"}, "")
_TOLD = (InvocationStarted, ArgumentsPiece, InvocationEnded)


def render_tools(dialect: Dialect, tools: Iterable[ToolDeclaration]) -> str:
    """Return the part of a system prompt with the `tools` and how to call them in the `dialect`.

    The same tools give the same text.
    """
    lines = [
        to_json({"name": tool.name, "description": tool.full_description, "parameters": dict(tool.schema)})
        for tool in tools
    ]
    return "\n".join(["You can call these tools:", *lines, "", describe_calls(dialect)])


def describe_calls(dialect: Dialect) -> str:
    """Return instructions for calls, in words and with an example."""
    return dialect.instructions or _instructions(dialect)


def _instructions(dialect: Dialect) -> str:
    try:
        example = _render(dialect, [_EXAMPLE])
    except NotSpellable:
        return ""
    return (
        f"To call one, write exactly this, with its name and arguments, and nothing behind it:\n"
        f"{example}\nYou are then told what it returned, and answer from that."
    )


def render_call(dialect: Dialect, call: InvocationCanister, tools: Iterable[ToolDeclaration] | None = None) -> str:
    """Return `call` as the `dialect` writes it. `tools` have the types of its arguments. Raises NotSpellable."""
    return render_calls(dialect, [call], tools)


def render_calls(
    dialect: Dialect, calls: Sequence[InvocationCanister], tools: Iterable[ToolDeclaration] | None = None
) -> str:
    """Return the `calls` of one reply as the `dialect` writes them. `tools` have the types of their arguments.

    Raises NotSpellable for calls that would be read differently. If a dialect writes JSON, arguments that are not an
    object are written as the model wrote them.
    """
    text = _render(dialect, calls)
    if any(call.arguments is None for call in calls):
        return text
    declared = None
    if tools is not None:  # plus the calls' own tools, even if they were not declared
        by_name = {tool.name: tool for tool in tools}
        declared = [*by_name.values(), *(ToolDeclaration(call.name) for call in calls if call.name not in by_name)]
    events = parse(text, declared, dialect)
    read = [event for event in events if isinstance(event, InvocationEnded)]
    if len(read) != len(calls) or not all(isinstance(event, _TOLD) for event in events):
        raise NotSpellable(f"it would not be read as {len(calls)} call{'s' * (len(calls) != 1)} and nothing else")
    for call, event in zip(calls, read, strict=True):
        if call.name != event.name:
            raise NotSpellable(f"its name would be read as {event.name!r}")
        if why := _first_difference(call.arguments or {}, event.arguments):
            raise NotSpellable(why)
    return text


def render_action(thought: str, *, call: InvocationCanister | None = None, answer: Any = None) -> str:
    """Return one step of a model as an object of the dialect `action`: a thought, then a call or an answer.

    Args:
        thought: The thought; omitted if empty.
        call: A call. Arguments that are not an object are written as the model wrote them.
        answer: The answer's text, or a value if the answer has a schema.
    """
    members = [f'"scratchpad": {to_json(thought)}'] if thought else []
    if call is not None:
        members += [f'"tool": {to_json(call.name)}', f'"arguments": {arguments_json(call)}']
    if answer is not None:
        members.append(f'"answer": {to_json(answer)}')
    return f'{{"action": {{{", ".join(members)}}}}}'


def render_result(dialect: Dialect, result: ResultCanister, name: str = "", number: int = 1) -> str:
    """Return the `result` of a call as the `dialect` writes it.

    `number` and `name` are for dialects without their own form.
    """
    text = join_texts(result_contents(result))
    if dialect.result:
        return dialect.result.replace("{content}", text, 1)
    tool = f"Tool {number} ({name})" if name else f"Tool {number}"
    return f"{tool} output:\n{text}" if result.error is None else f"{tool} error: {text.removeprefix('Error: ')}"


def render_in_prose(invocation: InvocationCanister, result: ResultCanister | None) -> str:
    """Return the call `invocation` and its `result` in plain words."""
    arguments: Mapping[str, Any] = invocation.arguments or {}
    call = f"{invocation.name}({', '.join(f'{key}={to_json(value)}' for key, value in arguments.items())})"
    if result is None:
        return f"{call} was not run."
    if result.error is not None:
        return f"{call} failed: {result.text}"
    text = result.text
    return f"{call} returned:\n{text}" if "\n" in text else f"{call} returned {text}."


def _render(dialect: Dialect, calls: Sequence[InvocationCanister]) -> str:
    frame = dialect.render_frame
    body = frame.grammars[0]
    each = [frame.each.replace("{call}", body.render(call, place), 1) for place, call in enumerate(calls)]
    return frame.section.replace("{calls}", frame.join.join(each), 1)


def _first_difference(original: Mapping[str, Any], read: Mapping[str, Any] | None) -> str:
    """Say which of the arguments would be read differently."""
    if read is None:
        return "its arguments would not be read as an object"
    for key in dict.fromkeys([*original, *read]):
        if key not in original or key not in read or _plain(original[key]) != _plain(read[key]):
            return f"its argument {key!r} would be read as something else"
    return ""


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
