"""Events that the official API does not have: clients that were written for the gateway's first specification ask for
them (`--compat-events`).
"""

from __future__ import annotations

from typing import Any

from callboard.wires.responses.reply_items import Call, Step


def begin(item: Call) -> Step:
    return "response.output_tool_call.begin", {**item.at, "call_id": item.call_id, "name": item.name}


def delta(item: Call, text: str) -> Step:
    return "response.output_tool_call.delta", {**item.at, "delta": text}


def end(item: Call) -> Step:
    return "response.output_tool_call.end", {**item.at, "name": item.name, "arguments": item.text}


def done(response: dict[str, Any]) -> Step:
    return "response.done", {"response": response}
