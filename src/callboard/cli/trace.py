"""`callboard trace`: where a job's time, tokens and money went, in the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from callboard.cli.durable_store import find_job, read_jobs
from callboard.cli.options import JobName
from callboard.jobs.job import DurableJob
from callboard.jobs.steps import CallSpan, RoundSpan, build_trace, describe_trace
from callboard.profiles import format_cost
from callboard.text.display import collapse

if TYPE_CHECKING:
    from rich.table import Table


_BAR: Final = 30
"""Characters of the waterfall."""
_MAX_NAME: Final = 40
_MAX_FAILURE: Final = 60
_STYLES: Final = {"done": "green", "failed": "red", "open": "yellow"}


def trace(
    name: JobName,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show where a job's time, tokens and money went: its rounds, and below each the calls that it made.

    Each bar stands where in the job's time its reply or call was under way; the time between rounds in which the job
    waited for somebody is left out.
    """
    job = find_job(name)
    rounds = build_trace(read_jobs(lambda store: store.read_entries(job.id)))
    if as_json:
        described = {name: getattr(job, name) for name in ("id", "state", "model", "usage", "cost")}
        typer.echo(json.dumps({**described, "rounds": describe_trace(rounds)}, indent=2))
        return
    from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms

    Console(highlight=False, soft_wrap=False).print(_make_table(job, rounds))


def _make_table(job: DurableJob, rounds: list[RoundSpan]) -> Table:
    from rich.table import Table  # noqa: PLC0415  # rich costs 50 ms
    from rich.text import Text  # noqa: PLC0415

    seconds = sum([_length(each) for each in rounds])
    sums = _describe_tokens(job.usage), format_cost(job.cost)
    model = collapse(job.model, _MAX_NAME)
    table = Table(box=None, pad_edge=False, title_justify="left", title=Text(f"{job.id}  {job.state}  {model}"))
    table.add_column("round", no_wrap=True, overflow="ellipsis")
    for heading in ("time", "tokens in/out", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    offset, phase = 0.0, ""
    for each in rounds:
        if each.phase != phase:
            phase = each.phase
            table.add_row(Text(collapse(phase, _MAX_NAME), style="bold"))
        bar = _draw_bar(offset, each.seconds, seconds)
        table.add_row(
            f"{each.number}",
            _describe_seconds(each.seconds),
            _describe_tokens(each.usage),
            format_cost(each.cost),
            Text(bar, style="cyan"),
        )
        for call in each.calls:
            table.add_row(*_call_row(call, offset + (each.seconds or 0.0), seconds))
        offset += _length(each)
    table.add_section()
    table.add_row("all", _describe_seconds(seconds or None), *sums)
    return table


def _call_row(call: CallSpan, offset: float, whole: float) -> list[Any]:
    from rich.text import Text  # noqa: PLC0415  # rich costs 50 ms

    style = _STYLES[call.state]
    name = Text(f"  {collapse(call.name, _MAX_NAME)}")
    bar = Text(_draw_bar(offset, call.seconds, whole), style=style)
    state = call.state if call.state != "failed" else collapse(call.failure, _MAX_FAILURE)
    return [name, _describe_seconds(call.seconds), "", "", bar, Text(state, style=style)]


def _length(span: RoundSpan) -> float:
    """The seconds of a round with its calls."""
    if span.began_at is None or span.ended_at is None:
        return 0.0
    return max((span.ended_at - span.began_at).total_seconds(), 0.0)


def _draw_bar(offset: float, seconds: float | None, whole: float) -> str:
    if seconds is None or not whole:
        return ""
    begin = min(int(offset / whole * _BAR), _BAR - 1)
    return " " * begin + "━" * max(1, min(round(seconds / whole * _BAR), _BAR - begin))


def _describe_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _describe_tokens(usage: dict[str, int]) -> str:
    return f"{usage.get('input', 0)}/{usage.get('output', 0)}" if usage else ""
