"""A run, as a person at a terminal sees it.

Owns which event is shown where and how: the reply's text on standard output as it arrives, all else on
standard error, a line each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationIncomplete,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
)

_WIDTH = 120


class Display:
    """Shows events. `verbose` adds rounds, reasoning, notes and usage; `color` is for a terminal."""

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, color: bool) -> None:
        self._out = out
        self._err = err
        self._verbose = verbose
        self._color = color
        self._in_line = False

    def show(self, event: Event) -> None:
        match event:
            case TextPiece(text=text) | RefusalPiece(text=text):
                self._out.write(text)
                self._out.flush()
                self._in_line = not text.endswith("\n") if text else self._in_line
            case InvocationEnded(name=name, arguments=arguments, raw=raw):
                self.tell(f"-> {name}({_arguments(arguments, raw)})", "36")
            case InvocationIncomplete(name=name, why=why):
                self.tell(f"-> {name or 'a call'} (incomplete: {why})", "33")
            case ResultReady(canister=canister):
                text = canister.text or f"[{', '.join(type(part).__name__ for part in canister.content)}]"
                self.tell(f"<- {_line(text)}", "31" if canister.error else "32")
            case ReplyFailed(message=message, excerpt=excerpt):
                self.tell(f"the provider failed: {message}", "31")
                if excerpt and self._verbose:
                    self.tell(f"   {_line(excerpt)}", "31")
            case Note(kind=kind, text=text) if self._verbose or kind == "alert":
                self.tell(f"note ({kind}): {_line(text)}", "33")
            case RoundStarted(number=number) if self._verbose:
                self.tell(f"round {number}", "2")
            case ReasoningPiece(text=text) if self._verbose:
                self._err.write(text)
                self._err.flush()
            case ReplyEnded():
                self._end_line()
            case RunEnded(usage=usage) if self._verbose:
                self.tell(f"{usage.input} tokens in, {usage.output} out", "2")
            case _:
                pass

    def tell(self, line: str, color: str = "") -> None:
        """A line on standard error, behind whatever line of text is open."""
        self._end_line()
        self._err.write(f"\x1b[{color}m{line}\x1b[0m\n" if self._color and color else f"{line}\n")
        self._err.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._out.write("\n")
            self._out.flush()
            self._in_line = False


def _arguments(arguments: Mapping[str, Any] | None, raw: str) -> str:
    if arguments is None:
        return _line(raw)
    return _line(", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()))


def _line(text: str) -> str:
    """One line, without what a terminal would obey."""
    plain = "".join([char if char.isprintable() else " " for char in text[: 4 * _WIDTH]])
    line = " ".join(plain.split())
    return line if len(line) <= _WIDTH and len(text) <= 4 * _WIDTH else f"{line[:_WIDTH]} ... ({len(text)} characters)"
