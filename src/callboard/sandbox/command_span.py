"""The span of a command, where telemetry is on: `execute_command PROGRAM`.

Of the command only the program's name is told, and its arguments where content is asked for; of its output nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from pathlib import PurePath
from typing import Final

from callboard.sandbox.policy import Outcome
from callboard.telemetry import names, open_span
from callboard.telemetry.content import Clipper
from callboard.text.display import display

_MAX_NAME: Final = 60


async def observe_command(sandbox: str, command: Sequence[str], running: Awaitable[Outcome]) -> Outcome:
    """The outcome of a command that runs in a sandbox of this name."""
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
