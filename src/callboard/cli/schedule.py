"""`callboard schedule`: jobs that workers submit repeatedly, at the times of a cron line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from zoneinfo import ZoneInfo

import typer
from msgspec.structs import replace

from callboard.cli.command_group import LazyCommand
from callboard.cli.display import Display
from callboard.cli.durable_store import open_store
from callboard.cli.job_commands import take_request
from callboard.cli.models import CODING_FACTS, open_model
from callboard.cli.options import Json
from callboard.coding.agents.job_request import JobRequest
from callboard.core import UserCanister, contents
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.jobs import may_have_jobs
from callboard.jobs.job import JobTemplate, agent_queue, make_title, normalize_reference
from callboard.text.display import collapse

if TYPE_CHECKING:
    from callboard.jobs.schedules import Schedule, ScheduleStore

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Submit jobs repeatedly, at the times of a cron line.")

_COMMANDS: Final = ("build", "debug", "review", "triage")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]


@app.command("add")
def add(
    name: Name,
    cron: Annotated[
        str,
        typer.Argument(
            metavar="CRON",
            help='Minute, hour, day, month, day of the week, such as "30 3 * * mon-fri"; or @daily.',
            show_default=False,
        ),
    ],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND",
            help="The command to run, such as review --branch B --model M; or a prompt.",
            show_default=False,
        ),
    ],
    zone: Annotated[str, typer.Option(help="The time zone of the cron line, such as Europe/Berlin.")] = "UTC",
    agent: Annotated[
        str,
        typer.Option(
            help="The agent that gets the prompt: MODULE:NAME or FILE.py:NAME, as given to a worker.",
            show_default=False,
        ),
    ] = "",
    priority: Annotated[int, typer.Option(help="Priority of its jobs; the lowest number runs first.")] = 0,
    as_json: Json = False,
) -> None:
    """Submit a job at the times of a cron line: a command of a coding agent, or a prompt for an agent.

    callboard schedule add nightly "0 3 * * *" --zone Europe/Berlin -- review --branch main --model openai:gpt-4o

    A worker submits each job once, however many workers run. Times that were missed while no worker ran make one job.
    A schedule submits no job before its last job has ended. Files and issues that the command reads are read now.
    """
    require_extra("jobs")
    template = _agent_template(agent, words) if agent else _coding_template(words)

    template = replace(template, priority=template.priority or priority)
    added = _use(lambda schedules: _add(schedules, name, cron, zone, template))
    if as_json:
        typer.echo(json.dumps(added.as_json()))
        return
    typer.echo(f"{added.name}: {_show_next(added)}")
    option = f" --agents {agent}" if agent else ""
    typer.echo(f"a running worker submits its jobs: callboard worker{option}", err=True)


async def _add(schedules: ScheduleStore, name: str, cron: str, zone: str, template: JobTemplate) -> Schedule:
    from callboard.jobs.coding_kind import KINDS  # noqa: PLC0415  # not for --help
    from callboard.jobs.shared_database import check_directory, check_options  # noqa: PLC0415  # not for --help

    check_options(template.input, schedules.database)
    if template.kind in KINDS:
        check_directory(template.directory, schedules.database)
    return await schedules.add(name, cron, zone, template)


@app.command("list")
def list_schedules(as_json: Json = False) -> None:
    """List the schedules with their next time, their job and the state of their last job."""
    schedules = _use(lambda schedules: schedules.list()) if may_have_jobs() else ()
    for each in schedules:
        typer.echo(json.dumps(each.as_json()) if as_json else _describe(each))
    if not schedules and not as_json:
        typer.echo("no schedules", err=True)


@app.command("pause")
def pause(name: Name) -> None:
    """Pause a schedule until you resume it."""
    _use(lambda schedules: schedules.pause(name))
    typer.echo(f"{name}: paused")


@app.command("resume")
def resume(name: Name) -> None:
    """Resume a paused schedule. Times that were missed are skipped."""
    typer.echo(f"{name}: {_show_next(_use(lambda schedules: schedules.resume(name)))}")


@app.command("rm")
def remove(name: Name) -> None:
    """Delete a schedule. Jobs that it submitted stay."""
    _use(lambda schedules: schedules.remove(name))
    typer.echo(f"{name}: deleted")


def _use(work: Callable[[ScheduleStore], Coroutine[Any, Any, T]]) -> T:
    with open_store() as store:
        from callboard.jobs.schedules import ScheduleStore  # noqa: PLC0415  # as above

        return asyncio.run(work(ScheduleStore(store.database)))


def _agent_template(agent: str, words: Sequence[str]) -> JobTemplate:
    from callboard.jobs.agent_kind import KIND, AgentInput  # noqa: PLC0415

    prompt = words[0] if len(words) == 1 else ""
    if not prompt.strip():
        raise CallerError("an agent needs one prompt", path="--agent", hint="write it in quotes after the cron line")
    reference = normalize_reference(agent)
    job_input = AgentInput(agent=reference, prompt=UserCanister(contents(prompt)))
    return JobTemplate(
        kind=KIND,
        description=prompt,
        directory=str(Path.cwd()),
        input=job_input.to_json(),
        queue=agent_queue(reference),
    )


def _coding_template(words: Sequence[str]) -> JobTemplate:
    kind, *arguments = words
    if kind not in _COMMANDS:
        hint = f"after --, write {', '.join(_COMMANDS)} with its options, or name an --agent"
        raise CallerError("not a command of a coding agent", path=kind, hint=hint)
    taken: list[tuple[JobRequest, int]] = []
    token = take_request.set(lambda request, priority: taken.append((request, priority)))
    try:
        command = LazyCommand(kind, f"callboard.cli.job_commands:{kind}", "").load()
        with command.make_context(f"callboard {kind}", arguments) as context:
            command.invoke(context)
    finally:
        take_request.reset(token)
    ((request, priority),) = taken
    return asyncio.run(_describe_request(request, priority))


async def _describe_request(request: JobRequest, priority: int) -> JobTemplate:
    from callboard.jobs.coding_kind import describe_request  # noqa: PLC0415

    model = open_model(request.settings, Display(sys.stdout, sys.stderr, verbose=False, color=False).tell, CODING_FACTS)
    await model.aclose()
    return await describe_request(request, model.name, priority=priority)


def _show_next(schedule: Schedule) -> str:

    return f"next at {schedule.next_at.astimezone(ZoneInfo(schedule.zone)):%Y-%m-%d %H:%M %Z}"


def _describe(schedule: Schedule) -> str:
    template = schedule.template
    due = "paused" if schedule.is_paused else _show_next(schedule)
    last = f"  last job {schedule.last_job}: {schedule.last_state or 'deleted'}" if schedule.last_job else ""
    line = collapse(f"{schedule.cron} {schedule.zone}")
    return f"{schedule.name}  {line}  {due}  {collapse(template.kind)}  {collapse(make_title(template.description), 60)}{last}"
