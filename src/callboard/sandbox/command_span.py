"""The span of a command, where telemetry is on: `execute_command PROGRAM`.

Of the command only the program's name is told, and its arguments where content is asked for; of its output nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from pathlib import PurePath
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias

from callboard.sandbox.policy import Outcome
from callboard.telemetry import names, open_span, switch
from callboard.telemetry.content import Clipper
from callboard.text.display import display

P = ParamSpec("P")
_MAX_NAME: Final = 60


class _HasName(Protocol):
    name: str


Run: TypeAlias = Callable[Concatenate[Any, Sequence[str], P], Coroutine[Any, Any, Outcome]]


def observe_commands(run: Run[P]) -> Run[P]:
    """Make the method of a sandbox that runs a command make a span of it."""

    @wraps(run)
    async def run_in_span(sandbox: _HasName, command: Sequence[str], /, *args: P.args, **options: P.kwargs) -> Outcome:
        running = run(sandbox, command, *args, **options)
        return await running if switch.recorder is None else await _observe(sandbox.name, command, running)

    return run_in_span


async def _observe(sandbox: str, command: Sequence[str], running: Awaitable[Outcome]) -> Outcome:
    program = display(PurePath(command[0]).name, _MAX_NAME) if command else ""
    with open_span(
        f"execute_command {program}", attributes={names.PROCESS_NAME: program, names.SANDBOX: sandbox}
    ) as span:
        if span.max_content:
            clip = Clipper(span.max_content)
            span.set({names.PROCESS_ARGUMENTS: [clip.text(each) for each in command]})
        outcome = await running
        if outcome.code is not None:
            span.set({names.PROCESS_EXIT_CODE: outcome.code})
        if outcome.stop_reason:
            span.set({names.STOP_REASON: outcome.stop_reason})
            span.fail(outcome.stop_reason)
        return outcome
