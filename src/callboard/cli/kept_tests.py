"""Make tests of what was recorded: a task for `callboard eval`, and a vector of a reply, one line of JSON each.

This is where the board and the command `eval add` meet: the board knows what was said, `evaluation` what a task is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from callboard.errors import CallerError
from callboard.evaluation.recorded_task import Recording, make_task
from callboard.evaluation.suites import load_file, recorded_path
from callboard.evaluation.task import Task, encode_task
from callboard.servers.gateway.traffic_values import KeptReply, KeptTest

VECTORS: Final = "vectors.jsonl"
"""The file of vectors, beside that of the tasks."""


def keep_reply(reply: KeptReply) -> KeptTest:
    """Make a test of a reply of the gateway, or of what a job's conversation ends with.

    Raises:
        CallerError: It cannot be one, or is one already.
    """
    task = make_task(Recording(reply.canisters, reply.tools))
    path = add_task(task)
    test = KeptTest(task.identifier, encode_task(task).decode(), str(path))
    if not reply.vector:
        return test
    vector = msgspec.json.encode({**reply.vector, "name": task.identifier})
    append_line(path.with_name(VECTORS), vector)
    return msgspec.structs.replace(test, vector=vector.decode(), vector_path=str(path.with_name(VECTORS)))


def add_task(task: Task) -> Path:
    """Add a task to the recorded ones. Raises CallerError where one of this name is there."""
    path = recorded_path()
    old = load_file(path) if path.is_file() and path.stat().st_size else []
    if any(each.identifier == task.identifier for each in old):
        hint = f"edit {path}, or give --name"
        raise CallerError("a task of this name is there already", path=task.identifier, hint=hint)
    append_line(path, encode_task(task))
    return path


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, which its owner alone can read; a last line that was left open is closed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:  # noqa: PTH123  # a descriptor
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(-1, os.SEEK_END)
        ends_with_line = not size or file.read(1) == b"\n"
        file.write((b"" if ends_with_line else b"\n") + line + b"\n")
