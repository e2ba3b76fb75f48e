"""The last line of a terminal: the model or the tool that the command waits for, and for how long.

The line is cleared before each output. It is not drawn if standard error is not a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

from callboard.cli.terminal import crop, find_width, has_color, paint
from callboard.coding.job import ModelChanged, Notice, PhaseStarted, Step
from callboard.core import (
    ApprovalAsked,
    ArgumentsPiece,
    InvocationEnded,
    Model,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    Usage,
)
from callboard.modes import get_plan
from callboard.text.display import display
from callboard.text.duration import format_clock

REFRESH_SECONDS: Final = 0.2
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR: Final = "\r\x1b[K"
_MAX_NAME: Final = 60
_MAX_TOOLS: Final = 3
_LOCAL: Final = "local:"


class RunActivity:
    """The present activity of a run, by its steps: the model or the tools that it waits for, its tokens and its cost."""

    def __init__(self, name: str = "", model: Model | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = display(name.partition(",")[0].strip(), _MAX_NAME)
        self._prices = get_plan(model).prices
        self._clock = clock
        self.hint: Callable[[], str] = lambda: "Ctrl-C stops"
        """Returns what Ctrl-C does."""
        self._phase = ""
        self._round = 0
        self._replies = 0
        self._work = ""
        """The model or the tools that the run waits for, "" for none."""
        self._since = 0.0
        self._calls: dict[str, str] = {}
        self._tokens = 0
        self._cost = 0.0

    def feed(self, step: Step) -> None:
        """Note a step."""
        match step:
            case PhaseStarted(name=phase, model=model):
                self._phase, self._round = phase, 0
                self._name = display(model, _MAX_NAME) or self._name
                self._begin("preparing")
            case ModelChanged(model=model):
                self._name = display(model, _MAX_NAME)
            case RoundStarted(number=number):
                self._round, self._calls = number, {}
                is_first, self._replies = not self._replies, self._replies + 1
                reads = f"{'loading and ' if is_first else ''}reading the prompt"
                self._begin(f"{self._name}, {reads}" if self._name.startswith(_LOCAL) else self._name or "the model")
            case TextPiece() | RefusalPiece() | ArgumentsPiece() if self._work:
                self._work = f"{self._name}, writing".removeprefix(", ")
            case ReasoningPiece() if self._work:
                self._work = f"{self._name}, thinking".removeprefix(", ")
            case InvocationEnded(identifier=identifier, name=name):
                self._calls[identifier] = display(name, _MAX_NAME)
            case Usage():
                self._tokens += step.input + step.output
                self._cost += (self._prices.cost(step, datetime.now(UTC)) or 0.0) if self._prices else 0.0
            case ReplyEnded():
                self._begin(self._describe_calls())
            case ResultReady(canister=canister):
                self._calls.pop(canister.invocation_id, None)
                self._work = self._describe_calls()
            case Notice(text=text):
                self._begin(text if text == "running the tests" else self._work)
            case ReplyFailed() | RunEnded() | ApprovalAsked():
                self._work = ""
            case _:
                pass

    def describe(self) -> str:
        """Return what is waited for, "" for nothing."""
        if not self._work:
            return ""
        parts = [
            self._phase,
            f"step {self._round}" if self._phase and self._round else "",
            self._work,
            f"{self._tokens:,} tokens" if self._phase and self._tokens else "",
            f"${self._cost:.2f}" if self._phase and self._cost else "",
            format_clock(self._clock() - self._since),
            self.hint(),
        ]
        return ", ".join([part for part in parts if part])

    def _begin(self, work: str) -> None:
        self._work, self._since = work, self._clock()

    def _describe_calls(self) -> str:
        names = [*self._calls.values()]
        more = f" and {len(names) - _MAX_TOOLS} more" if len(names) > _MAX_TOOLS else ""
        return ", ".join(names[:_MAX_TOOLS]) + more


class StatusLine:
    """Draws a line on the last row of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_on = stream.isatty()
        self._is_drawn = False
        self._frame = 0
        self._holders = 0

    def draw(self, text: str) -> None:
        """Draw the line, or clear it if there is no text."""
        if not self.is_on or self._holders:
            return
        if not text:
            self.clear()
            return
        self._frame = (self._frame + 1) % len(_FRAMES)
        line = crop(f"{_FRAMES[self._frame]} {text}", find_width(self._stream) - 1)
        self._stream.write(_CLEAR + paint(line, "2", has_color(self._stream)))
        self._stream.flush()
        self._is_drawn = True

    def clear(self) -> None:
        """Clear the line before an output."""
        if self._is_drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_drawn = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Draw nothing, because a person types."""
        self.clear()
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
