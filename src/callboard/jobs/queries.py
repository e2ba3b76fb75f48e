"""Read the jobs of a database. The functions are shared by the store and claims, and run within their transactions."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import structs
from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    Update,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)

from callboard.core import ApprovalAnswered
from callboard.errors import CallerError
from callboard.execution.approval import mention_earlier
from callboard.jobs.database import Database
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import QUEUE, Approval, DurableJob, DurableState, JobSummary
from callboard.jobs.notifications import add_notification
from callboard.jobs.tables import approvals, documents, entries, from_rows, insert_once, jobs, open_calls, to_row
from callboard.text.surrogates import encode_json

SUMMARY: Final = JobSummary.__struct_fields__
DOCUMENT: Final = ("description", "input", "memory", "output")

_SUMMARIES: Final = select(*[jobs.c[name] for name in SUMMARY])
_WHOLE: Final = select(
    jobs.c.key,
    jobs.c.fence,
    jobs.c.failures,
    *[jobs.c[name] for name in SUMMARY],
    *[documents.c[name] for name in DOCUMENT],
).join(documents, documents.c.job == jobs.c.key)
_ONE: Final = _SUMMARIES.where(jobs.c.id == bindparam("id"))
_BY_NAME: Final = _WHOLE.where(jobs.c.id == bindparam("id"))
_LOCKED: Final = _BY_NAME.with_for_update(of=jobs)
_KEY: Final = select(jobs.c.key).where(jobs.c.id == bindparam("id"))
_LINES: Final = select(entries.c.number, entries.c.round, entries.c.line).where(entries.c.job == bindparam("job"))
_ENTRIES: Final = (
    _LINES.where(entries.c.number > bindparam("after")).order_by(entries.c.number).limit(bindparam("limit"))
)
_ANSWERS: Final = _LINES.where(entries.c.line.startswith('{"type":"approval_answered"')).order_by(entries.c.number)
_ROUNDS: Final = (
    select(entries.c.round, func.min(entries.c.number), func.count())
    .where(entries.c.job == bindparam("job"))
    .group_by(entries.c.round)
    .order_by(entries.c.round)
)
_APPROVALS: Final = select(approvals).where(approvals.c.job == bindparam("job")).order_by(approvals.c.position)
_QUESTIONS: Final = (
    select(
        *[approvals.c[name] for name in Approval.__struct_fields__],
        jobs.c.id.label("job_id"),
        jobs.c.title.label("job_title"),
    )
    .join(jobs, jobs.c.key == approvals.c.job)
    .where(jobs.c.state == "waiting", approvals.c.verdict == "")
    .order_by(approvals.c.asked_at, approvals.c.job, approvals.c.position)
    .limit(bindparam("limit"))
)
_STATES: Final = select(jobs.c.state, func.count()).group_by(jobs.c.state)
_LAST_CHANGE: Final = select(func.count(), func.max(jobs.c.updated_at))
_CHOICES: Final = 200
"""Maximum kinds and maximum models to filter by."""
_LONGEST_CHOICE: Final = 300
"""Maximum characters of a kind or model to filter by."""
_OPEN_STATES: Final = ("pending", "running", "waiting")


class StoredJob(NamedTuple):
    """A stored job, its key in all tables, and the fence that guards its writes."""

    key: int
    fence: int
    job: DurableJob
    failures: int = 0
    """Number of runners of the segment, in a row, that died or failed without progress."""


class OpenQuestion(Approval, frozen=True, kw_only=True):
    """An open approval or question, with its job."""

    job_id: str
    job_title: str


class EntryChange(NamedTuple):
    """An entry of a fork that differs: its number, its line, and the fork's last entry."""

    number: int
    line: str
    last: int


JobOrder: TypeAlias = Literal["newest", "longest", "most expensive"]


class JobFilter(NamedTuple):
    """The jobs of a list. An empty field selects all jobs."""

    states: Collection[DurableState] = ()
    kind: str = ""
    """A kind; for the jobs of one agent, the kind and the queue, as in `JobChoices`."""
    model: str = ""
    day: date | None = None
    """Day of the creation, in UTC."""
    least_cost: float = 0.0
    """Minimum cost in US dollars."""
    text: str = ""
    """Part of the id, title or prompt, or the name of a tool that was called."""

    def conditions(self) -> list[ColumnElement[bool]]:
        kind, _, queue = self.kind.partition(" ")
        name = f'%"name":{_escape(encode_json(self.text).decode())}%'
        words = f"%{_escape(self.text)}%"
        documented = exists().where(documents.c.job == jobs.c.key, documents.c.description.ilike(words, escape="\\"))
        calls = exists().where(
            entries.c.job == jobs.c.key,
            entries.c.line.startswith('{"role":"invocation"'),
            entries.c.line.ilike(name, escape="\\"),
        )
        rows = [
            (self.states, jobs.c.state.in_(sorted(self.states))),
            (kind, jobs.c.kind == kind),
            (queue, jobs.c.queue == queue),
            (self.model, jobs.c.model == self.model),
            (self.day, jobs.c.id.startswith(f"{self.day:%Y%m%d}-") if self.day else true()),
            (self.least_cost, jobs.c.cost >= self.least_cost),
            (
                self.text,
                or_(*[each.ilike(words, escape="\\") for each in (jobs.c.id, jobs.c.title)], documented, calls),
            ),
        ]
        return [condition for value, condition in rows if value]


class JobChoices(NamedTuple):
    """The kinds and models of a database's jobs. Each agent is a kind: the kind, a space and its queue."""

    kinds: Sequence[str]
    models: Sequence[str]


class JobFigures(NamedTuple):
    """The number of jobs by state, of all time and of a day, and the day's cost in US dollars."""

    states: Mapping[DurableState, int]
    today: Mapping[DurableState, int]
    cost: float


class JobRound(NamedTuple):
    """A round of a job, its first entry and its number of entries. Round 0 has the job's initial entries."""

    number: int
    first: int
    entries: int


_ALL_JOBS: Final = JobFilter()
_ORDERS: Final[Mapping[JobOrder, Sequence[ColumnElement[Any]]]] = {
    "newest": (),
    "longest": ((func.coalesce(jobs.c.completed_at, jobs.c.updated_at) - jobs.c.started_at).desc().nulls_last(),),
    "most expensive": (jobs.c.cost.desc().nulls_last(),),
}


def _escape(text: str) -> str:
    """Escape a text for LIKE."""
    return re.sub(r"[\\%_]", r"\\\g<0>", text)


class JobReader:
    """Read access to the jobs of a database. Methods for one job raise CallerError if it does not exist."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, identifier: str) -> DurableJob:
        """Return the job with this id, or the only job whose id starts with it."""

        def find(connection: Connection) -> DurableJob:
            for job in from_rows(connection.execute(_BY_NAME, {"id": identifier}), DurableJob):
                return job
            begins = _WHOLE.where(jobs.c.id.startswith(identifier, autoescape=True)).limit(2)
            some = list(from_rows(connection.execute(begins), DurableJob)) if identifier else []
            if len(some) != 1:
                raise no_such_job(identifier, "several jobs begin so" if some else "no such job")
            return some[0]

        return await self.database.read(find)

    async def list(
        self,
        chosen: JobFilter = _ALL_JOBS,
        *,
        order: JobOrder = "newest",
        offset: int = 0,
        limit: int = 100,
    ) -> Sequence[JobSummary]:
        """Return the chosen jobs after the first `offset` ones, by default the newest first.

        A text is searched in the prompts and calls of all jobs, which takes 0.1 s for 10,000 jobs.
        """
        query = _SUMMARIES.where(*chosen.conditions()).order_by(*_ORDERS[order], jobs.c.id.desc())
        query = query.offset(offset).limit(limit)
        return await self.database.read(lambda connection: [*from_rows(connection.execute(query), JobSummary)])

    async def read_choices(self) -> JobChoices:
        """Return what a list of jobs can be filtered by."""
        agent = case((jobs.c.queue.startswith(f"{QUEUE}-agent:"), " " + jobs.c.queue), else_="")
        kinds, models = (
            select(each).where(func.length(each).between(1, _LONGEST_CHOICE)).distinct().order_by(each).limit(_CHOICES)
            for each in (jobs.c.kind + agent, jobs.c.model)
        )
        return await self.database.read(
            lambda connection: JobChoices(connection.scalars(kinds).all(), connection.scalars(models).all())
        )

    async def read_figures(self, day: date) -> JobFigures:
        """Return figures of all jobs, and of the jobs of a day (UTC)."""
        of_day = jobs.c.id.startswith(f"{day:%Y%m%d}-")
        today = select(jobs.c.state, func.count(), func.sum(jobs.c.cost)).where(of_day).group_by(jobs.c.state)

        def read(connection: Connection) -> JobFigures:
            rows = connection.execute(today).all()
            states = {row[0]: row[1] for row in connection.execute(_STATES)}
            return JobFigures(states, {row[0]: row[1] for row in rows}, sum(row[2] or 0.0 for row in rows))

        return await self.database.read(read)

    async def read_costs(self, first: date) -> Sequence[tuple[str, str, float]]:
        """Return the cost of each day since `first` and each model, in US dollars. Days are written as 20261128."""
        day = func.substr(jobs.c.id, 1, 8)
        query = select(day, jobs.c.model, func.sum(jobs.c.cost)).where(jobs.c.id >= f"{first:%Y%m%d}", jobs.c.cost > 0)
        grouped = query.group_by(day, jobs.c.model)
        return await self.database.read(lambda connection: [(*row,) for row in connection.execute(grouped)])

    async def read_entries(self, identifier: str, after: int = 0, limit: int = sys.maxsize) -> Sequence[JobEntry]:
        """Return the entries after number `after`, in order."""

        def read(connection: Connection) -> list[JobEntry]:
            its = {"job": key_of(connection, identifier), "after": after, "limit": limit}
            return [JobEntry(*row) for row in connection.execute(_ENTRIES, its)]

        return await self.database.read(read)

    async def read_answers(self, identifier: str) -> Sequence[ApprovalAnswered]:
        """Return people's answers to a job, in order."""
        return await self.database.read(lambda connection: read_answers(connection, key_of(connection, identifier)))

    async def read_approvals(self, identifier: str) -> Sequence[Approval]:
        """Return the approvals and questions of a job, in order. Open ones have no verdict."""
        return await self.database.read(lambda connection: read_approvals(connection, key_of(connection, identifier)))

    async def find_cancelled(self, identifiers: Collection[str]) -> set[str]:
        """Return the running jobs among `identifiers` that should be cancelled."""
        query = select(jobs.c.id).where(jobs.c.id.in_(sorted(identifiers)), jobs.c.cancel_requested)
        return set(await self.database.read(lambda connection: connection.scalars(query).all()))

    async def read_summary(self, identifier: str) -> JobSummary:
        """Return a job without its long fields."""
        for job in await self.database.read(
            lambda connection: [*from_rows(connection.execute(_ONE, {"id": identifier}), JobSummary)]
        ):
            return job
        raise no_such_job(identifier)

    async def last_change(self) -> tuple[int, int | None]:
        """Return the number of jobs and the time of the last change. If the pair differs, the list has changed."""
        row = await self.database.read(lambda connection: connection.execute(_LAST_CHANGE).one())
        return row[0], row[1]

    async def open_questions(self, limit: int = 100) -> Sequence[OpenQuestion]:
        """Return the open approvals and questions, the oldest first."""
        return await self.database.read(
            lambda connection: [*from_rows(connection.execute(_QUESTIONS, {"limit": limit}), OpenQuestion)]
        )

    async def rounds(self, identifier: str) -> Sequence[JobRound]:
        """Return the rounds of a job, in order."""
        return await self.database.read(
            lambda connection: [
                JobRound(*row) for row in connection.execute(_ROUNDS, {"job": key_of(connection, identifier)})
            ]
        )


def count_open_jobs(connection: Connection) -> dict[str, int]:
    """Return the number of jobs in each open state. Thanks to an index, ended jobs cost no time."""
    counts = {row[0]: row[1] for row in connection.execute(_STATES.where(jobs.c.state.in_(_OPEN_STATES)))}
    return {state: counts.get(state, 0) for state in _OPEN_STATES}


def no_such_job(identifier: str, problem: str = "no such job") -> CallerError:
    """Return the error for an id that does not identify one job."""
    return CallerError(problem, path=identifier, hint="callboard jobs list --all shows them")


def key_of(connection: Connection, identifier: str) -> int:
    """Return the key of a job. Raises CallerError if it does not exist."""
    key: int | None = connection.scalar(_KEY, {"id": identifier})
    if key is None:
        raise no_such_job(identifier)
    return key


def lock_job(connection: Connection, identifier: str) -> StoredJob | None:
    """Lock and return the job with this id until the transaction ends. Return None if it does not exist."""
    result = connection.execute(_LOCKED, {"id": identifier}).freeze()
    row = result().one_or_none()
    return None if row is None else StoredJob(row.key, row.fence, next(from_rows(result(), DurableJob)), row.failures)


def add_job(connection: Connection, job: DurableJob) -> int:
    """Add a job and return its key."""
    fields = {name: getattr(job, name) for name in SUMMARY}
    added = insert(jobs).returning(jobs.c.key)
    key: int = connection.execute(added, to_row({**fields, "fence": 0})).scalar_one()
    connection.execute(insert(documents), to_row({"job": key, **{name: getattr(job, name) for name in DOCUMENT}}))
    return key


def set_failures(connection: Connection, key: int, failures: int) -> None:
    connection.execute(update(jobs).where(jobs.c.key == key).values(failures=failures))


# Building a statement costs more than executing it, and the runs of a job change the same few columns every time.
@cache
def _update_job(names: tuple[str, ...]) -> Update:
    fenced = update(jobs).where(jobs.c.key == bindparam("its_key"), jobs.c.fence == bindparam("its_fence"))
    return fenced.values({name: bindparam(name) for name in (*names, "fence")})


@cache
def _update_document(names: tuple[str, ...]) -> Update:
    its = update(documents).where(documents.c.job == bindparam("its_job"))
    return its.values({name: bindparam(name) for name in names})


def change_job(connection: Connection, stored: StoredJob, job: DurableJob, fence: int) -> bool:
    """Write the changes of a stored job and a new fence. Return False, and write nothing, if its fence has changed."""
    changed = {name: getattr(job, name) for name in SUMMARY if getattr(job, name) != getattr(stored.job, name)}
    row = {**to_row(changed), "fence": fence, "its_key": stored.key, "its_fence": stored.fence}
    if connection.execute(_update_job(tuple(changed)), row).rowcount != 1:
        return False
    noted = {name: value for name in DOCUMENT if (value := getattr(job, name)) is not getattr(stored.job, name)}
    if noted:
        connection.execute(_update_document(tuple(noted)), {**to_row(noted), "its_job": stored.key})
    add_notification(connection, stored.key, stored.job, job)
    return True


def entry_rows(key: int, after: int, round_number: int, lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of entries after number `after`."""
    numbered = enumerate(lines, after + 1)
    return [{"job": key, "number": number, "round": round_number, "line": line} for number, line in numbered]


def add_rows(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows. Keep existing rows, because the acknowledgement of a commit may have been lost."""
    if rows:
        connection.execute(insert_once(table, connection), rows)


def copy_entries(connection: Connection, source: int, target: int, rounds: int) -> int:
    """Copy the entries of the first rounds and the open calls to another job. Return the number of entries."""
    copied = select(literal(target), entries.c.number, entries.c.round, entries.c.line).where(
        entries.c.job == source, entries.c.round <= rounds
    )
    connection.execute(insert(entries).from_select(["job", "number", "round", "line"], copied))
    count: int = connection.scalar(select(func.count()).where(entries.c.job == target)) or 0
    others = [column for column in open_calls.c if column.name != "job"]
    begun = select(literal(target), *others).where(open_calls.c.job == source, open_calls.c.entries <= count)
    connection.execute(insert(open_calls).from_select(["job", *[each.name for each in others]], begun))
    return count


def change_entry(connection: Connection, key: int, change: EntryChange) -> int:
    """Change an entry of a new job, and remove the entries after the last one. Return the number of entries."""
    its = entries.c.job == key
    connection.execute(update(entries).where(its, entries.c.number == change.number), {"line": change.line})
    connection.execute(delete(entries).where(its, entries.c.number > change.last))
    return change.last


def read_approvals(connection: Connection, key: int) -> list[Approval]:
    return list(from_rows(connection.execute(_APPROVALS, {"job": key}), Approval))


def read_answers(connection: Connection, key: int) -> list[ApprovalAnswered]:
    """Return people's answers to a job, in order."""
    answers = [JobEntry(*line).item for line in connection.execute(_ANSWERS, {"job": key}).all()]
    return [each for each in answers if isinstance(each, ApprovalAnswered)]


def ask(connection: Connection, key: int, questions: Sequence[Approval], now: datetime) -> None:
    """Open approvals and questions. Mention in an approval that the same call was allowed before.

    Replace the rows of former questions about the same calls. The entries keep their answers.
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
