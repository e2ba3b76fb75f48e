"""Items of a client's input as a server lists them: with the type, the identifier and the parts that a client may omit.

Law: nothing of an item is changed, and the same input gives the same items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}
_TEXT: Mapping[str, Mapping[str, Any]] = {
    "assistant": {"type": "output_text", "annotations": [], "logprobs": []},
}


def input_items(value: Any) -> list[Any]:
    """The items of a body's `input`: a text is one message of the user."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return list(value)


def complete_items(items: Iterable[Mapping[str, Any]], base: str) -> list[dict[str, Any]]:
    """The items with type and identifier; those without one get it from `base` and their place."""
    return [_complete_item(item, base, place) for place, item in enumerate(items)]


def _complete_item(item: Mapping[str, Any], base: str, place: int) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "unknown")
    if not isinstance(kind, str):
        kind = "unknown"
    identifier = item.get("id")
    identifier = (
        identifier if isinstance(identifier, str) and identifier else f"{_PREFIXES.get(kind, 'item')}_{base}_in{place}"
    )
    whole = {**item, "type": kind, "id": identifier}
    if kind == "message":
        whole["content"] = _parts(item.get("content"), item.get("role"))
        whole.setdefault("status", "completed")
    elif kind in {"function_call", "function_call_output"}:
        whole.setdefault("status", "completed")
    return whole


def _parts(content: Any, role: Any) -> list[Any]:
    if isinstance(content, str):
        return [{**_TEXT.get(role, {"type": "input_text"}), "text": content}]
    return [
        {"detail": "auto", **part} if isinstance(part, Mapping) and part.get("type") == "input_image" else part
        for part in content or ()
    ]
