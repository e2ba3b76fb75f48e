"""A small project with a mistake in it, and calls of the chat's tools that look at it and mend it."""

import json

import pytest

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, TextPiece
from callboard.testing import Call

CODE = "def add(a, b):\n    return a ^ b\n"
EDIT = Call("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
READ = Call("file", {"action": "read", "path": "calc.py"})


def reply_with(call, said=""):
    """The events of a backend's reply that has a call."""
    return [
        ReplyStarted(),
        *([TextPiece(said)] if said else []),
        InvocationStarted(0, "call_1", call.name),
        InvocationEnded(0, "call_1", call.name, call.arguments, json.dumps(call.arguments)),
        ReplyEnded("invocations"),
    ]


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text(CODE)
    return folder
