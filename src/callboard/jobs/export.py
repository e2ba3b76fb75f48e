"""Write the steps of a job into a folder that a person can read.

`JobExport` writes `events.jsonl` and numbered files: `001-prompt.txt`, `002-response.txt`, `003-tool-calls.json`,
`004-tool-results.json`, ...
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from callboard.coding.job import PromptSent, Step, encode_step
from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
)
from callboard.text.surrogates import escape_surrogates

EVENTS: Final = "events.jsonl"


class JobExport:
    """The files of a job in an empty folder, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self._events = (folder / EVENTS).open("wb")
        self._prompt: list[str] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_reply()
        self._end_round()
        self._events.close()

    def add(self, step: Step) -> None:
        """Write a step."""
        self._events.write(encode_step(step) + b"\n")
        match step:
            case PromptSent(text=text):
                self._end_round()
                self._prompt.append(text)
            case RoundStarted():
                self._end_round()
                self._write("prompt.txt", "\n\n".join(self._prompt))
                self._prompt = []
            case TextPiece(text=text):
                self._text.append(text)
            case ReasoningPiece(text=text):
                self._reasoning.append(text)
            case InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                self._names[identifier] = name
                self._calls.append({"id": identifier, "tool": name, "args": raw if arguments is None else arguments})
            case InvocationIncomplete(identifier=identifier, name=name, raw=raw, why=why):
                self._names[identifier] = name
                self._calls.append({"id": identifier, "tool": name, "args": raw, "incomplete": why})
            case ReplyEnded() | ReplyFailed():
                self._end_reply()
            case ResultReady(canister=canister):
                self._end_calls()
                self._add_result(canister)
            case RunEnded():
                self._end_round()
            case _:
                pass

    def _add_result(self, canister: ResultCanister) -> None:
        name = self._names.pop(canister.invocation_id, "")
        error = canister.error
        result = {"id": canister.invocation_id, "tool": name, "success": error is None, "output": canister.text}
        self._results.append(result if error is None else {**result, "error": error.category})
        number = len(self._results)
        if error is None:
            self._prompt.append(f"Tool {number} ({name}) output:\n{canister.text}")
        else:
            self._prompt.append(f"Tool {number} ({name}) failed: {error.message}")

    def _end_reply(self) -> None:
        if self._text or self._reasoning or self._calls:
            reasoning = f"<think>\n{''.join(self._reasoning)}\n</think>\n" if self._reasoning else ""
            self._write("response.txt", reasoning + "".join(self._text))
        self._text, self._reasoning = [], []
        self._end_calls()

    def _end_calls(self) -> None:
        if self._calls:
            self._write("tool-calls.json", json.dumps(self._calls, indent=2, ensure_ascii=False))
            self._calls = []

    def _end_round(self) -> None:
        if self._results:
            self._write("tool-results.json", json.dumps(self._results, indent=2, ensure_ascii=False))
            self._results = []

    def _write(self, kind: str, text: str) -> None:
        self._count += 1
        (self.folder / f"{self._count:03}-{kind}").write_text(escape_surrogates(text), encoding="utf-8")
