"""Record answers, so that a stopped run can continue and nothing is asked twice.

A record is one line of JSON: a task, a variant, the model's attempts at each step, and a key of the question. A file
belongs to one model.

Laws: a record is on disk when `append` returns. If a file was cut in the middle of a line, the complete lines are read,
and new records are appended after the cut. The key has everything that can change an answer: the model's identity, the
lowered request of the first step, the facts of the variant, the task, and the code that asks further questions.

The key has the lowered request instead of a version number, because somebody could change a prompt and forget the
number. Then old answers would count for the new prompt.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.core import Controls, Request
from callboard.errors import CallerError
from callboard.evaluation.task import Attempt, Task, encode_task
from callboard.evaluation.variants import Variant
from callboard.modes import Plan, lower_request
from callboard.profiles import Profile
from callboard.storage.directories import data_directory
from callboard.text.truncate import truncate

MAX_LINE: Final = 8 * 1024 * 1024
"""Maximum bytes of a record. A longer line is skipped, and its task is asked again."""
_NAME: Final = 80
"""Maximum characters of the model in a file's name."""
_DIGEST: Final = 32
_DECIDING: Final = ("gate.py", "grounding.py")
"""Modules of `callboard.modes.filters` that ask further questions, or judge calls before they are made."""
_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=dict).encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attempts at one task in one variant, one for each step that was asked."""

    key: str
    variant: str
    suite: str
    category: str
    task: str
    attempts: tuple[Attempt, ...]

    @property
    def failure(self) -> str:
        """Reason why the endpoint did not answer, "" if the model answered each step that was asked."""
        return next((each.failure for each in self.attempts if each.failure), "")

    @property
    def seconds(self) -> float:
        """Seconds of all replies."""
        return sum(each.seconds for each in self.attempts)

    @property
    def tokens(self) -> int:
        """Input and output tokens of all replies."""
        return sum(each.usage.input + each.usage.output for each in self.attempts)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class RecordFile:
    """The records of one model on disk. Several processes may append to one file.

    Args:
        path: The file. The first record creates the file and its folder, which only the owner can read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, model: str) -> RecordFile:
        """Return the file for a model's name."""
        plain = "".join([each if each.isalnum() or each in "-._" else "_" for each in truncate(model, _NAME, "")])
        digest = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return cls(evaluation_directory() / "answers" / f"{plain}-{digest}.jsonl")

    def read(self) -> dict[str, Record]:
        """Return the records by their keys. A later record replaces an earlier one. Skip lines that are not records."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        return {record.key: record for line in data.split(b"\n") for record in _decode(line)}

    def append(self, record: Record) -> None:
        """Append a record. Raises CallerError if it cannot be written."""
        try:
            append_line(self.path, _encoder.encode(record))
        except OSError as error:
            hint = "free some space; answers are saved, and the same command continues"
            raise CallerError(error.strerror or "cannot be written", path=str(self.path), hint=hint) from None


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file that only its owner can read. End an incomplete last line first. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.lseek(file, 0, os.SEEK_END)
        is_cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        rest = memoryview(b"\n" * is_cut + line + b"\n")
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def evaluation_directory() -> Path:
    """Return `${XDG_DATA_HOME:-~/.local/share}/callboard/evaluation`, with tasks, and answers in `answers`."""
    return data_directory() / "evaluation"


def make_key(
    identity: str, variant: Variant, task: Task, *, plan: Plan, profile: Profile | None, controls: Controls
) -> str:
    """Return the key of a question to a model.

    Args:
        identity: The model: its name and the digest of its file, or its endpoint and the endpoint's version.
        variant: The variant.
        task: The task.
        plan: The plan for the profile.
        profile: The profile with the variant's facts, None if it is not known.
        controls: The sampling of replies.
    """
    canisters = task.steps[0].canisters if task.steps else ()
    request = Request("", canisters, task.tools, controls=controls)
    parts: list[Any] = [
        identity,
        variant.facts,
        encode_task(task),
        lower_request(request, plan),
        profile,
        _digest_sources(),
    ]
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else _encode_sorted(part)
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()[:_DIGEST]


@cache
def _digest_sources() -> str:
    """Return the digest of the code that asks further questions, because the first request does not contain them."""
    digest = hashlib.sha256()
    for name in _DECIDING:
        digest.update(files("callboard.modes.filters").joinpath(name).read_bytes())
    return digest.hexdigest()


def _decode(line: bytes) -> Iterator[Record]:
    if not line.strip() or len(line) > MAX_LINE:
        return
    try:
        yield _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
