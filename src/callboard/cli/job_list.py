"""`callboard jobs list`: a row for each job.

A terminal gets a table that fits it, with the shortest ids that the commands accept. A pipe gets whole ids and times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, get_args

import typer

from callboard.cli import durable_store
from callboard.cli.terminal import STATE_COLORS, align, crop, find_width, has_color, pad, paint
from callboard.coding.job_folders import OLD_RECORD, list_old_records
from callboard.jobs.job import DurableState, JobSummary
from callboard.text.display import collapse
from callboard.text.duration import format_age, format_clock
from callboard.text.plural import format_count

_ID_LENGTHS: Final = (13, 15, 19, 26)
"""Ends of the minute, the second, the millisecond and the whole of an id."""
_MIN_TASK: Final = 24
"""Minimum columns of the task. Other columns make room for it."""
_COLUMNS: Final = ("Job", "State", "Kind", "Created", "Time", "Cost", "Task")
_OPTIONAL: Final = (4, 5, 2)
"""Columns that a narrow terminal leaves out, the first one first."""

State = StrEnum("State", {each: each for each in get_args(DurableState)})  # type: ignore[misc]  # the values are known
"""A state of jobs, as an option."""


def list_jobs(
    text: Annotated[
        str, typer.Argument(help="A part of the id or the task, or a tool that was called.", show_default=False)
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="List the jobs of all directories.")] = False,
    states: Annotated[list[State] | None, typer.Option("--state", help="A state to list; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of jobs to list; 0 lists all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one job per line, as JSON.")] = False,
) -> None:
    """List the jobs, the newest first."""
    every = durable_store.list_jobs()
    matches = {each.id for each in durable_store.list_jobs(text)} if text else ()
    jobs = [each for each in every if (not states or each.state in states) and (not text or each.id in matches)]
    jobs = jobs if all_ else list(filter(durable_store.is_here, jobs))
    shown = jobs[: limit or None]
    if as_json or not sys.stdout.isatty():
        for each in shown:
            typer.echo(json.dumps(each.as_json()) if as_json else _describe_job(each))
    elif shown:
        names = shorten_ids([each.id for each in every])
        make_row = _row_maker(names, datetime.now(UTC))
        for line in draw_table(list(map(make_row, shown)), find_width(), is_colored=has_color(sys.stdout)):
            typer.echo(line, color=True)
    if limit and (more := len(jobs) - limit) > 0:
        typer.echo(f"{format_count(more, 'more job')}; --limit 0 lists all", err=True)
    if not jobs and not as_json:
        which = f"no {' or '.join(states or ())} jobs".replace("  ", " ") + (f" with {text!r}" if text else "")
        typer.echo(which if all_ else f"{which} in this directory; --all lists all jobs", err=True)
    if old := list_old_records():
        old_names = " ".join(old[:3]) + (" ..." if len(old) > 3 else "")
        typer.echo(f"not listed, {OLD_RECORD} each: {len(old)}; callboard jobs rm {old_names} deletes them", err=True)


def _describe_job(job: JobSummary) -> str:
    created = f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
    return f"{job.id}  {created}  {collapse(job.kind):6}  {_describe_state(job):18}  {collapse(job.title, 60)}"


def _describe_state(job: JobSummary) -> str:
    details = {"running": job.phase, "waiting": job.waits_for.replace("_", " ")}.get(job.state, "")
    return collapse(f"{job.state} {details}".strip())


def shorten_ids(identifiers: Iterable[str]) -> dict[str, str]:
    """Return the shortest beginning of each id that no other id has, up to a part of its time."""
    ordered = sorted(identifiers)
    names = {}
    for before, name, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        names[name] = next(
            (name[:end] for end in _ID_LENGTHS if not (before.startswith(name[:end]) or after.startswith(name[:end]))),
            name,
        )
    return names


def _row_maker(names: dict[str, str], now: datetime) -> Callable[[JobSummary], Sequence[str]]:
    def make(job: JobSummary) -> Sequence[str]:
        end = job.completed_at or (now if job.state == "running" else None)
        return (
            names.get(job.id, job.id),
            job.state,
            collapse(job.kind, 12),
            format_age((now - job.created_at).total_seconds()),
            format_clock((end - job.started_at).total_seconds()) if end and job.started_at else "",
            "" if job.cost is None else f"${job.cost:.2f}",
            collapse(job.title),
        )

    return make


def draw_table(rows: Sequence[Sequence[str]], width: int, *, is_colored: bool) -> list[str]:
    """Return the lines of a table with a heading. The task gets the columns that are left."""
    widths = align([_COLUMNS, *rows])
    columns = list(range(len(_COLUMNS) - 1))

    def count_left() -> int:
        return max(0, width - sum(widths[each] + 2 for each in columns))

    for each in _OPTIONAL:
        if count_left() < _MIN_TASK or not any(row[each] for row in rows):
            columns.remove(each)

    def join(row: Sequence[str], state_color: str) -> str:
        colors = {_COLUMNS.index("State"): state_color}
        cells = [paint(pad(row[each], widths[each]), colors.get(each, ""), is_colored) for each in columns]
        return "  ".join([*cells, crop(row[-1], count_left())]).rstrip()

    heading = paint(join(_COLUMNS, ""), "2", is_colored)
    return [heading, *[join(row, STATE_COLORS.get(row[1], "")) for row in rows]]
