"""The tasks that come with Callboard, for what BFCL's tasks of one turn do not ask.

Several turns, several calls at once, long texts that have to arrive to the letter, calls that failed and have to be
corrected, results that have to be used, restraint, tools with odd names and forms, other languages. Each was written for
this suite, so that no model can have been trained on it, and so that only one answer is right: docs/evaluation.md lists
the categories.

Law: the right answers to every task pass the checker, and fit the schemas of the tools.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from callboard.evaluation.task import Task, decode_tasks

SUITE: Final = "callboard"
_FILE: Final = "data/tasks.jsonl"


def load_own_tasks() -> list[Task]:
    """All of them, in the order of the file."""
    text = files("callboard.evaluation").joinpath(_FILE).read_text("utf-8")
    return [*decode_tasks(text.split("\n"), path=_FILE)]
