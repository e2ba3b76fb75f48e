"""Approvals and questions as the interrupts of AG-UI 1.0, and the answers to them.

An interrupt's identifier is that of its job, its call, and the digest of what would run: so an answer finds the job, and
is about what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from callboard.errors import CallerError
from callboard.jobs.job import Approval

_APPROVAL_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Arguments in the place of the model's own."},
        "reason": {"type": "string", "description": "Why not; the model reads it."},
    },
    "required": ["approved"],
}
_ANSWER_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


class InterruptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to an interrupt, as `DurableStore.answer` takes it."""

    call_id: str
    digest: str
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    text: str = ""
    edited: dict[str, Any] | None = None


def interrupt_id(approval: Approval, job_id: str) -> str:
    """What an interrupt is called."""
    return f"{job_id}/{approval.call_id}:{approval.digest}"


def job_of_interrupt(identifier: str) -> str:
    """The job whose interrupt is called so; a text that is none names no job."""
    return identifier.partition("/")[0]


def make_interrupt(approval: Approval, job_id: str, tool_call_id: str) -> dict[str, Any]:
    """The interrupt of an approval or a question; `tool_call_id` is what the client knows its call by."""
    interrupt: dict[str, Any] = {
        "id": interrupt_id(approval, job_id),
        "reason": "input_required" if approval.is_question else "tool_call",
        "message": approval.why,
        "toolCallId": tool_call_id,
        "responseSchema": _ANSWER_SCHEMA if approval.is_question else _APPROVAL_SCHEMA,
    }
    subject = {"name": approval.name, "arguments": approval.arguments, "digest": approval.digest}
    return {**{name: value for name, value in interrupt.items() if value}, "metadata": {"callboard": subject}}


def read_answer(approval: Approval, status: str, payload: Any, path: str) -> InterruptAnswer:
    """The answer of a `resume` entry. Only the value true allows a call.

    Args:
        approval: What the interrupt asked.
        status: "resolved", or "cancelled" where nobody answered.
        payload: The answer.
        path: The entry, for errors.

    Raises:
        CallerError: The payload is none that the interrupt asked for.
    """
    call_id, digest = approval.call_id, approval.digest
    if status == "cancelled":
        return InterruptAnswer(call_id=call_id, digest=digest, verdict="deny", reason="nobody answered")
    if approval.is_question:
        text = payload.get("text") if isinstance(payload, dict) else payload
        if not isinstance(text, str):
            raise CallerError("an answer is wanted", path=f"{path}.payload", hint='give {"text": "..."}')
        return InterruptAnswer(call_id=call_id, digest=digest, text=text)
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        hint = 'give {"approved": true} or {"approved": false}'
        raise CallerError("whether the call may run is wanted", path=f"{path}.payload", hint=hint)
    edited, reason = payload.get("editedArgs"), payload.get("reason", "")
    if edited is not None and not isinstance(edited, dict):
        raise CallerError("arguments are an object", path=f"{path}.payload.editedArgs")
    if not isinstance(reason, str):
        raise CallerError("a reason is a text", path=f"{path}.payload.reason")
    if not payload["approved"]:
        return InterruptAnswer(call_id=call_id, digest=digest, verdict="deny", reason=reason)
    return InterruptAnswer(call_id=call_id, digest=digest, edited=edited)
