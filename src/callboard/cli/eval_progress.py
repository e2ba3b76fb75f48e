"""The progress of `callboard eval` on standard error: a bar on a terminal, some lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, Final, Self

import typer

from callboard.evaluation.check import check_step
from callboard.evaluation.runner import TaskOutcome
from callboard.text.display import escape

_LINES: Final = 24
"""Lines where there is no terminal, about."""


class EvalProgress:
    """Shows how far a run is.

    Args:
        total: Outcomes that are to come.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._every = max(1, total // _LINES)
        self._done = self._solved = self._failed = self._cached = 0
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if typer.get_text_stream("stderr").isatty():
            from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("loading", total=self._total)
            self._bar.start()
        else:
            typer.echo(f"{self._total} tasks", err=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Show nothing more, and say how long it took."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._done:
            cached = f", {self._cached} of them known already" if self._cached else ""
            seconds = time.monotonic() - self._began
            typer.echo(f"{self._done} of {self._total} tasks in {seconds:.0f} s{cached}", err=True)
            self._done = 0

    def show(self, outcome: TaskOutcome) -> None:
        """Count an outcome."""
        self._done += 1
        self._cached += outcome.is_cached
        word = _describe(outcome)
        self._solved += word == "solved"
        self._failed += word == "failed"
        failed = f", {self._failed} failed" if self._failed else ""
        line = f"{outcome.variant.name}: {self._solved} solved{failed}; {escape(outcome.task.identifier)} {word}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=line)
        elif not outcome.is_cached and (self._done % self._every == 0 or self._done == 1):
            typer.echo(f"{self._done}/{self._total} {line} ({outcome.record.seconds:.1f} s)", err=True)


def _describe(outcome: TaskOutcome) -> str:
    """`solved`, `failed`, or the label of the miss."""
    if outcome.record.failure:
        return "failed"
    task = outcome.task
    judgements = [
        check_step(task, step, attempt) for step, attempt in zip(task.steps, outcome.record.attempts, strict=False)
    ]
    return next((each.label or "missed" for each in judgements if not each.solved), "solved")
