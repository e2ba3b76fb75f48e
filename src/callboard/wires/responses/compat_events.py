"""The events of seed 002 that the official API does not have.

Owns their names and fields. Knows nothing of when they are sent.
"""

from __future__ import annotations

from typing import Any

from callboard.wires.responses.reply_items import Call, Step


def begin(item: Call) -> list[Step]:
    return [("response.output_tool_call.begin", {**item.at, "call_id": item.call_id, "name": item.name})]


def delta(item: Call, text: str) -> list[Step]:
    return [("response.output_tool_call.delta", {**item.at, "delta": text})]


def end(item: Call) -> list[Step]:
    return [("response.output_tool_call.end", {**item.at, "name": item.name, "arguments": item.said})]


def done(response: dict[str, Any]) -> list[Step]:
    return [("response.done", {"response": response})]
