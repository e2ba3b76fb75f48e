"""Items of a client's input, as a server lists them.

Owns what a listed item has that a client may leave out: its type, its identifier, its content as parts.
Law: nothing that was said is changed, and the same input gives the same items.
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


def input_items(said: Any) -> list[Any]:
    """The items of a body's `input`: a text is one message of the user."""
    if said is None or said == "":
        return []
    if isinstance(said, str):
        return [{"type": "message", "role": "user", "content": said}]
    return list(said)


def complete_items(items: Iterable[Mapping[str, Any]], base: str) -> list[dict[str, Any]]:
    """The items with type and identifier; those without one get it from `base` and their place."""
    return [_listed(item, base, place) for place, item in enumerate(items)]


def _listed(item: Mapping[str, Any], base: str, place: int) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "unknown")
    if not isinstance(kind, str):
        kind = "unknown"
    given = item.get("id")
    identifier = given if isinstance(given, str) and given else f"{_PREFIXES.get(kind, 'item')}_{base}_in{place}"
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
