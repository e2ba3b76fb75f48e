"""A task: what is in its folder.

Owns the keys of `task.toml` and the names of the folders beside it:

    repository/     what is committed first
    change/         review: what the branch changes and adds
    solution/       what solves it, which no agent is shown; a review's words are in `review.md`
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

TASKS = Path(__file__).with_name("tasks")

Kind: TypeAlias = Literal["fix", "tests", "review"]
Language: TypeAlias = Literal["python", "javascript", "go"]


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake that good tests find: `old`, which is in the file once, becomes `new`."""

    file: str
    old: str
    new: str


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The planted one: its file, the first and the last of its lines, and the words of which one names it."""

    file: str
    lines: tuple[int, int]
    words: tuple[str, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`description` is what the agent is given; of a review, it is the message of the commit under review.

    `protected` files must not change. `failing` (fix) are the names of the tests that fail at first, `function` (tests)
    is what is to be tested, `kills` of the `mutants` have to be found. `branch` (review) has the `bug`.
    """

    name: str
    language: Language
    folder: Path
    kind: Kind
    description: str
    protected: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    function: str = ""
    kills: int = 0
    mutants: tuple[Mutant, ...] = ()
    branch: str = ""
    bug: Bug | None = None

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def change(self) -> Path:
        return self.folder / "change"

    @property
    def solution(self) -> Path:
        return self.folder / "solution"


def load_task(folder: Path) -> Task:
    """The task of a folder. Raises msgspec.ValidationError for keys that are wrong."""
    found = tomllib.loads((folder / "task.toml").read_text("utf-8"))
    found["description"] = " ".join(found["description"].split())
    about = {"name": f"{folder.parent.name}/{folder.name}", "language": folder.parent.name, "folder": folder}
    return msgspec.convert({**found, **about}, Task)


def load_tasks(root: Path = TASKS) -> list[Task]:
    """All tasks, by kind, language and name."""
    tasks = [load_task(each.parent) for each in root.glob("*/*/task.toml")]
    return sorted(tasks, key=lambda task: (task.kind, task.language, task.name))
