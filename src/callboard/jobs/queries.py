"""What the store and a claim say to the database, each within a transaction of theirs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import structs
from sqlalchemy import Connection, Update, bindparam, delete, func, insert, literal, select, update

from callboard.core import ApprovalAnswered
from callboard.errors import CallerError
from callboard.execution.approval import mention_earlier
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import END_STATES, Approval, CallIntent, DurableJob, DurableState, JobSummary
from callboard.jobs.notifications import add_notification
from callboard.jobs.rows import from_rows, to_row
from callboard.jobs.tables import PARTS, approvals, documents, entries, insert_once, jobs, open_calls

SUMMARY: Final = JobSummary.__struct_fields__
DOCUMENT: Final = ("description", "input", "memory", "output")
HINT: Final = "callboard jobs list shows them"

_LIST = select(*[jobs.c[name] for name in SUMMARY]).order_by(jobs.c.id.desc())
_WHOLE = select(
    jobs.c.key,
    jobs.c.fence,
    jobs.c.failures,
    *[jobs.c[name] for name in SUMMARY],
    *[documents.c[name] for name in DOCUMENT],
).join(documents, documents.c.job == jobs.c.key)
_BY_NAME = _WHOLE.where(jobs.c.id == bindparam("id"))
_LOCKED = _BY_NAME.with_for_update(of=jobs)
_KEY = select(jobs.c.key).where(jobs.c.id == bindparam("id"))
_ENTRIES = (
    select(entries.c.number, entries.c.round, entries.c.line)
    .where(entries.c.job == bindparam("job"), entries.c.number > bindparam("after"))
    .order_by(entries.c.number)
    .limit(bindparam("most"))
)
_ANSWERS = (
    select(entries.c.number, entries.c.round, entries.c.line)
    .where(entries.c.job == bindparam("job"), entries.c.line.startswith('{"type":"approval_answered"'))
    .order_by(entries.c.number)
)
_OPEN_CALLS = select(open_calls).where(open_calls.c.job == bindparam("job")).order_by(open_calls.c.begun_at)
_APPROVALS = select(approvals).where(approvals.c.job == bindparam("job")).order_by(approvals.c.position)

_OPEN_STATES: Final = ("pending", "running", "waiting")
_COUNT_OPEN = select(jobs.c.state, func.count()).where(jobs.c.state.in_(_OPEN_STATES)).group_by(jobs.c.state)


def count_open_jobs(connection: Connection) -> dict[str, int]:
    """How many jobs are in each state that is no end; an index of states bounds the work by their number."""
    counts = {str(state): int(count) for state, count in connection.execute(_COUNT_OPEN)}
    return {state: counts.get(state, 0) for state in _OPEN_STATES}


# To make a statement costs more than to execute it, and the runs of a job change the same few columns again and again.
@cache
def _update_job(names: tuple[str, ...]) -> Update:
    fenced = update(jobs).where(jobs.c.key == bindparam("its_key"), jobs.c.fence == bindparam("its_fence"))
    return fenced.values({name: bindparam(name) for name in (*names, "fence")})


@cache
def _update_document(names: tuple[str, ...]) -> Update:
    its = update(documents).where(documents.c.job == bindparam("its_job"))
    return its.values({name: bindparam(name) for name in names})


class StoredJob(NamedTuple):
    """A job as it is stored: its key in all tables, and the fence that guards its writes."""

    key: int
    fence: int
    job: DurableJob
    failures: int = 0
    """How many runners of the segment, one after another, died or failed and came no further."""


def find_job(connection: Connection, identifier: str) -> DurableJob:
    """The job of this name, or the only one whose name begins so. Raises CallerError."""
    for job in from_rows(connection.execute(_BY_NAME, {"id": identifier}), DurableJob):
        return job
    begins = _WHOLE.where(jobs.c.id.startswith(identifier, autoescape=True)).limit(2)
    some = list(from_rows(connection.execute(begins), DurableJob)) if identifier else []
    if len(some) != 1:
        raise CallerError("several jobs begin so" if some else "no such job", path=identifier, hint=HINT)
    return some[0]


def find_names(connection: Connection, identifier: str) -> list[str]:
    """The job of this name, else two at most of those whose names begin so."""
    if connection.scalar(_KEY, {"id": identifier}) is not None:
        return [identifier]
    begins = select(jobs.c.id).where(jobs.c.id.startswith(identifier, autoescape=True)).limit(2)
    return list(connection.scalars(begins)) if identifier else []


def lock_job(connection: Connection, identifier: str) -> StoredJob | None:
    """The job of this name, None where there is none; nobody else changes it until the transaction ends."""
    result = connection.execute(_LOCKED, {"id": identifier}).freeze()
    row = result().one_or_none()
    return None if row is None else StoredJob(row.key, row.fence, next(from_rows(result(), DurableJob)), row.failures)


def list_jobs(connection: Connection, states: Collection[DurableState], before: str, limit: int) -> list[JobSummary]:
    """The newest first."""
    query = _LIST.limit(limit)
    if states:
        query = query.where(jobs.c.state.in_(sorted(states)))
    if before:
        query = query.where(jobs.c.id < before)
    return list(from_rows(connection.execute(query), JobSummary))


def add_job(connection: Connection, job: DurableJob) -> int:
    """The key of a new job."""
    fields = {name: getattr(job, name) for name in SUMMARY}
    added = insert(jobs).returning(jobs.c.key)
    key: int = connection.execute(added, to_row({**fields, "fence": 0})).scalar_one()
    connection.execute(insert(documents), to_row({"job": key, **{name: getattr(job, name) for name in DOCUMENT}}))
    return key


def set_failures(connection: Connection, key: int, failures: int) -> None:
    connection.execute(update(jobs).where(jobs.c.key == key).values(failures=failures))


def change_job(connection: Connection, stored: StoredJob, job: DurableJob, fence: int) -> bool:
    """Write what differs from a stored job, and its fence, if the fence is the stored one. Whether it was."""
    changed = {name: getattr(job, name) for name in SUMMARY if getattr(job, name) != getattr(stored.job, name)}
    row = {**to_row(changed), "fence": fence, "its_key": stored.key, "its_fence": stored.fence}
    if connection.execute(_update_job(tuple(changed)), row).rowcount != 1:
        return False
    noted = {name: value for name in DOCUMENT if (value := getattr(job, name)) is not getattr(stored.job, name)}
    if noted:
        connection.execute(_update_document(tuple(noted)), {**to_row(noted), "its_job": stored.key})
    add_notification(connection, stored.key, stored.job, job)
    return True


def add_entries(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Rows of `entries`; those of a number that is there already are left out."""
    if rows:
        connection.execute(insert_once(entries, connection), rows)


def copy_entries(connection: Connection, source: int, target: int, rounds: int) -> int:
    """Copy the entries of the first rounds to another job, with the calls that are open among them. How many entries."""
    copied = select(literal(target), entries.c.number, entries.c.round, entries.c.line).where(
        entries.c.job == source, entries.c.round <= rounds
    )
    connection.execute(insert(entries).from_select(["job", "number", "round", "line"], copied))
    count: int = connection.scalar(select(func.count()).where(entries.c.job == target)) or 0
    others = [column for column in open_calls.c if column.name != "job"]
    begun = select(literal(target), *others).where(open_calls.c.job == source, open_calls.c.entries <= count)
    connection.execute(insert(open_calls).from_select(["job", *[each.name for each in others]], begun))
    return count


def read_entries(connection: Connection, identifier: str, after: int, limit: int) -> list[JobEntry]:
    """Raises CallerError for a job that is not there."""
    rows = connection.execute(_ENTRIES, {"job": key_of(connection, identifier), "after": after, "most": limit})
    return [JobEntry(*row) for row in rows]


def key_of(connection: Connection, identifier: str) -> int:
    """Raises CallerError for a job that is not there."""
    key: int | None = connection.scalar(_KEY, {"id": identifier})
    if key is None:
        raise CallerError("no such job", path=identifier, hint=HINT)
    return key


def read_open_calls(connection: Connection, key: int) -> list[CallIntent]:
    return list(from_rows(connection.execute(_OPEN_CALLS, {"job": key}), CallIntent))


def read_approvals(connection: Connection, key: int) -> list[Approval]:
    return list(from_rows(connection.execute(_APPROVALS, {"job": key}), Approval))


def read_answers(connection: Connection, key: int, call_id: str | None = None) -> list[ApprovalAnswered]:
    """The answers that people gave to a job, or to its calls of this identifier, in order."""
    lines = connection.execute(_ANSWERS, {"job": key}).all()
    answers = [JobEntry(*line).item for line in lines]
    return [
        each
        for each in answers
        if isinstance(each, ApprovalAnswered) and (call_id is None or each.invocation.identifier == call_id)
    ]


def ask(connection: Connection, key: int, questions: Sequence[Approval], now: datetime) -> None:
    """Open approvals and questions, and say of a call that the same one was allowed before.

    The rows of former questions about the same calls are replaced; the entries keep their answers.
    """
    if not questions:
        return
    answers = read_answers(connection, key)
    questions = [
        each
        if each.is_question
        else structs.replace(each, why=mention_earlier(answers, each.name, each.arguments, each.why))
        for each in questions
    ]
    again = approvals.c.call_id.in_([each.call_id for each in questions])
    connection.execute(delete(approvals).where(approvals.c.job == key, again))
    rows = [
        {**structs.asdict(each), "job": key, "position": position, "asked_at": now, "verdict": "", "token": ""}
        for position, each in enumerate(questions)
    ]
    connection.execute(insert(approvals), [to_row(row) for row in rows])


def forget_open_approvals(connection: Connection, key: int) -> None:
    connection.execute(delete(approvals).where(approvals.c.job == key, approvals.c.verdict == ""))


def begin_calls(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Rows of `open_calls`; those that are there already are left out."""
    if rows:
        connection.execute(insert_once(open_calls, connection), rows)


def end_calls(connection: Connection, key: int, call_ids: Sequence[str]) -> None:
    if call_ids:
        connection.execute(delete(open_calls).where(open_calls.c.job == key, open_calls.c.call_id.in_(call_ids)))


def set_entries(connection: Connection, key: int, job: DurableJob, count: int) -> DurableJob:
    """The job with this many entries."""
    connection.execute(update(jobs).where(jobs.c.key == key), {"entries": count})
    return structs.replace(job, entries=count)


def delete_jobs(connection: Connection, keys: Sequence[int]) -> None:
    """Delete jobs with all that belongs to them."""
    for table in PARTS:
        connection.execute(delete(table).where(table.c.job.in_(keys)))
    connection.execute(delete(jobs).where(jobs.c.key.in_(keys)))


def find_old(connection: Connection, oldest: int, queues: Collection[str] | None, limit: int) -> list[str]:
    """The ids of jobs of these queues, or of all, that ended before, the oldest first."""
    ended = jobs.c.state.in_(sorted(END_STATES))
    query = select(jobs.c.id).where(ended, jobs.c.completed_at < oldest)
    query = query if queues is None else query.where(jobs.c.queue.in_(sorted(queues)))
    return list(connection.scalars(query.order_by(jobs.c.completed_at, jobs.c.id).limit(limit)))
