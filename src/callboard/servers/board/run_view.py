"""The record of a run that a command made itself, as the pages show it: in the form of a durable job.

All of this reads files, and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from msgspec import json, structs

from callboard.coding.jobs.job import Job, JobOutput
from callboard.coding.jobs.json_encoding import encode_json
from callboard.coding.jobs.store import DIED, JobStore
from callboard.errors import CallerError
from callboard.jobs.job import DurableJob, JobTemplate
from callboard.servers.board.job_view import describe_state

_SAME: Final = (
    *("state", "reason", "error", "phase", "rounds", "calls", "usage", "cost"),
    *("created_at", "started_at", "completed_at"),
)
_HIDDEN: Final = frozenset({"summary", "turns"})
"""Fields of an output: the one is its text, the other is for `callboard undo`."""


class ListedRun(NamedTuple):
    """A row of the list. Of a record that cannot be read there is no job, and `why` says it."""

    id: str
    job: DurableJob | None
    why: str


def list_runs(records: JobStore, before: str, most: int) -> Sequence[ListedRun]:
    """The newest runs first, older than the run `before`; no more records are read."""
    listed: list[ListedRun] = []
    for name in records.names():
        if len(listed) == most:
            break
        if before and name >= before:
            continue
        try:
            job = show_record(records.read(name))
            listed.append(ListedRun(name, job, describe_run(job)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # the folder of a durable job, or something else
        except (CallerError, OSError):
            listed.append(ListedRun(name, None, "its record is none that this release of Callboard reads"))
    return listed


def read_run(records: JobStore, name: str) -> DurableJob:
    """The run of this name, or the only one whose name begins so. Raises CallerError."""
    try:
        return show_record(records.load(name))
    except OSError as error:
        raise CallerError(f"it cannot be read: {error.strerror}", path=name) from None


def show_record(job: Job) -> DurableJob:
    """The record in the form of a durable job."""
    made = JobTemplate(
        kind=job.type, description=job.description, directory=job.directory, model=job.model, input=job.input
    ).make_job(job.id, job.created_at)
    output: dict[str, Any] | None = None
    if job.output != JobOutput():
        fields = json.decode(encode_json(job.output))
        output = {"text": job.output.summary, **{name: fields[name] for name in fields if name not in _HIDDEN}}
    return structs.replace(made, output=output, **{name: getattr(job, name) for name in _SAME})


def find_key(job: DurableJob) -> str:
    """Changes with what a page shows of a run."""
    shown = [getattr(job, name) for name in ("id", "title", "model", *_SAME)]
    return sha256(repr(shown).encode()).hexdigest()[:16]


def describe_run(job: DurableJob) -> str:
    """Why a run is in its state."""
    return "" if job.state == "pending" else describe_state(job)


def find_resumption(job: DurableJob) -> str:
    """The command that goes on with a run that has ended; "" where there is none."""
    if not job.has_ended:
        return ""
    if job.kind == "chat":
        return f"callboard chat --resume {job.id}"
    return f"callboard jobs resume {job.id}" if job.reason == DIED else ""
