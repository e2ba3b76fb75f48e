"""What the page of one job shows around its log: facts, what waits for a person, what can be done, rounds, the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import json, to_builtins

from callboard.jobs.job import END_STATES, QUEUE, Approval, DurableJob, JobSummary
from callboard.profiles import format_cost
from callboard.servers.board.entry_view import DiffLine, show_arguments, split_diff
from callboard.servers.board.templating import render
from callboard.text.display import display
from callboard.text.truncate import truncate

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

RESUMABLE: Final = END_STATES - {"completed"}
MAX_TEXT: Final = 100_000
"""Characters of a text that a job was given, or handed over."""
MAX_DIFF: Final = 1_000_000
"""Characters of a diff."""
MAX_DIFF_LINES: Final = 3000
MAX_ANSWERED: Final = 3
"""Answered questions that are shown above the open ones."""
_MAX_FACT: Final = 1000
MOST_ROUNDS: Final = 500
"""Rounds that the timeline shows, the last ones."""
_LONG: Final = frozenset({"text", "summary", "diff"})


class JobFact(NamedTuple):
    """A row of facts. `moment` is a time whose age is shown."""

    name: str
    text: str
    moment: datetime | None = None
    link: str = ""


def describe_state(job: JobSummary) -> str:
    """Why a job is in its state, and for whom it waits."""
    waits = f"waits for {_WAITS.get(job.waits_for, job.waits_for)}" if job.state == "waiting" and job.waits_for else ""
    if job.state == "pending":
        waits = "waits for a worker"
    if job.cancel_requested and job.state == "running":
        waits = "is being cancelled"
    return "; ".join([display(each, _MAX_FACT) for each in (waits, job.error or job.reason) if each])


def find_place(base: str, job: str) -> str:
    """The path of a job's page on a board at `base`."""
    return f"{base}/jobs/{job}"


def look_subject(job: str, call: str, digest: str) -> str:
    """The question that a look token is for."""
    return f"{job} {call} {digest}"


async def render_parts(
    board: Board,
    common: Mapping[str, Any],
    job: JobSummary,
    approvals: Sequence[Approval],
    *,
    is_answered: bool,
) -> dict[str, Markup]:
    """The parts of the page that change while the job runs, by the ids of their elements.

    `common` is what every template gets. A stream keeps its own, so that what has not changed is rendered as it was.
    `is_answered` is for the page that follows an answer: it has no button near that of the answer, and links to the next question.
    """
    store = board.jobs.store
    values = {**common, "job": job, "place": find_place(common["base"], job.id), "key": job.updated_at.timestamp()}
    approvals = sorted(approvals, key=lambda each: each.asked_at or job.created_at)
    opened = [
        (each, show_arguments(each.arguments), look_subject(job.id, each.call_id, each.digest))
        for each in approvals
        if not each.verdict and job.state == "waiting"
    ]
    decided = [each for each in approvals if each.verdict]
    answers = {each.invocation.identifier: each for each in await store.read_answers(job.id)} if decided else {}
    answered = [(each, answers.get(each.call_id)) for each in decided[-MAX_ANSWERED:]]
    outcome = read_outcome(await store.get(job.id)) if job.has_ended else None
    rounds = await store.rounds(job.id)
    actions = [
        ("cancel", "Cancel", not job.has_ended),
        ("resume", "Resume", job.state in RESUMABLE),
        ("retry", "Retry as a new job", job.has_ended),
        ("keep", "Keep as a test", job.has_ended and common["can_keep"]),
    ]
    return {
        "facts": render("job_facts.html", {**values, "facts": list_facts(job), "why": describe_state(job)}),
        "waits": render(
            "job_waits.html", {**values, "answered": answered, "opened": opened, "is_answered": is_answered}
        ),
        "actions": render("job_actions.html", {**values, "actions": [] if is_answered else actions}),
        "outcome": render("job_outcome.html", {**values, "outcome": outcome}),
        "rounds": render("job_rounds.html", {**values, "rounds": rounds[-MOST_ROUNDS:], "most_forked": job.rounds}),
    }


def list_facts(job: JobSummary) -> list[JobFact]:
    """What there is to know of a job in a few words each."""
    usage = job.usage
    parent, _, parent_round = job.parent.partition("@")
    rows = [
        JobFact("Kind", job.kind),
        JobFact("Phase", job.phase),
        JobFact("Model", job.model),
        JobFact("Rounds", f"{job.rounds:,}"),
        JobFact("Calls", f"{job.calls:,}"),
        JobFact("Tokens in", f"{usage['input']:,}" if usage.get("input") else ""),
        JobFact("of them cached", f"{usage['cached']:,}" if usage.get("cached") else ""),
        JobFact("Tokens out", f"{usage['output']:,}" if usage.get("output") else ""),
        JobFact("of them reasoning", f"{usage['reasoning']:,}" if usage.get("reasoning") else ""),
        JobFact("Cost", format_cost(job.cost)),
        JobFact("Made", "", job.created_at),
        JobFact("Begun", "", job.started_at),
        JobFact("Ended", "", job.completed_at),
        JobFact("Directory", job.directory),
        JobFact("Queue", "" if job.queue == QUEUE else job.queue),
        JobFact("Attempts", str(job.attempts) if job.attempts > 1 else ""),
        JobFact("Schedule", job.schedule),
        JobFact("Made from", f"{parent} at round {parent_round}" if parent else "", link=parent),
    ]
    return [row._replace(text=truncate(row.text, _MAX_FACT)) for row in rows if row.text or row.moment]


class JobOutcome(NamedTuple):
    """What a job handed over: its answer, its diff, and the rest as rows."""

    text: str
    diff: Sequence[DiffLine]
    hidden: int
    """Lines of the diff that are not shown."""
    rows: Sequence[JobFact]


def read_outcome(job: DurableJob) -> JobOutcome | None:
    """What a job handed over; None where it has no output."""
    output = job.output
    if not output:
        return None
    diff = str(output.get("diff") or "")
    lines = split_diff(diff[:MAX_DIFF]) if diff else []
    rows = [
        JobFact(name.replace("_", " ").capitalize(), truncate(_describe(value), MAX_TEXT))
        for name, value in output.items()
        if value not in (None, "", [], {}) and name not in _LONG
    ]
    text = truncate(str(output.get("text") or output.get("summary") or ""), MAX_TEXT)
    hidden = max(0, len(lines) - MAX_DIFF_LINES) + diff.count("\n", MAX_DIFF)
    return JobOutcome(text, lines[:MAX_DIFF_LINES], hidden, rows)


def _describe(value: Any, levels: int = 5) -> str:
    """A value in words; what is nested deeper as JSON."""
    match value:
        case str():
            return value
        case list() | dict() if not levels:
            return json.encode(value).decode()
        case list():
            return "\n".join([_describe(each, levels - 1) for each in value])
        case dict():
            fields = [
                f"{name}: {_describe(each, levels - 1)}" for name, each in value.items() if each not in (None, "")
            ]
            return ("\n" if any("\n" in each for each in fields) else ", ").join(fields)
        case _:
            return str(to_builtins(value))


_WAITS: Final = {
    "approval": "an approval",
    "question": "an answer",
    "rate_limit": "a provider's rate limit",
}
