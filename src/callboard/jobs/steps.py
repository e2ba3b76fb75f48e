"""The entries of a job as steps, as readable files, and as a trace.

An entry that is a step is used unchanged. A canister becomes its original events. Law: each entry is shown
once, even if a prompt is both a step and in the conversation.

`JobExport` writes `events.jsonl` and numbered files: `001-prompt.txt`, `002-response.txt`, `003-tool-calls.json`,
`004-tool-results.json`, ...

`build_trace` reports a job's time, tokens and cost. Law: the trace has each round and each call once, in the order of
their starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from callboard import core
from callboard.coding.job import ModelChanged, PhaseStarted, PromptSent, Step, encode_step
from callboard.jobs.entries import JobEntry
from callboard.text.surrogates import escape_surrogates

CallState: TypeAlias = Literal["done", "failed", "open"]
"""State of a call; an open call has no result."""
_THIN: Final = 1e-6
"""Minimum width of a bar."""
MAX_FAILURE: Final = 300
"""Maximum characters of the reason why a call failed."""


class CallSpan(msgspec.Struct, kw_only=True):
    """One call. Its start is the end of its reply, because calls of one reply may wait for each other."""

    identifier: str
    name: str
    began_at: datetime | None = None
    ended_at: datetime | None = None
    state: CallState = "open"
    failure: str = ""

    @property
    def seconds(self) -> float | None:
        """Duration in seconds, None if it is not known."""
        return _seconds(self.began_at, self.ended_at)


class RoundSpan(msgspec.Struct, kw_only=True):
    """One round: the reply and its calls."""

    number: int
    phase: str = ""
    model: str = ""
    """The model, if it is not the job's own."""
    began_at: datetime | None = None
    replied_at: datetime | None = None
    usage: dict[str, int] = {}
    cost: float | None = None
    calls: list[CallSpan] = []

    @property
    def seconds(self) -> float | None:
        """Seconds that the model took, None if they are not known."""
        return _seconds(self.began_at, self.replied_at)

    @property
    def ended_at(self) -> datetime | None:
        return max([each for each in (self.replied_at, *[call.ended_at for call in self.calls]) if each], default=None)


def build_trace(entries: Iterable[JobEntry]) -> list[RoundSpan]:
    """Return the rounds of a job. Raises CallerError for a line that is not an entry."""
    rounds: list[RoundSpan] = []
    calls: dict[str, CallSpan] = {}
    phase, model, last_round = "", "", 0
    for entry in entries:
        item = entry.item
        match item:
            case PhaseStarted():
                phase, model = item.name, item.model
            case ModelChanged():
                model = item.model
            case core.AssistantCanister() | core.InvocationCanister():
                if not rounds or entry.round != last_round:
                    rounds.append(RoundSpan(number=len(rounds) + 1, phase=phase, model=model))
                last_round, span = entry.round, rounds[-1]
                if isinstance(item, core.InvocationCanister):
                    calls[item.identifier] = CallSpan(identifier=item.identifier, name=item.name)
                    span.calls.append(calls[item.identifier])
                if (took := entry.took) is not None:
                    span.began_at, span.replied_at = took.began_at, item.timestamp or took.began_at
                    span.usage, span.cost = took.usage, took.cost
                    for call in span.calls:
                        call.began_at = span.replied_at
            case core.ResultCanister(invocation_id=identifier, error=error) if identifier in calls:
                call = calls.pop(identifier)
                call.state, call.ended_at = "done" if error is None else "failed", item.timestamp
                call.failure = "" if error is None else f"{error.category}: {error.message}"[:MAX_FAILURE]
            case _:
                pass
    return rounds


def place_spans(rounds: list[RoundSpan]) -> Iterator[tuple[RoundSpan | CallSpan, float, float]]:
    """Yield each round and call with the start and width of its bar, as fractions of the whole time.

    Waits between rounds, such as those for a person, have no width.
    """
    whole = sum_seconds(rounds)
    offset = 0.0
    for each in rounds:
        yield each, *_fractions(offset, each.seconds, whole)
        for call in each.calls:
            yield call, *_fractions(offset + (each.seconds or 0.0), call.seconds, whole)
        offset += sum_seconds([each])


def sum_seconds(rounds: Iterable[RoundSpan]) -> float:
    """Return the seconds of rounds, with their calls."""
    return sum([max(_seconds(each.began_at, each.ended_at) or 0.0, 0.0) for each in rounds])


def _fractions(offset: float, seconds: float | None, whole: float) -> tuple[float, float]:
    return (0.0, 0.0) if seconds is None or not whole else (offset / whole, max(seconds / whole, _THIN))


def describe_trace(rounds: list[RoundSpan]) -> list[dict[str, Any]]:
    """Return the rounds as JSON."""
    return [
        {
            **msgspec.to_builtins(each),
            "seconds": each.seconds,
            "calls": [{**msgspec.to_builtins(call), "seconds": call.seconds} for call in each.calls],
        }
        for each in rounds
    ]


def _seconds(began_at: datetime | None, ended_at: datetime | None) -> float | None:
    return None if began_at is None or ended_at is None else (ended_at - began_at).total_seconds()


EVENTS: Final = "events.jsonl"


class JobExport:
    """Writes the files of a job to an empty folder, as a context manager."""

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

    def __exit__(self, *_: object) -> None:
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
            case core.RoundStarted():
                self._end_round()
                self._write("prompt.txt", "\n\n".join(self._prompt))
                self._prompt = []
            case core.TextPiece(text=text):
                self._text.append(text)
            case core.ReasoningPiece(text=text):
                self._reasoning.append(text)
            case core.InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                self._names[identifier] = name
                self._calls.append({"id": identifier, "tool": name, "args": raw if arguments is None else arguments})
            case core.InvocationIncomplete(identifier=identifier, name=name, raw=raw, why=why):
                self._names[identifier] = name
                self._calls.append({"id": identifier, "tool": name, "args": raw, "incomplete": why})
            case core.ReplyEnded() | core.ReplyFailed():
                self._end_reply()
            case core.ResultReady(canister=canister):
                self._end_calls()
                self._add_result(canister)
            case core.RunEnded():
                self._end_round()
            case _:
                pass

    def _add_result(self, canister: core.ResultCanister) -> None:
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


class EntrySteps:
    """A stage from entries to steps. Feed it all entries of a job in order, and then call `finish`."""

    def __init__(self) -> None:
        self._has_prompt = False
        """True if a step had the prompt of the next round."""
        self._has_round = False
        """True if a step started the next round."""
        self._round = 0
        """Round of the open reply, 0 for none."""
        self._calls = 0

    def feed(self, entry: JobEntry) -> list[Step]:
        """Return the steps of an entry. Raises CallerError if its line is not an entry."""
        item = entry.item
        match item:
            case core.AssistantCanister() | core.InvocationCanister():
                return [*self._begin_reply(entry.round), *self._convert_reply(item)]
            case core.ResultCanister():
                return [*self.finish(), core.ResultReady(item)]
            case core.UserCanister() if self._has_prompt:
                self._has_prompt = False
                return self.finish()
            case core.UserCanister() | core.SupervisorCanister() | core.DocumentCanister():
                return [*self.finish(), PromptSent(item.text)]
            case _:
                self._has_prompt = self._has_prompt or isinstance(item, PromptSent)
                self._has_round = self._has_round or isinstance(item, core.RoundStarted)
                return [*self.finish(), item]

    def finish(self) -> list[Step]:
        """Return the end of an open reply."""
        if not self._round:
            return []
        self._round = 0
        return [core.ReplyEnded("invocations" if self._calls else "stop")]

    def _begin_reply(self, number: int) -> list[Step]:
        if self._round == number:
            return []
        steps = self.finish()
        if not self._has_round:
            steps.append(core.RoundStarted(number))
        self._has_round = self._has_prompt = False
        self._round, self._calls = number, 0
        return steps

    def _convert_reply(self, item: core.AssistantCanister | core.InvocationCanister) -> list[Step]:
        if isinstance(item, core.AssistantCanister):
            return [piece for part in item.content if (piece := _to_piece(part))]
        self._calls += 1
        return [core.InvocationEnded(self._calls - 1, item.identifier, item.name, item.arguments, item.raw)]


def read_steps(entries: Iterable[JobEntry]) -> Iterator[Step]:
    """Yield the steps of a job. Raises CallerError if a line is not an entry."""
    stage = EntrySteps()
    for entry in entries:
        yield from stage.feed(entry)
    yield from stage.finish()


def _to_piece(part: core.Content) -> Step | None:
    match part:
        case core.TextualContent(text=text):
            return core.TextPiece(text)
        case core.ReasoningContent(text=text):
            return core.ReasoningPiece(text)
        case core.RefusalContent(text=text):
            return core.RefusalPiece(text)
        case _:
            return None
