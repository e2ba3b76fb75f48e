"""Print a run: the reply's text on standard output as it arrives, everything else as lines on standard error."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final, TextIO

from callboard.cli.diffs import show_edit
from callboard.cli.markdown import MarkdownView
from callboard.cli.status_line import REFRESH_SECONDS, RunActivity, StatusLine
from callboard.cli.terminal import find_width, has_color, paint, wrap
from callboard.coding.job import (
    FileEdited,
    ModelChanged,
    Notice,
    PhaseEnded,
    PhaseStarted,
    PromptSent,
    Resumed,
    Step,
    encode_step,
)
from callboard.core import (
    ApprovalAnswered,
    Content,
    FileContent,
    InvocationEnded,
    InvocationIncomplete,
    Model,
    Nested,
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
from callboard.providers.local.fill import HOLE
from callboard.text.display import collapse, strip_controls

_MESSAGE = 1000
SILENCE: Final = 10.0
"""Seconds without output in a reply, after which a line says that the command waits. The wait then doubles."""
_POLL_SECONDS: Final = 0.5
_SHORT: Final = 40
"""Maximum characters of an argument that is shown beside a diff, on one line."""
_HANGING: Final = {"-> ": "   ", "<- ": "   ", ".. ": "   "}
"""Indents of continuation lines by the beginning of a line. Other lines keep their own."""


class Display:
    """Shows events. `verbose` adds rounds, reasoning, progress, notes and usage; `color` is for a terminal.

    On a terminal, texts are rendered as Markdown, lines wrap at words, and a status line says what is waited for.
    `width` overrides the width of the terminal.
    """

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, color: bool, width: int = 0) -> None:
        self._out = out
        self._err = err
        self._verbose = verbose
        self._color = color
        self._terminal = out.isatty()
        self._markdown: MarkdownView | None = None
        self._width = width
        self._in_line = False
        self._in_reasoning = False
        self._awaits_reply = False
        self._written_at = 0.0
        self._status = StatusLine(err)
        self.activity = RunActivity()
        self.knows_edits = False
        """True if the steps have a `FileEdited` for each edit."""
        self._is_silent: dict[str, bool] = {}
        """Whether the result of a call is not shown: a diff says more, or a person need not read it."""
        self._reviewed: set[str] = set()
        """Files whose next change a person has seen as a diff."""
        self._start_reply()

    def await_model(self, name: str, model: Model) -> None:
        """Name the model that the status line waits for."""
        self.activity = RunActivity(name, model)

    def show(self, event: Step) -> None:
        """Show an event, or an edit of a file."""
        self.activity.feed(event)
        self._show(event)

    def _show(self, event: Step) -> None:
        if isinstance(event, RoundStarted | ReplyEnded | ReplyFailed):
            self._start_reply()
            self._awaits_reply = isinstance(event, RoundStarted)
            self._written_at = time.monotonic()
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text):
                self._write_text(text)
            case InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                kind = _classify(name, arguments) if self.knows_edits else ""
                is_look = kind == "look" and self._status.is_on and not self._verbose
                self._is_silent[identifier] = kind == "edit" or is_look  # some servers use an id again
                self.tell(f"-> {collapse(name)}({_format_arguments(arguments, raw, is_short=kind == 'edit')})", "36")
            case InvocationIncomplete(name=name, why=why):
                self.tell(f"-> {collapse(name) or 'a call'} (incomplete: {why})", "33")
            case Nested(name=name, event=InvocationEnded(name=inner, arguments=arguments, raw=raw)):
                shown = _format_arguments(arguments, raw, is_short=True)
                self.tell(f".. {collapse(name)}: {collapse(inner)}({shown})", "2")
            case ToolProgress(progress=progress, total=total, message=message) if self._verbose:
                far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
                self.tell(f".. {far} {collapse(message)}".rstrip(), "2")
            case FileEdited(path=path):
                show_edit(self, event, with_hunks=path not in self._reviewed)
                self._reviewed.discard(path)
            case ResultReady(canister=canister):
                if canister.error or not self._is_silent.get(canister.invocation_id):
                    self.tell(f"<- {_describe_result(canister)}", "31" if canister.error else "32")
            case ApprovalAnswered(invocation=invocation, verdict=verdict) if verdict != "defer":
                self.tell(f"{collapse(invocation.name)}: {collapse(event.describe(), _MESSAGE)}", "2")
            case ReplyFailed(code=code, message=message, excerpt=excerpt, path=path, hint=hint):
                where = f" ({collapse(path, _MESSAGE)})" if path else ""
                page = "" if "; " in message else reply_page(code, hint)  # our messages end with their hints
                helps = f"; {collapse(hint, _MESSAGE)}" if hint else f"; see {page}" if page else ""
                self.tell(f"callboard: the provider failed: {collapse(message, _MESSAGE)}{where}{helps}", "31")
                if excerpt and self._verbose:
                    self.tell(f"   {collapse(excerpt)}", "31")
            # The result of a failed call repeats its note.
            case Note(kind=kind, text=text, code=code) if self._verbose or (kind == "alert" and code != "failed_call"):
                self.tell(f"note ({kind}): {collapse(text)}", "33")
            case RoundStarted(number=number) if self._verbose:
                self.tell(f"round {number}", "2")
            case ReasoningPiece(text=text) if self._verbose:
                self._status.clear()
                self._err.write(strip_controls(text))
                self._err.flush()
                self._written_at = time.monotonic()
                self._in_reasoning = not text.endswith("\n") if text else self._in_reasoning
            case RunEnded(usage=usage, cost=cost) if self._verbose:
                dollars = "" if cost is None else f", ${cost:.4f}"
                self.tell(f"{usage.input} tokens in, {usage.output} out{dollars}", "2")
            case _:
                pass

    def tell(self, line: str, color: str = "") -> None:
        """Print a line on standard error without control characters. End an open line of text first."""
        line = strip_controls(line)
        self.end_text()
        self._end_reasoning()
        self._status.clear()
        if self._status.is_on:
            line = wrap(line, self._width or find_width(self._err), _HANGING.get(line[:3]))
        self._err.write(f"{paint(line, color, self._color)}\n")
        self._err.flush()
        self._written_at = time.monotonic()

    def mark_reviewed(self, paths: Iterable[str]) -> None:
        """Note that a person has seen the next change of these files as a diff."""
        self._reviewed.update(paths)

    def hold_status(self) -> AbstractContextManager[None]:
        """Show no status line while a person types."""
        return self._status.hold()

    @asynccontextmanager
    async def report_silence(self) -> AsyncIterator[None]:
        """While this is open, say what is waited for: on a terminal by the status line, elsewhere by lines.

        The first line comes after SILENCE seconds, each further line after twice as many.
        """
        task = asyncio.create_task(self._draw_status() if self._status.is_on else self._watch_silence())
        try:
            yield
        finally:
            task.cancel()
            self._status.clear()

    async def _draw_status(self) -> None:
        while True:
            if time.monotonic() - self._written_at > _POLL_SECONDS and self._markdown is not None:
                self._write(self._markdown.flush())
            if not (self._in_reasoning or (self._terminal and self._in_line)):
                self._status.draw(self.activity.describe())
            await asyncio.sleep(REFRESH_SECONDS)

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

    def _start_reply(self) -> None:
        self.end_text()
        # Each reply has its own width and its own fences: the terminal may be resized, and a reply may be cut off.
        self._markdown = MarkdownView(self._width or find_width(self._out)) if has_color(self._out) else None

    def _write_text(self, text: str) -> None:
        self._end_reasoning()
        if self._terminal:
            text = strip_controls(text)
        self._write(text if self._markdown is None else self._markdown.feed(text))
        self._written_at = time.monotonic()

    def _write(self, text: str) -> None:
        if text:
            self._status.clear()
            self._out.write(text)
            self._out.flush()
            self._in_line = not text.endswith("\n")

    def end_text(self) -> None:
        """End an open line of text."""
        if self._markdown is not None:
            self._write(self._markdown.finish())
        if self._in_line:
            self._write("\n")

    def _end_reasoning(self) -> None:
        if self._in_reasoning:
            self._err.write("\n")
            self._err.flush()
            self._in_reasoning = False


def result_text(canister: ResultCanister) -> str:
    """Return a result's text, or a description of its other content."""
    return canister.text or " ".join([_describe_content(part) for part in canister.content])


def _classify(name: str, arguments: Mapping[str, Any] | None) -> str:
    """Return "edit" for a call of our tools that edits files, "look" for one that only reads, else ""."""
    from callboard.coding.agents.apply_code_blocks import PUT_CODE  # noqa: PLC0415  # a quarter of a second
    from callboard.coding.agents.phases import READ_GROUPS, actions_of_groups  # noqa: PLC0415
    from callboard.coding.tools import single_action  # noqa: PLC0415

    action = single_action(name, arguments or {})
    if name == PUT_CODE or action in actions_of_groups(("edit",)):
        return "edit"
    return "look" if action in actions_of_groups(READ_GROUPS) else ""


_MISTAKES: Final = (
    ("ArgValidationError: ", ""),
    ("\n  ", ": "),
    ("\n", "; "),
    ("Extra inputs are not permitted", "unknown argument"),
    ("Field required", "missing"),
    ("Input should be", "expected"),
)
"""Words that models know, and those that people know."""


def _describe_result(canister: ResultCanister) -> str:
    """Return a result on one line. Mistakes in the arguments are said as people say them."""
    text = result_text(canister)
    for words, ours in _MISTAKES if canister.error and canister.error.category == "validation" else ():
        text = text.replace(words, ours)
    return collapse(text) or "(nothing)"


def _describe_content(part: Content) -> str:
    match part:
        case PictureContent(data=data, mime_type=kind) | FileContent(data=data, mime_type=kind) if data:
            return f"[{len(data)} bytes of {kind}]"
        case TextualContent():
            return ""
        case _:
            return f"[{type(part).__name__}]"


def _format_arguments(arguments: Mapping[str, Any] | None, raw: str, *, is_short: bool) -> str:
    """Return the arguments on one line; of an edit only the short ones, because its diff has the others."""
    if arguments is None:
        return collapse(raw)
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in arguments.items()}
    if is_short:
        values = {key: value for key, value in values.items() if len(value) <= _SHORT and "\\n" not in value}
    return collapse(", ".join(f"{key}={value}" for key, value in values.items()))


class JobDisplay(Display):
    """Shows the steps of a job, as text or as lines of JSON."""

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, as_json: bool, width: int = 0) -> None:
        super().__init__(out, err, verbose=verbose, color=has_color(err), width=width)
        self.as_json = as_json
        self.knows_edits = True
        self._is_fill = False
        """Whether the model was asked for a single line. Most of these lines are tested and do not help."""
        self._edits_of_fill: list[Step] = []
        """The edit of such a line. The edit is shown if the line helps."""

    def step(self, step: Step) -> None:
        """Show a step."""
        if self.as_json:
            line = encode_step(step)
            # JSON may contain control characters that a terminal obeys.
            line = json.dumps(json.loads(line)).encode() if self._terminal else line
            self._out.buffer.write(line + b"\n")
            self._out.buffer.flush()
            return
        self.activity.feed(step)
        if isinstance(step, PromptSent):
            self._is_fill, self._edits_of_fill = HOLE in step.text and not self._verbose, []
        match step:
            case Notice(text="running the tests") | TextPiece() | ReplyFailed() if self._is_fill:
                return
            case InvocationEnded() | FileEdited() | ResultReady() if self._is_fill:
                self._edits_of_fill.append(step)
                return
            case Notice() | PhaseEnded(missing=()):
                for edit_step in self._edits_of_fill:
                    self._show(edit_step)
                self._edits_of_fill = []
            case _:
                pass
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
            case _:
                self._show(step)

    def job(self, job: DurableJob) -> None:
        self._out.write(json.dumps({**job.as_json(), "type": "job"}) + "\n")
        self._out.flush()


def print_safely(text: str) -> None:
    """Print the text; on a terminal without control characters."""
    sys.stdout.write(strip_controls(text) if sys.stdout.isatty() else text)
