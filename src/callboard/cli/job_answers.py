"""`callboard jobs approve`, `deny` and `answer`: what a job that waits is told by a person.

Law: nobody allows what was not shown. So an approval is asked about on a terminal, unless the digest of what was seen
comes with it, and an answer to a call that changed since is refused by the store.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callboard.cli.durable_store import change_jobs, find_job, read_jobs
from callboard.cli.jobs import JobName
from callboard.cli.line_editor import NO, YES, discard_input, read_answer
from callboard.cli.options import Json
from callboard.configuration.ownership import find_user_name
from callboard.errors import CallerError
from callboard.text.display import collapse, escape, make_visible

if TYPE_CHECKING:
    from callboard.jobs.job import Approval, DurableJob
    from callboard.jobs.store import DurableStore

CallName = Annotated[
    str,
    typer.Argument(metavar="CALL", help="Which, or how its id begins, where several wait.", show_default=False),
]


def approve(
    name: JobName,
    call: CallName = "",
    edit: Annotated[
        str,
        typer.Option(metavar="JSON", help="Run it with these arguments in place of the model's.", show_default=False),
    ] = "",
    digest: Annotated[
        str,
        typer.Option(help="Of what you have seen: if it is another by now, nothing is approved.", show_default=False),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Let a call of a job run that waits for your approval. What will run is shown before."""
    edited = _read_arguments(edit)
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call, is_question=False))
    if digest and digest != approval.digest:
        hint = f"look at it: callboard jobs show {job.id}"
        raise CallerError(f"the digest of the call is {approval.digest}", path=f"--digest {digest}", hint=hint)
    show_approval(approval, edited)
    if not (digest or yes):
        _confirm(job, approval)
    _answer(job, approval, as_json, verdict="allow", edited=edited)


def deny(
    name: JobName,
    call: CallName = "",
    reason: Annotated[str, typer.Option(help="Why, for the model to read.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """Refuse a call of a job that waits for your approval; the job goes on without it."""
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call))
    show_approval(approval)
    _answer(job, approval, as_json, verdict="deny", reason=reason)


def answer(
    name: JobName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer. `-` reads standard input.")],
    call: CallName = "",
    as_json: Json = False,
) -> None:
    """Answer a question of a job that waits for it."""
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call, is_question=True))
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    show_approval(approval)
    _answer(job, approval, as_json, verdict="allow", text=text)


def show_approval(approval: Approval, edited: dict[str, Any] | None = None) -> None:
    """Print all that will run, escaped, on standard error."""
    arguments = approval.arguments if edited is None else edited
    if approval.why:
        typer.echo(make_visible(approval.why), err=True)
    typer.echo(f"{make_visible(approval.name)} {json.dumps(arguments or {})}", err=True)
    digest = f", digest {approval.digest}" if approval.digest else ""
    typer.echo(f"call {make_visible(approval.call_id)}{digest}", err=True)


def _read_arguments(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        hint = """write all of the arguments, such as '{"path": "a.txt"}'"""
        raise CallerError("no JSON object", path=f"--edit {collapse(text)}", hint=hint)
    return arguments


async def _find_open(store: DurableStore, job: DurableJob, call: str, *, is_question: bool | None = None) -> Approval:
    """The open approval or question of this call, or the only one. Raises CallerError that says why there is none."""
    approvals = await store.read_approvals(job.id)
    chosen = [each for each in approvals if each.call_id == call] or [
        each for each in approvals if each.call_id.startswith(call) and not each.verdict
    ]
    path = f"{job.id} {call}".strip()
    if not chosen:
        if job.has_ended:
            raise CallerError(f"the job is {job.state}, so nothing is asked any more", path=path)
        raise CallerError(_describe_idle(job, call), path=path, hint=f"callboard jobs show {job.id} tells what it does")
    if len(chosen) > 1:
        names = ", ".join([f"{escape(each.call_id)} ({escape(each.name)})" for each in chosen])
        raise CallerError(f"several wait: {names}", path=path, hint="name one of them behind the job")
    if is_question is not None and chosen[0].is_question != is_question:
        message, command = (
            ("it is a question", "answer") if chosen[0].is_question else ("it is no question", "approve or deny")
        )
        raise CallerError(message, path=path, hint=f"callboard jobs {command}")
    return chosen[0]


def _describe_idle(job: DurableJob, call: str) -> str:
    if call:
        return "the job asks about no such call"
    waits = f" for its {job.waits_for.replace('_', ' ')}" if job.state == "waiting" else ""
    return f"the job is {job.state}{waits} and asks nothing"


def _confirm(job: DurableJob, approval: Approval) -> None:
    if not sys.stdin.isatty():
        seen = f"--digest {approval.digest}" if approval.digest else "--yes"
        hint = f"once you have looked at it: callboard jobs approve {job.id} {approval.call_id} {seen}"
        raise CallerError("nobody is here to ask", path=f"{job.id} {approval.call_id}", hint=hint)
    word = ""
    while word not in YES:
        discard_input()
        typer.echo("run it? [y]es, [n]o", err=True)
        line = read_answer()
        word = "no" if line is None else line.strip().lower()
        if word in NO:
            typer.echo("it still waits", err=True)
            raise typer.Exit(1)


def _answer(job: DurableJob, approval: Approval, as_json: bool, **values: Any) -> None:
    """Give the answer, bound to what was shown."""
    by = find_user_name()
    changed = change_jobs(
        lambda store: store.answer(job.id, approval.call_id, digest=approval.digest, by=by, via="terminal", **values)
    )
    if as_json:
        typer.echo(json.dumps(changed.as_json()))
        return
    goes_on = "goes on" if changed.state != "waiting" else "waits for more answers"
    typer.echo(f"{job.id}: {goes_on}; callboard jobs watch {job.id} shows it", err=True)
