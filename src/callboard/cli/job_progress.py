"""How far a durable job is, in one line: its state, phase and round, the tool under way, tokens, cost and time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from callboard.core import InvocationCanister, InvocationEnded, ResultCanister, ResultReady, RolledBack
from callboard.core.ports import Clock
from callboard.profiles import format_cost
from callboard.text.display import escape

if TYPE_CHECKING:
    from callboard.jobs.entries import JobEntry
    from callboard.jobs.job import JobSummary

_MOST_TOOLS = 3
"""Tools under way that are named."""


class JobProgress:
    """What the line says; rich asks for it anew at each refresh, so that the time goes on.

    The tools under way are known from the entries: calls without a result.
    """

    def __init__(self, clock: Clock) -> None:
        self.job: JobSummary | None = None
        self._clock = clock
        self._calls: dict[str, str] = {}

    def add(self, entry: JobEntry) -> None:
        """Note which calls an entry begins or ends."""
        match entry.item:
            case (
                InvocationCanister(identifier=identifier, name=name) | InvocationEnded(identifier=identifier, name=name)
            ):
                self._calls[identifier] = name
            case ResultCanister(invocation_id=identifier):
                self._calls.pop(identifier, None)
            case ResultReady(canister=canister):
                self._calls.pop(canister.invocation_id, None)
            case RolledBack():
                self._calls.clear()
            case _:
                pass

    def describe(self) -> str:
        """The line."""
        job = self.job
        if job is None:
            return ""
        usage = job.usage
        tokens = f"{usage.get('input', 0):,} tokens in, {usage.get('output', 0):,} out"
        parts = [
            f"{job.state} {escape(job.phase)}".strip(),
            f"round {job.rounds}",
            "" if job.has_ended else self._describe_tools(),
            f"{job.calls} calls",
            tokens,
            format_cost(job.cost),
            self._describe_time(job),
        ]
        return " · ".join([part for part in parts if part])

    def _describe_tools(self) -> str:
        names = [*self._calls.values()]
        more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
        return escape(", ".join(names[:_MOST_TOOLS])) + more

    def _describe_time(self, job: JobSummary) -> str:
        end: datetime = job.completed_at or self._clock()
        return describe_seconds((end - (job.started_at or job.created_at)).total_seconds())

    def __rich__(self) -> Any:
        """What rich draws."""
        from rich.text import Text  # noqa: PLC0415  # rich costs 50 ms

        return Text(self.describe(), style="dim", no_wrap=True, overflow="ellipsis")


def describe_seconds(seconds: float) -> str:
    """Such as `7 s`, `2:05` or `3:02:05`."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"
