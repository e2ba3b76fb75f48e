"""The log of a job's steps.

`JobLog` writes the numbered files of a job's record (`001-prompt.txt`, `002-response.txt`, `003-tool-calls.json`,
`004-tool-results.json`, ...), and `events.jsonl`, which `replay_steps` reads.

Law: files are only added to; a round costs what the round is long.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, TypeAlias

import msgspec

from callboard.coding.jobs.json_encoding import encode_json, escape_surrogates
from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
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
)
from callboard.errors import CallerError

EVENTS: Final = "events.jsonl"
MAX_REPLY: Final = 32 * 1024 * 1024
"""Characters of one reply that are recorded."""


class PhaseStarted(msgspec.Struct, frozen=True, tag_field="type", tag="phase_started"):
    """A phase begins; `rounds` is how many replies it may take."""

    name: str
    rounds: int


class PhaseEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="phase_ended"):
    """A phase is over; `missing` is what its evidence lacks, empty where all of it holds."""

    name: str
    missing: tuple[str, ...] = ()


class Notice(msgspec.Struct, frozen=True, tag_field="type", tag="notice"):
    """Callboard's own words to the user."""

    text: str


class PromptSent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="prompt_sent"):
    """The model was sent a prompt: a task, or what is missing; `pictures` are what a person showed with it."""

    text: str
    pictures: tuple[PictureContent, ...] = ()


class TreeSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tree_snapshot"):
    """The job's files and notes as they are behind a round: a fork of the round begins with them."""

    tree: str
    """The id of a git tree, whose objects are in the job's folder."""
    memory: dict[str, Any] = {}


class RoundMeasured(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="round_measured"):
    """What the round before took. `ended_at` has the times at which its calls got their results, where these do not say."""

    number: int
    began_at: datetime
    replied_at: datetime
    usage: dict[str, int] = {}
    cost: float | None = None
    """In US dollars, None where it is not known."""
    ended_at: dict[str, datetime] = {}


class Resumed(msgspec.Struct, frozen=True, tag_field="type", tag="resumed"):
    """Another process goes on with the job: a reply that was not whole is void, and so is nothing else."""


Step: TypeAlias = Event | PhaseStarted | PhaseEnded | Notice | PromptSent | TreeSnapshot | RoundMeasured | Resumed
"""What happens in a job."""

_BLOCK: Final = 64 * 1024
_PIECES: Final = (TextPiece, ReasoningPiece, RefusalPiece, ArgumentsPiece)
"""They come by the thousand, so they are not flushed one by one: other processes see them when the reply is over."""

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Step)


class JobLog:
    """The log in a job's folder, as a context manager. An existing log is added to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = _last_number(folder)
        self._events = _open_to_append(folder / EVENTS)
        self._prompt: list[str] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_reply()
        self._end_round()
        self._events.close()

    def add(self, step: Step) -> None:
        """Records a step. Raises CallerError for a reply that is longer than `MAX_REPLY`."""
        self._check_length(step)
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
        if not isinstance(step, _PIECES):
            self._events.flush()

    def _check_length(self, step: Step) -> None:
        match step:
            case RoundStarted():
                self._length = 0
            case TextPiece(text=text) | ReasoningPiece(text=text) | RefusalPiece(text=text) | ArgumentsPiece(json=text):
                self._length += len(text)
            case _:
                pass
        if self._length > MAX_REPLY:
            raise CallerError(f"the model's reply has more than {MAX_REPLY:,} characters", path=str(self.folder))

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


def _open_to_append(path: Path) -> IO[bytes]:
    """The file, without a last line that was cut: a process may have died while it wrote it."""
    file = path.open("a+b")
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        end = begin + newline + 1 if newline >= 0 else begin
        if newline >= 0:
            break
    file.truncate(end)
    file.seek(0, os.SEEK_END)
    return file


def replay_steps(folder: Path) -> Iterator[Step]:
    """The recorded steps of a job. A last line that was cut is left out. Raises CallerError."""
    path = folder / EVENTS
    if not path.is_file():
        raise CallerError("nothing was recorded", path=str(folder))
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise CallerError(f"not a step of a job: {error}", path=f"{path}:{number}") from None


def encode_step(step: Step) -> bytes:
    """The step as one line of JSON, without the line break."""
    return encode_json(step)


def _last_number(folder: Path) -> int:
    numbers = [re.match(r"\d{3,}(?=-)", path.name) for path in folder.iterdir()]
    return max([int(each.group()) for each in numbers if each], default=0)
