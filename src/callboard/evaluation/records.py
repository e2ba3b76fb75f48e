"""Keep what was asked, so that a run that was stopped goes on and nothing is asked twice.

A record is one line of JSON: a task, a variant, what the model did at each step, and the key of what it was asked.
A file belongs to one model.

Laws: what was appended is on disk when `append` returns. A file that was cut in the middle of a line is read up to
there, and goes on behind it. Whatever would change an answer is in the key: the model's identity, what the request of the
first step became for the endpoint, the facts of the variant, the task, and the code that asks further questions.

Why the request as it was lowered and not a version that somebody has to raise: a prompt that was changed without a word
would show old answers as its own.
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
"""Bytes of a record that is read; a longer line is skipped, and the task asked again."""
_NAME: Final = 80
"""Characters of a file's name."""
_DIGEST: Final = 32
_DECIDING: Final = ("gate.py", "grounding.py")
"""The modules of `callboard.modes.filters` that ask further questions, or judge calls before they are made."""
_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=dict).encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one task in one variant: an attempt for each step that was asked for."""

    key: str
    variant: str
    suite: str
    category: str
    task: str
    attempts: tuple[Attempt, ...]

    @property
    def failure(self) -> str:
        """Why the endpoint gave no answer; "" where the model answered each step that it was asked."""
        return next((each.failure for each in self.attempts if each.failure), "")

    @property
    def seconds(self) -> float:
        """Seconds of all its replies."""
        return sum(each.seconds for each in self.attempts)

    @property
    def tokens(self) -> int:
        """Tokens of all its replies, of input and output."""
        return sum(each.usage.input + each.usage.output for each in self.attempts)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class RecordFile:
    """The records of one model on disk; several processes may append to one file.

    Args:
        path: The file; it and its folder are made at the first record, for their owner alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, model: str) -> RecordFile:
        """The file of a model's name."""
        plain = "".join([each if each.isalnum() or each in "-._" else "_" for each in truncate(model, _NAME, "")])
        digest = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return cls(evaluation_directory() / "answers" / f"{plain}-{digest}.jsonl")

    def read(self) -> dict[str, Record]:
        """The records by their keys; of two with one key the later one. A line that is no record is skipped."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        return {record.key: record for line in data.split(b"\n") for record in _decode(line)}

    def append(self, record: Record) -> None:
        """Keep a record. Raises CallerError if it cannot be written."""
        try:
            append_line(self.path, _encoder.encode(record))
        except OSError as error:
            hint = "make room there; what is done is kept, and the same command goes on"
            raise CallerError(error.strerror or "cannot be written", path=str(self.path), hint=hint) from None


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file that only its owner can read; a last line that was left open is closed. Raises OSError."""
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
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/evaluation`: tasks, and in `answers` what models did with them."""
    return data_directory() / "evaluation"


def make_key(
    identity: str, variant: Variant, task: Task, *, plan: Plan, profile: Profile | None, controls: Controls
) -> str:
    """The key of what a model is asked.

    Args:
        identity: The model itself: its name and the digest of its file, or its endpoint and that one's version.
        variant: How it is asked.
        task: What it is asked.
        plan: The plan that its profile makes.
        profile: The profile with the variant's facts; None where the model says nothing of it.
        controls: How replies are sampled.
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
    """The digest of what asks a model further questions, which the request of the first step does not hold."""
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
