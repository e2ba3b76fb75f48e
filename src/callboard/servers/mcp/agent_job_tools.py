"""The coding agents as tools whose calls are jobs, and the tools for the jobs of a client.

A client gets the job at once, in its current state, and uses `get_job`, `answer_job` and `cancel_job` to follow it.

Laws: the model that calls these tools cannot allow anything. Approvals go to the client's user, by elicitation. If the
client cannot ask, a person answers with `callboard jobs`. The user sees everything that will run, with invisible
characters escaped; only a clear yes allows it. The key of an elicitation belongs to one question of one job with the
digest of what will run, in every process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import mcp_types as types

from callboard.jobs.job import Approval
from callboard.text.display import escape
from callboard.tools import Context, Ensemble, Invoker

if TYPE_CHECKING:
    from callboard.servers.mcp.agent_jobs import AgentJobs

_ALLOW: Final = "allow"
_REASON: Final = "reason"
_ANSWER: Final = "answer"


class JobAnswer(NamedTuple):
    """The answer of a person: the arguments of `DurableStore.answer`."""

    verdict: Literal["allow", "deny"]
    reason: str = ""
    text: str = ""


def question_key(job_id: str, question: Approval) -> str:
    """Return the key by which a client finds and answers the question. Keys are never reused."""
    parts = (job_id, question.call_id, question.digest, f"{question.asked_at}")
    return f"question-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def encode_question(question: Approval) -> types.ElicitRequest:
    """Return the elicitation of a question: a yes or no with a reason for an approval, otherwise a text."""
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


MAX_WAIT_SECONDS: Final = 120
LONGEST_ANSWER: Final = 86_400.0
"""Maximum seconds that a user may take to answer."""
MAX_TEXT: Final = 100_000
"""Maximum characters of a text from a client."""


class AgentTool(NamedTuple):
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    """Properties of the arguments. The first one is required."""


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": MAX_TEXT}


def _revision(description: str) -> dict[str, Any]:
    # No value may look like an option or a path to git.
    return {"type": "string", "description": description, "pattern": r"^[^-\s:][^\s:]*$", "maxLength": 250}


_ASYNCHRONOUS: Final = (
    "It is a job that runs on by itself, for minutes: the answer names it, and get_job tells its state."
)
AGENTS: Final[Mapping[str, AgentTool]] = {
    "build": AgentTool(
        f"A coding agent that builds something in the repository, tests it and leaves it on a new branch. {_ASYNCHRONOUS}",
        {"description": _text("What is to be built")},
    ),
    "debug": AgentTool(
        "A coding agent that mends a fault in the repository, for which tests fail, and leaves it on a new branch. "
        f"{_ASYNCHRONOUS}",
        {"symptoms": _text("What goes wrong"), "logs": _text("The end of a log that shows it")},
    ),
    "review": AgentTool(
        f"A coding agent that reviews a branch of the repository and lists what is wrong. It changes nothing. "
        f"{_ASYNCHRONOUS}",
        {
            "branch": _revision("The branch that is reviewed"),
            "base": _revision("What it is compared with; by default the repository's HEAD"),
        },
    ),
    "triage": AgentTool(
        "A coding agent that says what a report is about: its likely cause, how severe it is, what to do first. It "
        f"changes nothing. {_ASYNCHRONOUS}",
        {"description": _text("What was reported"), "logs": _text("The end of a log that shows it")},
    ),
}
"""The agents by name. The name is also the kind of their jobs."""

_JOB: Final = {"type": "string", "description": "The whole name of the job"}


def _schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
    }


_GET: Final = _schema(
    {
        "job": _JOB,
        "wait_seconds": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_WAIT_SECONDS,
            "default": 30,
            "description": "How long to wait for its end, or until it asks something",
        },
    },
    "job",
)
_ANSWER_SCHEMA: Final = _schema(
    {
        "job": _JOB,
        "call": {"type": "string", "description": "Which of those that it asks about"},
        "digest": {"type": "string", "default": "", "description": "As get_job gave it for this call"},
        "verdict": {"enum": ["allow", "deny"], "default": "allow"},
        "text": {"type": "string", "default": "", "maxLength": MAX_TEXT, "description": "The answer to a question"},
        "reason": {"type": "string", "default": "", "maxLength": MAX_TEXT, "description": "Why it is denied"},
    },
    "job",
    "call",
)


def job_ensemble(jobs: AgentJobs) -> Ensemble:
    """Return the tools of the agents, and the tools for their jobs."""
    begun = [_agent_invoker(jobs, name, AGENTS[name]) for name in jobs.agents]
    return Ensemble(
        "agents",
        [
            *begun,
            Invoker(
                "get_job",
                jobs.get_job,
                _GET,
                description="The state of a job, what it asks, and when it has ended its result. It waits for its end.",
                timeout=MAX_WAIT_SECONDS * 2,
                idempotent=True,
            ),
            Invoker(
                "answer_job",
                jobs.answer_job,
                _ANSWER_SCHEMA,
                description="Answers what a job asks. The user is asked before a call is allowed.",
                timeout=LONGEST_ANSWER,
            ),
            Invoker(
                "cancel_job",
                jobs.cancel_job,
                _schema({"job": _JOB}, "job"),
                description="Ends a job: its model call, its commands and their processes.",
                idempotent=True,
            ),
        ],
    )


def _agent_invoker(jobs: AgentJobs, name: str, agent: AgentTool) -> Invoker:
    async def begin(_: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await jobs.describe(await jobs.submit(name, arguments))

    schema = _schema(agent.properties, next(iter(agent.properties)))
    return Invoker(name, begin, schema, description=agent.description)
