"""The tests that people keep: tasks of the suite `recorded`, their replies as test vectors, and their runs.

`callboard eval add` and the board share this file. A run is `callboard eval` in a process of its own, which continues
if the board stops. Its report is a file, so every board shows the result.

Laws: a test is added whole or not at all. The last removed test can be restored.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from callboard.core import Canister, InvocationCanister, ToolDeclaration, UserCanister
from callboard.errors import CallerError
from callboard.evaluation.recorded_task import Recording, expect_call, find_calls, make_task
from callboard.evaluation.records import append_line
from callboard.evaluation.report import Report
from callboard.evaluation.suites import load_file, recorded_path
from callboard.evaluation.task import LINE, Task, encode_task
from callboard.profiles import is_of_host
from callboard.storage.atomic_file import write_private
from callboard.text.display import collapse

VECTORS: Final = "vectors.jsonl"
"""Name of the vector file, beside the task file."""
MAX_RUNS: Final = 2
"""Maximum runs at once."""
_REMOVED: Final = "removed.json"
_RUNS: Final = "runs"
_MAX_WORDS: Final = 300
_MAX_ERRORS: Final = 4000
"""Bytes at the end of a run's standard error in which the reason is searched."""


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a test with a model. A run without an answer of the model has the state `stopped`."""

    test: str
    model: str
    at: datetime
    state: Literal["running", "passed", "failed", "stopped"] = "running"
    why: str = ""


class KeptTask(NamedTuple):
    """A test with its runs, the newest first, and its vector as a line of JSON."""

    task: Task
    runs: Sequence[TaskRun] = ()
    vector: str = ""

    @property
    def name(self) -> str:
        return self.task.identifier

    @property
    def question(self) -> str:
        """The beginning of the user's last message."""
        begin = [each for step in self.task.steps[:1] for each in step.canisters]
        texts = [each.text for each in begin if isinstance(each, UserCanister)]
        return collapse(texts[-1], _MAX_WORDS) if texts else ""

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The expected calls: the tool, and its arguments as JSON."""
        return [
            (
                each.name,
                msgspec.json.encode({k: v for k, values in each.arguments.items() for v in values[:1]}).decode(),
            )
            for step in self.task.steps[:1]
            for each in step.expected
        ]

    @property
    def line(self) -> str:
        return encode_task(self.task).decode()


class _Line(msgspec.Struct):
    """The names in a line: `identifier` of a task, `name` of a vector."""

    identifier: str = ""
    name: str = ""


class _Removed(msgspec.Struct):
    name: str
    lines: dict[str, list[str]]
    """The lines by their files."""


class TaskFile:
    """The kept tests of the user.

    Args:
        command: The command that runs a suite with a model. No Python module is imported from the working directory.
    """

    def __init__(self, command: Sequence[str] = (sys.executable, "-P", "-m", "callboard", "eval", "run")) -> None:
        self._command = command
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def path(self) -> Path:
        return recorded_path()

    def list(self) -> Sequence[KeptTask]:
        """Return the tests, the newest first. Raises CallerError if a line is not a task."""
        with _lock(self.path):
            tasks, runs, lines = self._tasks(), self._list_runs(), _read_lines(self.path.with_name(VECTORS))
        vectors = {_name_of(line): line.decode(errors="replace") for line in lines}
        return [
            KeptTask(task, [run for run in runs if run.test == task.identifier], vectors.get(task.identifier, ""))
            for task in reversed(tasks)
        ]

    expect = staticmethod(find_calls)

    def keep(
        self,
        canisters: Sequence[Canister],
        tools: Sequence[ToolDeclaration],
        calls: Sequence[tuple[str, Mapping[str, Any]]],
        vector: Mapping[str, Any],
    ) -> str:
        """Make a test of a conversation that ends with a reply.

        Args:
            canisters: The conversation.
            tools: The tools that the model saw.
            calls: The expected calls. An empty sequence expects no call.
            vector: The reply as a test vector, empty if there is none.

        Returns:
            The name of the test.

        Raises:
            CallerError: The reply cannot be a test, or is one already.
        """
        expected = [expect_call(InvocationCanister("", name, dict(arguments), "")) for name, arguments in calls]
        task = make_task(Recording(tuple(canisters), tuple(tools)), expected=expected)
        self.add(task, vector)
        return task.identifier

    def add(self, task: Task, vector: Mapping[str, Any] | None = None) -> Path:
        """Add a task and the vector of its reply. Raises CallerError if the name is taken, or the task is too large."""
        line = encode_task(task)
        if len(line) > LINE:
            raise CallerError(f"a task of {len(line)} bytes is too long", path=task.identifier, hint=f"at most {LINE}")
        with _lock(self.path):
            if any(each.identifier == task.identifier for each in self._tasks()):
                hint = f"edit {self.path}, or give --name"
                raise CallerError("a task of this name exists", path=task.identifier, hint=hint)
            if vector:
                append_line(self.path.with_name(VECTORS), msgspec.json.encode({**vector, "name": task.identifier}))
            append_line(self.path, line)
        return self.path

    def remove(self, name: str) -> None:
        """Remove a test and its runs. Raises CallerError if there is no such test, or the test runs."""
        with _lock(self.path):
            self._find(name)
            if any(each.test == name and each.state == "running" for each in self._list_runs()):
                raise CallerError("this test is running", path=name, hint="wait until it has its result")
            files = {file: _read_lines(self.path.with_name(file)) for file in (self.path.name, VECTORS)}
            its = {file: [line.decode() for line in lines if _name_of(line) == name] for file, lines in files.items()}
            write_private(self.path.with_name(_REMOVED), msgspec.json.encode(_Removed(name, its)))
            for file, lines in files.items():
                if its[file]:
                    rest = [line + b"\n" for line in lines if _name_of(line) != name]
                    write_private(self.path.with_name(file).resolve(), b"".join(rest))  # the file may be a link
            for place in self._run_files():
                if _read_run(place).test == name:
                    for suffix in (".json", ".jsonl", ".out", ".err"):
                        place.with_suffix(suffix).unlink(missing_ok=True)

    def restore(self) -> str:
        """Restore the last removed test, and return its name. Raises CallerError if there is none."""
        place = self.path.with_name(_REMOVED)
        with _lock(self.path):
            try:
                removed = msgspec.json.decode(place.read_bytes(), type=_Removed)
            except FileNotFoundError:
                raise CallerError("no removed test can be restored", path=str(place)) from None
            if any(each.identifier == removed.name for each in self._tasks()):
                raise CallerError("a task of this name exists", path=removed.name)
            for file, lines in removed.lines.items():
                for line in lines:
                    append_line(self.path.with_name(file), line.encode())
            place.unlink()
        return removed.name

    def run(self, name: str, model: str) -> None:
        """Start a run of a test with a model, in a process of its own. Its result appears in `list`.

        Raises:
            CallerError: There is no such test, the model is a program or a file, the test runs with the model already,
                or too many tests run.
        """
        if not model or model.startswith("-") or is_of_host(model):
            hint = f"in a terminal: callboard eval MODEL --suite {self.path}"
            raise CallerError("this model cannot be run from here", path=model, hint=hint)
        digest = hashlib.sha256(f"{name}\n{model}".encode()).hexdigest()[:16]
        with _lock(self.path):
            task = self._find(name)
            running = [(each.test, each.model) for each in self._list_runs() if each.state == "running"]
            if (name, model) in running:
                raise CallerError("this test runs with this model already", path=name)
            if len(running) >= MAX_RUNS:
                raise CallerError(f"{MAX_RUNS} tests run already", path=name, hint="wait until one has its result")
            self._start(self.path.parent / _RUNS / f"{digest}.json", task, model)

    def _start(self, file: Path, task: Task, model: str) -> None:
        write_private(file.with_suffix(".jsonl"), encode_task(task) + b"\n")
        with file.with_suffix(".out").open("ab") as output, file.with_suffix(".err").open("wb") as errors:
            _take(output)
            output.truncate(0)
            write_private(file, msgspec.json.encode(TaskRun(test=task.identifier, model=model, at=datetime.now(UTC))))
            options = ["--suite", str(file.with_suffix(".jsonl")), "--json", "--fresh"]
            # The process inherits the lock of its output, which ends with the process.
            process = subprocess.Popen(  # noqa: S603  # our own command; the model is one argument
                [*self._command, *options, "--", model],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self._processes = [each for each in [*self._processes, process] if each.poll() is None]

    def _find(self, name: str) -> Task:
        for task in self._tasks():
            if task.identifier == name:
                return task
        raise CallerError("no such test", path=name)

    def _tasks(self) -> Sequence[Task]:
        return load_file(self.path) if _read_lines(self.path) else []

    def _run_files(self) -> Sequence[Path]:
        return sorted((self.path.parent / _RUNS).glob("*.json"))

    def _list_runs(self) -> Sequence[TaskRun]:
        self._processes = [each for each in self._processes if each.poll() is None]
        runs = [_read_run(each) for each in self._run_files()]
        return sorted(runs, key=lambda run: run.at, reverse=True)


def _read_run(file: Path) -> TaskRun:
    """Return a run, with its result if it has ended."""
    run = msgspec.json.decode(file.read_bytes(), type=TaskRun)
    with file.with_suffix(".out").open("ab") as output:
        if not _take(output):
            return run
    try:
        report = msgspec.json.decode(file.with_suffix(".out").read_bytes(), type=Report)
    except msgspec.MsgspecError:
        errors = file.with_suffix(".err").read_bytes()[-_MAX_ERRORS:].decode(errors="replace").split("\n")
        last = next((line for line in reversed(errors) if line.strip()), "")
        return replace(run, state="stopped", why=collapse(last, _MAX_WORDS))
    for failure in report.failures:
        return replace(run, state="stopped", why=collapse(failure.why, _MAX_WORDS))
    for miss in report.misses:
        return replace(run, state="failed", why=collapse(f"{miss.label.replace('_', ' ')}: {miss.why}", _MAX_WORDS))
    return replace(run, state="passed")


def _read_lines(path: Path) -> Sequence[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.strip()] if path.is_file() else []


def _name_of(line: bytes) -> str:
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        names = msgspec.json.decode(line, type=_Line)
        return names.identifier or names.name
    return ""


def _take(file: IO[bytes], *, waits: bool = False) -> bool:
    """Lock an open file. Return False if another process has the lock."""
    try:
        import fcntl  # noqa: PLC0415  # not on Windows
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other processes from changing the tests."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:  # noqa: PTH123  # a descriptor, which no Path opens
        _take(file, waits=True)
        yield
