"""A task: one file, `tasks/LANGUAGE/NAME.toml` or `held_back/LANGUAGE/NAME.toml`.

Owns the keys of the file, and the files of the repository that they make:

    [files]         the right code, and the tests that the agent sees
    [change]        review: the files that the branch changes and adds, right as well
    [[mutation]]    what is wrong with them: in `file`, `old` becomes `new`
    [solution]      files that solve it: of tests, the tests; of a review, `review.md` and a test that finds the bug
    [checks]        function: tests that judge it

No agent sees the solution and the checks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import msgspec

TASKS = Path(__file__).with_name("tasks")
HELD_BACK = Path(__file__).with_name("held_back")
"""Tasks that nobody tunes on."""

Kind: TypeAlias = Literal["fix", "tests", "review", "function"]
Language: TypeAlias = Literal["python", "javascript", "go"]
Fault: TypeAlias = Literal[
    "changed-in-loop",
    "encoding",
    "injection",
    "missing-await",
    "missing-case",
    "missing-function",
    "missing-tests",
    "misused-interface",
    "mutable-default",
    "off-by-one",
    "recursion-base",
    "regular-expression",
    "rounding",
    "shared-state",
    "time-zone",
    "wrong-exception",
    "wrong-operator",
]
Files: TypeAlias = Mapping[str, str]
"""Texts by path."""

SKELETONS: dict[Language, dict[str, str]] = {
    "python": {
        ".gitignore": "__pycache__/\n.pytest_cache/\n",
        "pyproject.toml": '[project]\nname = "NAME"\nversion = "0.4.0"\nrequires-python = ">=3.11"\n\n'
        '[tool.pytest.ini_options]\npythonpath = ["."]\ntestpaths = ["tests"]\n',
    },
    "javascript": {
        ".gitignore": "node_modules/\n",
        "package.json": '{\n  "name": "NAME",\n  "version": "1.3.0",\n  "private": true,\n  "type": "module",\n'
        '  "scripts": {\n    "test": "node --test"\n  }\n}\n',
    },
    "go": {"go.mod": "module example.com/app\n\ngo 1.22\n"},
}
"""The files that every repository of a language has."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake: `old`, which is in the file once, becomes `new`."""

    file: str
    old: str
    new: str

    def place(self, files: Files) -> Files:
        """Return the files with the mistake. Raises ValueError if `old` is not in the file exactly once."""
        text = files[self.file]
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {text.count(self.old)} times {self.old!r}")
        return {**files, self.file: text.replace(self.old, self.new)}


class Bug(msgspec.Struct, frozen=True):
    """The bug of a review: its file, its first and last line, and words of which one names it."""

    file: str
    lines: tuple[int, int]
    words: tuple[str, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to an agent, and its right answer.

    `description` is what the agent is given; for a review, it is the message of the commit under review. `protected`
    files must not change. `failing` (fix) are the names of the tests that fail at first, `function` (tests, function)
    is what is to be tested or written, `kills` of the `mutants` have to be found. `branch` (review) has the bug, which
    a review that has one of the `words` names.
    """

    name: str
    language: Language
    kind: Kind
    fault: Fault
    description: str
    files: Files
    protected: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    function: str = ""
    kills: int = 0
    mutants: tuple[Mutant, ...] = ()
    mutation: tuple[Mutant, ...] = ()
    branch: str = ""
    words: tuple[str, ...] = ()
    right_change: Files = msgspec.field(name="change", default_factory=dict)
    answers: Files = msgspec.field(name="solution", default_factory=dict)
    checks: Files = msgspec.field(default_factory=dict)

    @property
    def repository(self) -> Files:
        """The first commit."""
        own = self.files if self.kind == "review" else self._mutated(self.files)
        title = self.name.rpartition("/")[2]
        common = {path: text.replace("NAME", title) for path, text in SKELETONS[self.language].items()}
        if self.language == "python":
            folders = {PurePosixPath(path).parent for path in own if path.endswith(".py")}
            common |= {f"{each}/__init__.py": "" for each in sorted(folders) if each.name not in {"", "tests"}}
        return {**common, **own}

    @property
    def change(self) -> Files:
        """The second commit of a review, with the bug."""
        return self._mutated(self.right_change) if self.kind == "review" else {}

    @property
    def solution(self) -> Files:
        """Files that solve the task. They replace files of the repository or of the branch."""
        source = self.right_change if self.kind == "review" else self.files
        return {**{each.file: source[each.file] for each in self.mutation}, **self.answers}

    @property
    def bug(self) -> Bug | None:
        """The first mutation of a review."""
        if self.kind != "review" or not self.mutation:
            return None
        first = self.mutation[0]
        before = self.change[first.file].partition(first.new)[0].count("\n") + 1
        return Bug(first.file, (before, before + first.new.rstrip("\n").count("\n")), self.words)

    def _mutated(self, files: Files) -> Files:
        for each in self.mutation:
            files = each.place(files)
        return files


def load_task(file: Path) -> Task:
    """Read a task. Raises msgspec.ValidationError if a key is wrong."""
    found = tomllib.loads(file.read_text("utf-8"))
    found["description"] = " ".join(found["description"].split())
    return msgspec.convert({**found, "name": f"{file.parent.name}/{file.stem}", "language": file.parent.name}, Task)


def load_tasks(root: Path = TASKS) -> list[Task]:
    """Read the tasks of a folder, by kind, language and name."""
    tasks = [load_task(each) for each in root.glob("*/*.toml")]
    return sorted(tasks, key=lambda task: (task.kind, task.language, task.name))


def every_task() -> list[Task]:
    """Read all tasks, those that are held back as well."""
    return [*load_tasks(), *load_tasks(HELD_BACK)]
