"""One try of a task by an agent.

Owns the temporary folder of a try, what an agent is asked to hand back, and the judgement. Knows nothing of how an
agent is started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import NamedTuple, TypeAlias

import msgspec

from evals.check import Verdict, check_review, check_tree
from evals.fixture import Fixture, lay_out
from evals.suites import SUITES, program, run_suite
from evals.task import Fault, Kind, Language, Task

GRACE = 60.0
"""Seconds beyond its limit that an agent may take to end by itself."""


class Limits(NamedTuple):
    """Replies of the model, and seconds."""

    rounds: int = 200
    seconds: float = 600.0


class Place(NamedTuple):
    """Where a try takes place: the repository, and a folder for what the agent keeps besides."""

    fixture: Fixture
    home: Path
    go_cache: Path


class Handed(NamedTuple):
    """What an agent handed back: a tree or the text of a review, and what it took.

    `reason` says why it did not do what was asked; it is empty where the agent says that it did.
    """

    tree: Path | None = None
    text: str = ""
    reason: str = ""
    rounds: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0


class Result(msgspec.Struct, kw_only=True):
    """A line of the results. `claimed`: the agent says that it is solved; `reason`: why it is not.

    `calls` are those of tools, `input` and `output` are tokens.
    """

    task: str
    kind: Kind
    language: Language
    fault: Fault
    agent: str
    model: str
    solved: bool = False
    claimed: bool = False
    reason: str = ""
    rounds: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0
    seconds: float = 0.0


Agent: TypeAlias = Callable[[Task, str, Place, Limits], Handed]
"""Given a task, a model, a place and limits."""


def attempt(
    task: Task, name: str, agent: Agent, model: str, limits: Limits, *, go_cache: Path, keep: Path | None = None
) -> Result:
    """Let an agent try a task; whatever goes wrong is a line as well. `keep` is a folder that keeps what it did."""
    result = Result(task=task.name, kind=task.kind, language=task.language, fault=task.fault, agent=name, model=model)
    if not program(task.language):
        result.reason = f"skipped: {SUITES[task.language].command[0]} is not here"
        return result
    begun = time.monotonic()
    try:
        with try_folder(f"{task.name}-{model}", keep) as folder:
            place = Place(lay_out(task, folder / "repository"), folder / "home", go_cache)
            place.home.mkdir()
            begun = time.monotonic()
            handed = agent(task, model, place, limits)
            result.seconds = time.monotonic() - begun
            result.claimed = not handed.reason
            result.rounds, result.calls = handed.rounds, handed.calls
            result.input, result.output = handed.input, handed.output
            result.solved, result.reason = _judge(task, handed, go_cache)
    except Exception as error:  # noqa: BLE001  # a try that cannot be made says nothing of the others
        result.seconds = result.seconds or time.monotonic() - begun
        result.reason = f"{type(error).__name__}: {error}"
    result.reason = " ".join(result.reason.split())
    return result


def _judge(task: Task, handed: Handed, go_cache: Path) -> Verdict:
    if task.kind == "review":
        verdict = check_review(task, handed.text)
    elif handed.tree is None:
        return Verdict(solved=False, reason=handed.reason or "nothing was handed over")
    else:
        verdict = check_tree(task, handed.tree, partial(run_suite, task.language, go_cache=go_cache, confined=True))
    if verdict.solved or not handed.reason:
        return verdict
    return Verdict(solved=False, reason=f"{verdict.reason} ({handed.reason})")


@contextmanager
def try_folder(label: str, keep: Path | None) -> Iterator[Path]:
    """Make the folder of a try, which is removed after it unless `keep` is a folder to keep it in."""
    if keep is None:
        with TemporaryDirectory(prefix="callboard-eval-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).resolve()
        return
    keep.mkdir(parents=True, exist_ok=True)
    label = label.replace("/", "-").replace(":", "-")
    yield Path(mkdtemp(prefix=f"{label}-", dir=keep)).resolve()


def run_agent(
    command: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    limits: Limits,
    *,
    grace: float | None = None,
) -> str:
    """Run an agent's command with its output in `log` and `log`.err. Return why it did not end on its own.

    An agent that does not know its limit gets no `grace`.
    """
    with log.open("wb") as printed, log.with_suffix(".err").open("wb") as told:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=told,
            start_new_session=True,
        )
        try:
            process.wait(limits.seconds + (GRACE if grace is None else grace))
        except subprocess.TimeoutExpired:
            return f"killed after {limits.seconds:.0f} s"
        finally:
            _end(process)
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """It is asked, then told; what it started goes with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def copied(root: Path, to: Path) -> Path:
    """The files of a working tree as they are, without git's."""
    return shutil.copytree(
        root, to, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", "node_modules")
    )
