"""Which of the labels of `callboard eval` can be given to a reply without knowing what was expected.

The names are those of `callboard.evaluation` (docs/evaluation.md says what each means). Of the eleven those are known
here that follow from the request and the reply alone: whether a call was demanded or forbidden, whether the reply was
cut, and whether a call fits the tools that were declared. Only the top level of the arguments is looked at: schemas are
a client's, and holding values against them in full is not bounded.

Law: linear in the number of arguments; nothing is raised, whatever schema and arguments are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReplyEnded,
    Request,
    ToolDeclaration,
)

_MAX_CALLS: Final = 32
"""Calls of a reply that are looked at."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict, Mapping),
    "null": (type(None),),
}


class FailureLabel(msgspec.Struct, frozen=True):
    """What is wrong with a reply: the label, and the tool whose call it is about."""

    name: str
    tool: str = ""


def label_failures(request: Request, events: Iterable[Event]) -> list[FailureLabel]:
    """The labels of a reply, of each call the first one that fits."""
    tools = {tool.name: tool for tool in request.tools}
    labels: list[FailureLabel] = []
    count = 0
    for event in events:
        match event:
            case InvocationStarted(name=name) if request.tool_choice == "none":
                labels.append(FailureLabel("should_not_have_called", name))
            case InvocationIncomplete(name=name):
                labels.append(FailureLabel("truncation", name))
            case ReplyEnded(reason="length"):
                if not any(label.name == "truncation" for label in labels):
                    labels.append(FailureLabel("truncation"))
            case ReplyEnded(reason="no_call"):
                labels.append(FailureLabel("no_call"))
            case InvocationEnded(name=name) if count < _MAX_CALLS:
                count += 1
                label = _label_call(event, tools.get(name)) if tools else ""
                labels += [FailureLabel(label, name)] if label else []
            case _:
                pass
    return labels


def _label_call(call: InvocationEnded, tool: ToolDeclaration | None) -> str:
    """What is wrong with a call, or "" where that cannot be seen."""
    if tool is None:
        return "wrong_tool"
    if call.arguments is None:
        return "malformed_json"
    return next(_label_arguments(call.arguments, tool.schema), "")


def _label_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    for name in required if isinstance(required, (list, tuple)) else ():
        if isinstance(name, str) and name not in arguments:
            yield "missing_required"
    if not isinstance(properties, Mapping):
        return
    if schema.get("additionalProperties") in (None, False) and "patternProperties" not in schema:
        for name in arguments:
            if name not in properties:
                yield "hallucinated_param"
    for name, value in arguments.items():
        yield from _label_value(value, properties.get(name))


def _label_value(value: Any, schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    kinds = [kind for name in names if isinstance(name, str) for kind in _TYPES.get(name, ())]
    if kinds and not _is_of(value, kinds):
        yield "type_coercion" if _spells(value, kinds) else "schema_violation"
    accepted = schema.get("enum")
    if isinstance(accepted, list) and not _is_among(value, accepted):
        yield "schema_violation"


def _is_among(value: Any, accepted: list[Any]) -> bool:
    try:
        return value in accepted
    except RecursionError:  # both are nested as deep as a body may be
        return True


def _is_of(value: Any, kinds: list[type]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, tuple(kinds))


def _spells(value: Any, kinds: list[type]) -> bool:
    """Whether it is a value of one of these types but for the type: "5" for 5, 5.0 for a whole number."""
    if isinstance(value, float):
        return int in kinds and value.is_integer()
    if isinstance(value, list):
        return len(value) == 1 and _is_of(value[0], kinds)
    try:
        return isinstance(value, str) and _is_of(msgspec.json.decode(value), kinds)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
