"""Sessions of the gateway as rows of the list of jobs, with the fields that they share with jobs.

Jobs are in a database and sessions in memory, so a page of both is merged from two ordered lists.

Law: as long as nothing changes, each job and each session is on one page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from callboard.jobs.job import JobSummary
from callboard.jobs.queries import JobFilter, JobOrder, JobReader
from callboard.servers.board.templating import to_time
from callboard.text.plural import format_count

if TYPE_CHECKING:
    from callboard.servers.gateway.sessions import RequestSession

KIND: Final = "session"


def _count_seconds(row: JobSummary) -> float:
    ended = row.completed_at or row.updated_at
    return (ended - row.started_at).total_seconds() if row.started_at else -1.0


_KEYS: Final[Mapping[JobOrder, Callable[[JobSummary], float]]] = {
    "newest": lambda row: row.created_at.timestamp(),
    "longest": _count_seconds,
    "most expensive": lambda row: -1.0 if row.cost is None else row.cost,
}
"""The orders of `JobReader.list`, the largest first."""


def select_sessions(sessions: Iterable[RequestSession], chosen: JobFilter) -> list[JobSummary]:
    """Return the sessions that a filter of jobs selects. A session has no state."""
    return [row for each in sessions if _matches(each, row := _view(each), chosen)]


def _matches(session: RequestSession, row: JobSummary, chosen: JobFilter) -> bool:
    words = " ".join([row.id, row.title, *[name for name, _, _ in session.tools]]).casefold()
    conditions = (
        (chosen.states, False),
        (chosen.kind, chosen.kind == KIND),
        (chosen.model, chosen.model in session.models),
        (chosen.day, row.created_at.date() == chosen.day),
        (chosen.least_cost, (session.cost or 0) >= chosen.least_cost),
        (chosen.text, chosen.text.casefold() in words),
    )
    return all(holds for value, holds in conditions if value)


def _view(session: RequestSession) -> JobSummary:
    begun, ended = to_time(session.at), to_time(session.last_at)
    return JobSummary(
        id=session.identifier,
        kind=KIND,
        state="completed",
        title=": ".join([each for each in (session.client_name or "Unnamed client", session.question) if each]),
        reason=" · ".join([each for each in (format_count(session.turns, "request"), session.key) if each]),
        model=", ".join(session.models),
        rounds=session.turns,
        usage={"input": session.input, "output": session.output},
        cost=session.cost,
        created_at=begun,
        started_at=begun,
        completed_at=ended,
        updated_at=ended,
    )


async def list_with_sessions(
    store: JobReader, chosen: JobFilter, sessions: Sequence[JobSummary], *, order: JobOrder, offset: int, limit: int
) -> list[JobSummary]:
    """Return the jobs and sessions after the first `offset` ones. At most `len(sessions)` jobs too many are read."""
    before = max(0, offset - len(sessions))  # that many jobs are on earlier pages in any case
    jobs = await store.list(chosen, order=order, offset=before, limit=offset - before + limit)
    key = _KEYS[order]
    merged = merge(jobs, sorted(sessions, key=key, reverse=True), key=key, reverse=True)
    return list(islice(merged, offset - before, offset - before + limit))
