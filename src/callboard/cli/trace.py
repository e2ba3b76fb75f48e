"""`callboard trace`: where a job's time, tokens and money went.

The figures are never cut: on a narrow terminal the bars give way, then the names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import typer

from callboard.cli.durable_store import find_job, read_jobs
from callboard.cli.options import JobName
from callboard.cli.terminal import align, crop, find_width, has_color, pad, paint
from callboard.jobs.job import DurableJob
from callboard.jobs.steps import CallSpan, RoundSpan, build_trace, describe_trace, place_spans, sum_seconds
from callboard.profiles import format_cost
from callboard.text.display import collapse

_BAR: Final = 30
"""Maximum width of the bars, in characters."""
_MIN_BAR: Final = 6
_MAX_NAME: Final = 40
_MIN_NAME: Final = 12
_MAX_FAILURE: Final = 60
_COLORS: Final = {"done": "32", "failed": "31", "open": "33"}
_HEADINGS: Final = ("round", "time", "in/out", "cost")


class _TraceRow(NamedTuple):
    cells: tuple[str, str, str, str]
    begin: float = 0.0
    share: float = 0.0
    """Start and width of the bar, as fractions."""
    state: str = ""
    color: str = ""


def trace(
    name: JobName,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show where a job's time, tokens and money went, by round and call.

    Each bar shows when its reply or call ran. Waits for a person are not shown.
    """
    job = find_job(name)
    rounds = build_trace(read_jobs(lambda store: store.read_entries(job.id)))
    if as_json:
        described = {name: getattr(job, name) for name in ("id", "state", "model", "usage", "cost")}
        typer.echo(json.dumps({**described, "rounds": describe_trace(rounds)}, indent=2))
        return
    for line in draw_trace(job, rounds, find_width(), is_colored=has_color(sys.stdout)):
        typer.echo(line, color=True)


def draw_trace(job: DurableJob, rounds: list[RoundSpan], width: int, *, is_colored: bool) -> list[str]:
    """Return the lines of a trace."""
    rows, phase = [], ""
    for each, begin, share in place_spans(rounds):
        if isinstance(each, RoundSpan) and (heading := each.phase + (f": {each.model}" if each.model else "")) != phase:
            phase = heading
            rows.append(_TraceRow((collapse(heading, _MAX_NAME), "", "", "")))
        rows.append(_make_row(each, begin, share))
    sums = _describe_seconds(sum_seconds(rounds) or None), _describe_tokens(job.usage), format_cost(job.cost)
    rows.append(_TraceRow(("all", *sums)))
    widths = align([_HEADINGS, *[row.cells for row in rows]])
    rest = width - sum(widths[1:]) - 2 * len(widths)
    widths[0] = min(widths[0], max(_MIN_NAME, rest - _MIN_BAR))
    bar = max(0, min(_BAR, rest - widths[0]))
    bar = bar if bar >= _MIN_BAR else 0
    room = rest - widths[0] - bar - 2 * bool(bar)

    def join(cells: Sequence[str]) -> str:
        numbers = [" " * (columns - len(cell)) + cell for cell, columns in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([pad(crop(cells[0], widths[0]), widths[0]), *numbers])

    lines = [f"{job.id}  {job.state}  {collapse(job.model, _MAX_NAME)}", paint(join(_HEADINGS), "1", is_colored)]
    for row in rows:
        drawn = pad(_draw_bar(row.begin, row.share, bar), bar)
        state = crop(row.state, room) if room >= len("failed") else ""
        end = "  ".join([paint(part, row.color, is_colored) for part in (drawn, state) if part.strip()])
        lines.append(f"{join(row.cells)}  {end}".rstrip())
    return lines


def _make_row(each: RoundSpan | CallSpan, begin: float, share: float) -> _TraceRow:
    seconds = _describe_seconds(each.seconds)
    if isinstance(each, RoundSpan):
        figures = _describe_tokens(each.usage), format_cost(each.cost)
        return _TraceRow((f"{each.number}", seconds, *figures), begin, share, "", "36")
    state = each.state if each.state != "failed" else collapse(each.failure, _MAX_FAILURE)
    return _TraceRow((f"  {collapse(each.name, _MAX_NAME)}", seconds, "", ""), begin, share, state, _COLORS[each.state])


def _draw_bar(begin: float, share: float, width: int) -> str:
    if not (share and width):
        return ""
    first = min(int(begin * width), width - 1)
    return " " * first + "━" * max(1, min(round(share * width), width - first))


def _describe_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _describe_tokens(usage: dict[str, int]) -> str:
    return f"{usage.get('input', 0)}/{usage.get('output', 0)}" if usage else ""
