"""Print a run: the reply's text on standard output as it arrives, everything else as lines on standard error."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TextIO

from callboard.cli.terminal import has_color
from callboard.coding.job import (
    ModelChanged,
    Notice,
    PhaseEnded,
    PhaseStarted,
    PromptSent,
    Resumed,
    Step,
    TreeSnapshot,
    encode_step,
)
from callboard.core import (
    ApprovalAnswered,
    Content,
    Event,
    FileContent,
    InvocationEnded,
    InvocationIncomplete,
    Note,
    PictureContent,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    TextualContent,
    ToolProgress,
)
from callboard.errors import reply_page
from callboard.jobs.job import DurableJob
from callboard.text.display import collapse, strip_controls

_WIDTH = 120
_MESSAGE = 1000
SILENCE: Final = 10.0
"""Seconds without output in a reply, after which a line says that the command waits. The wait then doubles."""
_POLL_SECONDS: Final = 0.5


class Display:
    """Shows events. `verbose` adds rounds, reasoning, progress, notes and usage; `color` is for a terminal."""

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, color: bool) -> None:
        self._out = out
        self._err = err
        self._verbose = verbose
        self._color = color
        self._terminal = out.isatty()
        self._in_line = False
        self._in_reasoning = False
        self._awaits_reply = False
        self._written_at = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, RoundStarted | ReplyEnded | ReplyFailed):
            self._awaits_reply = isinstance(event, RoundStarted)
            self._written_at = time.monotonic()
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text):
                self._end_reasoning()
                self._out.write(strip_controls(text) if self._terminal else text)
                self._out.flush()
                self._written_at = time.monotonic()
                self._in_line = not text.endswith("\n") if text else self._in_line
            case InvocationEnded(name=name, arguments=arguments, raw=raw):
                self.tell(f"-> {collapse(name)}({_format_arguments(arguments, raw)})", "36")
            case InvocationIncomplete(name=name, why=why):
                self.tell(f"-> {collapse(name) or 'a call'} (incomplete: {why})", "33")
            case ToolProgress(progress=progress, total=total, message=message) if self._verbose:
                far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
                self.tell(f".. {far} {collapse(message)}".rstrip(), "2")
            case ResultReady(canister=canister):
                self.tell(f"<- {collapse(result_text(canister)) or '(nothing)'}", "31" if canister.error else "32")
            case ApprovalAnswered(invocation=invocation, verdict=verdict) if verdict != "defer":
                self.tell(f"{collapse(invocation.name)}: {collapse(event.describe(), _MESSAGE)}", "2")
            case ReplyFailed(code=code, message=message, excerpt=excerpt, path=path, hint=hint):
                where = f" ({collapse(path, _MESSAGE)})" if path else ""
                page = "" if "; " in message else reply_page(code, hint)  # our messages end with their hints
                helps = f"; {collapse(hint, _MESSAGE)}" if hint else f"; see {page}" if page else ""
                self.tell(f"callboard: the provider failed: {collapse(message, _MESSAGE)}{where}{helps}", "31")
                if excerpt and self._verbose:
                    self.tell(f"   {collapse(excerpt)}", "31")
            case Note(code="failed_call") if not self._verbose:
                pass  # its result repeats it
            case Note(kind=kind, text=text) if self._verbose or kind == "alert":
                self.tell(f"note ({kind}): {collapse(text)}", "33")
            case RoundStarted(number=number) if self._verbose:
                self.tell(f"round {number}", "2")
            case ReasoningPiece(text=text) if self._verbose:
                self._err.write(strip_controls(text))
                self._err.flush()
                self._written_at = time.monotonic()
                self._in_reasoning = not text.endswith("\n") if text else self._in_reasoning
            case ReplyEnded():
                self._end_line()
            case RunEnded(usage=usage, cost=cost) if self._verbose:
                dollars = "" if cost is None else f", ${cost:.4f}"
                self.tell(f"{usage.input} tokens in, {usage.output} out{dollars}", "2")
            case _:
                pass

    def tell(self, line: str, color: str = "") -> None:
        """Print a line on standard error without control characters. End an open line of text first."""
        line = strip_controls(line)
        self._end_line()
        self._end_reasoning()
        self._err.write(f"\x1b[{color}m{line}\x1b[0m\n" if self._color and color else f"{line}\n")
        self._err.flush()
        self._written_at = time.monotonic()

    @asynccontextmanager
    async def report_silence(self) -> AsyncIterator[None]:
        """While this is open, report a model that is silent: after SILENCE seconds, then after twice as many."""
        task = asyncio.create_task(self._watch_silence())
        try:
            yield
        finally:
            task.cancel()

    async def _watch_silence(self) -> None:
        limit = SILENCE
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            seconds = time.monotonic() - (written_at := self._written_at) if self._awaits_reply else -1.0
            if seconds >= limit and not self._in_line:  # a line break would become part of the reply
                self.tell(f"waiting for the model: {seconds:.0f} s", "2")
                self._written_at = written_at
                limit *= 2
            elif seconds < SILENCE:
                limit = SILENCE

    def _end_line(self) -> None:
        if self._in_line:
            self._out.write("\n")
            self._out.flush()
            self._in_line = False

    def _end_reasoning(self) -> None:
        if self._in_reasoning:
            self._err.write("\n")
            self._err.flush()
            self._in_reasoning = False


def result_text(canister: ResultCanister) -> str:
    """Return a result's text, or a description of its other content."""
    return canister.text or " ".join([_describe_content(part) for part in canister.content])


def _describe_content(part: Content) -> str:
    match part:
        case PictureContent(data=data, mime_type=kind) | FileContent(data=data, mime_type=kind) if data:
            return f"[{len(data)} bytes of {kind}]"
        case TextualContent():
            return ""
        case _:
            return f"[{type(part).__name__}]"


def _format_arguments(arguments: Mapping[str, Any] | None, raw: str) -> str:
    if arguments is None:
        return collapse(raw)
    return collapse(", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()))


class JobDisplay(Display):
    """Shows the steps of a job, as text or as lines of JSON."""

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, as_json: bool) -> None:
        super().__init__(out, err, verbose=verbose, color=has_color(err))
        self.as_json = as_json

    def step(self, step: Step) -> None:

        if self.as_json:
            line = encode_step(step)
            # JSON may contain control characters that a terminal obeys.
            line = json.dumps(json.loads(line)).encode() if self._terminal else line
            self._out.buffer.write(line + b"\n")
            self._out.buffer.flush()
            return
        match step:
            case PhaseStarted(name=name, model=model):
                self.tell(f"== {name}{f': {model}' if model else ''}", "1")
            case ModelChanged(model=model, why=why):
                self.tell(f"== {model} continues: {collapse(why, 400)}", "1")
            case PhaseEnded(missing=missing):
                for each in missing:
                    self.tell(f"   missing: {collapse(each, 400)}", "33")
            case Notice(text=text):
                self.tell(text, "2")
            case Resumed():
                self.tell("continues where it stopped", "2")
            case PromptSent(text=text):
                if self._verbose:
                    self.tell(text, "2")
            case TreeSnapshot():
                pass  # only forks use it
            case _:
                self.show(step)

    def job(self, job: DurableJob) -> None:
        self._out.write(json.dumps({**job.as_json(), "type": "job"}) + "\n")
        self._out.flush()


def describe_count(number: int, noun: str) -> str:
    """Return the number with its noun, such as `1 call` or `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_safely(text: str) -> None:
    """Print the text; on a terminal without control characters."""
    sys.stdout.write(strip_controls(text) if sys.stdout.isatty() else text)
