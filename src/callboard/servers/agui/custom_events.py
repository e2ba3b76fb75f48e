"""What AG-UI has no event for, as custom events whose names begin with `callboard.`.

Laws: nothing that a provider answered to a failed request is in them, and nothing that a job keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import to_builtins

from callboard.coding.jobs.log import Notice, PhaseEnded, Resumed, TreeSnapshot
from callboard.core import (
    ApprovalAnswered,
    ApprovalAsked,
    HandedOver,
    InvocationCanister,
    Note,
    ReplyFailed,
    RolledBack,
    RunEnded,
    ToolProgress,
)
from callboard.servers.agui.conversation import AguiThread
from callboard.servers.agui.events import CustomEvent

PREFIX: Final = "callboard."

_Value: TypeAlias = dict[str, Any]


def custom_event(item: Any, thread: AguiThread, author: str = "") -> CustomEvent | None:
    """The custom event of an item, None for what a front-end does not need."""
    row = _ROWS.get(type(item))
    if row is None:
        return None
    name, make = row
    return CustomEvent(name=PREFIX + name, value=make(item, thread, author), subagent_run_id=author)


def _encode_call(invocation: InvocationCanister, thread: AguiThread, author: str) -> _Value:
    """The call, by the identifier that the client knows it by, and with the arguments that would run."""
    call = thread.find_call(invocation.identifier, author)
    identifier = invocation.identifier if call is None else call.identifier
    return {"toolCallId": identifier, "name": invocation.name, "arguments": to_builtins(invocation.arguments)}


def _encode_question(event: ApprovalAsked, thread: AguiThread, author: str) -> _Value:
    return {**_encode_call(event.invocation, thread, author), "why": event.why}


def _encode_answer(event: ApprovalAnswered, thread: AguiThread, author: str) -> _Value:
    value = {
        **_encode_call(event.invocation, thread, author),
        "verdict": event.verdict,
        "why": event.why,
        "failed": event.failed,
        "by": event.by,
        "via": event.via,
        "at": to_builtins(event.timestamp),
        "text": event.describe(),
    }
    return value if event.arguments is None else {**value, "edited": to_builtins(event.arguments)}


def _encode_progress(event: ToolProgress, thread: AguiThread, author: str) -> _Value:
    call = thread.find_call(event.identifier, author)
    identifier = event.identifier if call is None else call.identifier
    return {"toolCallId": identifier, "progress": event.progress, "total": event.total, "message": event.message}


def _encode_end(event: RunEnded, *_: Any) -> _Value:
    return {"state": event.state, "usage": to_builtins(event.usage), "cost": event.cost}


def _encode_failure(event: ReplyFailed, *_: Any) -> _Value:
    return {"party": event.party, "code": event.code, "message": event.message, "hint": event.hint}


_ROWS: Final[Mapping[type, tuple[str, Callable[[Any, AguiThread, str], _Value]]]] = {
    Note: ("note", lambda event, *_: {"kind": event.kind, "code": event.code, "text": event.text}),
    Notice: ("notice", lambda step, *_: {"text": step.text}),
    ToolProgress: ("tool_progress", _encode_progress),
    ApprovalAsked: ("approval_asked", _encode_question),
    ApprovalAnswered: ("approval_answered", _encode_answer),
    HandedOver: ("handed_over", lambda event, *_: {"agent": event.agent}),
    RolledBack: ("rolled_back", lambda event, *_: {"to": event.to}),
    ReplyFailed: ("reply_failed", _encode_failure),
    RunEnded: ("run_ended", _encode_end),
    PhaseEnded: ("phase_ended", lambda step, *_: {"name": step.name, "missing": list(step.missing)}),
    TreeSnapshot: ("tree_snapshot", lambda step, *_: {"tree": step.tree}),
    Resumed: ("resumed", lambda *_: {}),
}
