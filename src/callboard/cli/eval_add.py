"""`callboard eval add`: make a task from a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from callboard.agent.conversation import Conversation, conversations_directory
from callboard.cli import complete
from callboard.cli.dialects import read_declarations
from callboard.cli.durable_store import find_job, read_jobs
from callboard.cli.options import option, takes_options
from callboard.errors import CallerError
from callboard.evaluation.kept_tests import TaskFile
from callboard.evaluation.recorded_task import MAX_FILE, Recording, decode_expected, decode_recording, make_task
from callboard.evaluation.task import Task, encode_task
from callboard.jobs.entries import read_conversation
from callboard.text.display import escape


@dataclass(frozen=True, kw_only=True)
class EvalAddOptions:
    """The options of `callboard eval add`."""

    source: Annotated[
        str,
        typer.Argument(
            help="A job, a conversation of callboard run, or a file with a request's body, alone or as \
{request, response}.",
            show_default=False,
            autocompletion=complete.jobs,
        ),
    ]
    expect: Annotated[
        list[str] | None,
        option(
            help='{"name": ..., "arguments": {...}}: the right call, instead of the recorded one; repeatable. \
`none` expects no call.'
        ),
    ] = None
    turn: Annotated[
        int | None, option(min=1, help="The number of the reply that the task asks for.", show_default="the last")
    ] = None
    tools: Annotated[
        str,
        option(
            help="A JSON file with tools, as for callboard parse.",
            show_default="the tools of the request or job, or those that were called",
        ),
    ] = ""
    category: Annotated[str, option(help="The task's category.")] = "recorded"
    name: Annotated[str, option(help="The task's name; by default a hash of its contents.")] = ""
    wire: Annotated[str, option(help="chat, responses, messages or gemini; by default detected.")] = ""
    dry_run: Annotated[bool, option("--dry-run", help="Print the task without adding it.")] = False


@takes_options(EvalAddOptions)
def add(options: EvalAddOptions) -> None:
    """Make a task from a recorded reply: the task expects the calls of that reply.

    The task is one line of JSON in `evaluation/tasks.jsonl` of Callboard's own directory. Edit it if the reply was
    wrong. `callboard eval MODEL --suite recorded` runs it.
    """
    recording = read_recording(options.source, options.wire, options.turn)
    if options.tools:
        recording = replace(recording, tools=tuple(read_declarations(options.tools)))
    task = make_task(
        recording,
        expected=None if options.expect is None else decode_expected(options.expect),
        turn=options.turn,
        category=options.category,
        identifier=options.name,
    )
    if not options.dry_run:
        path = TaskFile().add(task)
        typer.echo(escape(f"{task.identifier} is in {path}: {_describe(task)}"), err=True)
    typer.echo(encode_task(task).decode())


def read_recording(source: str, wire: str, turn: int | None) -> Recording:
    """Read the recording of a turn in a file, a conversation or a job. Raises CallerError."""
    path = Path(source)
    if path.is_file():
        if path.stat().st_size > MAX_FILE:
            raise CallerError("the file is too large", path=source, hint=f"at most {MAX_FILE} bytes")
        return decode_recording(path.read_bytes(), wire=wire, path=source)
    if path.name == source and (conversations_directory() / source).is_dir():
        return Recording(tuple(Conversation.resume(source).canisters))
    return _read_job(source, is_last=turn is None)


def _read_job(name: str, *, is_last: bool) -> Recording:
    from callboard.jobs.declared_tools import merge_tools, read_tools  # noqa: PLC0415  # half a second

    try:
        job = find_job(name)
    except CallerError as error:
        hint = "name a file, a conversation, or a job of `callboard jobs list`"
        raise CallerError(f"nothing was recorded under this name ({error.message})", path=name, hint=hint) from None
    entries = read_jobs(lambda store: store.read_entries(job.id))
    sets = read_jobs(lambda store: read_tools(store.database, job.id))
    tools = merge_tools(sets[-1:] if is_last else sets)
    return Recording(tuple(read_conversation([entry.item for entry in entries])), tools)


def _describe(task: Task) -> str:
    names = ", ".join([each.name for each in task.steps[0].expected])
    return f"it expects {names}" if names else "it expects no call"
