"""A client's body with names in camel case and lists where the API takes one object for a list of it.

Google reads `system_instruction` and `systemInstruction` alike, and its own examples use both.
Law: what a user or a tool named is never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

_FREE_NAMES = frozenset(
    {
        "args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema",
        "labels", "partMetadata", "videoMetadata", "mediaResolution", "text", "data",
    }
)  # fmt: skip
"""Fields in which the names are the user's; those of schemas are converted by `openapi_schema`."""


_NESTED = frozenset({dict, list})


def camel_case(value: Any) -> Any:
    """The value with its names in camel case, itself where they are already."""
    return _rename(value) if _has_snakes(value) else value


_LISTS: Mapping[str, str] = {"contents": "parts", "tools": "functionDeclarations"}
"""The fields that hold lists of objects, and those lists' own."""


def wrap_lists(body: Any) -> Any:
    """The body, in camel case, with a list in place of each single object; itself where there is none."""
    if not isinstance(body, Mapping):
        return body
    changed = {name: _list_of(body[name], inner) for name, inner in _LISTS.items() if name in body}
    if "systemInstruction" in body:
        changed["systemInstruction"] = _with_list(body["systemInstruction"], "parts")
    return body if all(body[name] is value for name, value in changed.items()) else {**body, **changed}


def _list_of(value: Any, inner: str) -> Any:
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list):
        return value
    ours = [_with_list(item, inner) for item in items]
    return value if items is value and all(map(is_, ours, items)) else ours


def _with_list(item: Any, name: str) -> Any:
    value = item.get(name) if isinstance(item, Mapping) else None
    return {**item, name: [value]} if isinstance(value, Mapping) else item


def _has_snakes(value: Any) -> bool:
    if type(value) is list:
        return any(_has_snakes(item) for item in value if type(item) in _NESTED)
    if not isinstance(value, dict) and not isinstance(value, Mapping):
        return False
    for key, inner in value.items():
        if "_" in key or (type(inner) in _NESTED and key not in _FREE_NAMES and _has_snakes(inner)):
            return True
    return False


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = ((_camel(key), inner) for key, inner in value.items())
    return {name: inner if name in _FREE_NAMES else _rename(inner) for name, inner in named}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join([word[:1].upper() + word[1:] for word in rest]) if head else name
