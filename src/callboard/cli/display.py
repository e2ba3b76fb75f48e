"""Print a run for a person: the reply's text on standard output as it arrives, all else on standard error, a line each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

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
from callboard.text.display import collapse, strip_controls

_WIDTH = 120
_MESSAGE = 1000


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

    def show(self, event: Event) -> None:
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text):
                self._end_reasoning()
                self._out.write(strip_controls(text) if self._terminal else text)
                self._out.flush()
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
            case ReplyFailed(message=message, excerpt=excerpt, path=path, hint=hint):
                where = f" ({collapse(path, _MESSAGE)})" if path else ""
                helps = f"; {collapse(hint, _MESSAGE)}" if hint else ""
                self.tell(f"callboard: the provider failed: {collapse(message, _MESSAGE)}{where}{helps}", "31")
                if excerpt and self._verbose:
                    self.tell(f"   {collapse(excerpt)}", "31")
            case Note(code="failed_call") if not self._verbose:
                pass  # its result says so too
            case Note(kind=kind, text=text) if self._verbose or kind == "alert":
                self.tell(f"note ({kind}): {collapse(text)}", "33")
            case RoundStarted(number=number) if self._verbose:
                self.tell(f"round {number}", "2")
            case ReasoningPiece(text=text) if self._verbose:
                self._err.write(strip_controls(text))
                self._err.flush()
                self._in_reasoning = not text.endswith("\n") if text else self._in_reasoning
            case ReplyEnded():
                self._end_line()
            case RunEnded(usage=usage, cost=cost) if self._verbose:
                dollars = "" if cost is None else f", ${cost:.4f}"
                self.tell(f"{usage.input} tokens in, {usage.output} out{dollars}", "2")
            case _:
                pass

    def tell(self, line: str, color: str = "") -> None:
        """A line on standard error, behind whatever line of text is open, without what a terminal would obey."""
        line = strip_controls(line)
        self._end_line()
        self._end_reasoning()
        self._err.write(f"\x1b[{color}m{line}\x1b[0m\n" if self._color and color else f"{line}\n")
        self._err.flush()

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
    """A result's text; without text, what it holds instead."""
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
