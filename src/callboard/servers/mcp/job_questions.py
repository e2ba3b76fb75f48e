"""What a job asks a person, as an elicitation for the user of an MCP client, and the user's answer.

Laws: the user sees all that will run, with escapes, so that nothing in it is hidden; whatever is no clear yes is a no; the
key of an elicitation stands for one question of one job with the digest of what will run, in every process.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, Literal, NamedTuple

import mcp_types as types

from callboard.jobs.job import Approval
from callboard.text.display import escape

_ALLOW: Final = "allow"
_REASON: Final = "reason"
_ANSWER: Final = "answer"


class JobAnswer(NamedTuple):
    """What a person said; the arguments of `DurableStore.answer`."""

    verdict: Literal["allow", "deny"]
    reason: str = ""
    text: str = ""


def question_key(job_id: str, question: Approval) -> str:
    """The key under which a client finds the question, and answers it. No other question ever has it."""
    parts = (job_id, question.call_id, question.digest, f"{question.asked_at}")
    return f"question-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def encode_question(question: Approval) -> types.ElicitRequest:
    """The elicitation of a question: an approval is a yes or a no, with a reason for the model; else a text."""
    if question.is_question:
        properties: dict[str, Any] = {_ANSWER: {"type": "string", "title": "Your answer"}}
        schema = {"type": "object", "properties": properties, "required": [_ANSWER]}
        return _elicitation(escape(question.why or question.name, keep="\n"), schema)
    properties = {
        _ALLOW: {"type": "boolean", "title": f"Run {escape(question.name)}", "default": False},
        _REASON: {"type": "string", "title": "Why not"},
    }
    why = escape(question.why, keep="\n")
    message = f"{why}: {escape(question.name)} {json.dumps(question.arguments)}"
    return _elicitation(message, {"type": "object", "properties": properties, "required": [_ALLOW]})


def decode_answer(question: Approval, result: types.ElicitResult) -> JobAnswer:
    """What the user's answer to the elicitation means."""
    content = (result.content or {}) if result.action == "accept" else {}
    if question.is_question:
        text = content.get(_ANSWER)
        return JobAnswer("allow", text=text) if isinstance(text, str) else JobAnswer("deny", "the user gave no answer")
    if content.get(_ALLOW) is True:
        return JobAnswer("allow")
    reason = content.get(_REASON)
    return JobAnswer("deny", reason if isinstance(reason, str) and reason else "the user said no")


def _elicitation(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))
