"""Whether a task is solved.

Owns what each kind of task asks of an outcome. Knows nothing of agents, models and git: it is given the tree that an
agent left, or what it wrote, and a function that runs the tests of a tree.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

from evals.fixture import overlay
from evals.suites import SUITES, Report
from evals.task import Mutant, Task

NEAR = 1
"""Lines that a review may be beside the bug's."""
MOST = 6
"""Lines that a review may name for one of them to count: naming all of them names none."""

_LINES = re.compile(
    r"""(?: \blines? ["'*`:]* \s* [:#]? \s* | \bL | \.[a-z]{1,3} [`*]* : ) (\d+) (?: \s* (?: - | to | and ) \s* L? (\d+) )?""",
    re.IGNORECASE | re.VERBOSE,
)

Run: TypeAlias = Callable[[Path], Report]


class Verdict(NamedTuple):
    """`reason` says why it is not solved; of tests that are good, how many mutants they found."""

    solved: bool
    reason: str = ""


def check_tree(task: Task, tree: Path, run: Run) -> Verdict:
    """Whether the files of a tree solve a task of kind fix, tests or function."""
    first = task.repository
    if changed := [each for each in task.protected if not _same(first.get(each), tree / each)]:
        return Verdict(solved=False, reason=f"changed: {', '.join(changed)}")
    if missing := [each for each in first if _is_test(task, each) and not (tree / each).is_file()]:
        return Verdict(solved=False, reason=f"deleted: {', '.join(missing)}")
    return CHECKS[task.kind](task, tree, run)


def _check_fix(task: Task, tree: Path, run: Run) -> Verdict:
    report = run(tree)
    if left := [each for each in task.failing if each not in report.passed]:
        return Verdict(solved=False, reason=f"still fails: {', '.join(left)}")
    if not report.well:
        return Verdict(solved=False, reason=f"fails now: {', '.join(sorted(report.failed)) or report.said[-200:]}")
    return Verdict(solved=True)


def _check_tests(task: Task, tree: Path, run: Run) -> Verdict:
    """What was there does not find the mutants (`evals.validate`): who finds one is new."""
    first = task.repository
    names = [each.relative_to(tree).as_posix() for each in tree.rglob("*") if each.is_file()]
    if not [each for each in names if _is_test(task, each) and not _same(first.get(each), tree / each)]:
        return Verdict(solved=False, reason="no new tests")
    report = run(tree)
    if not report.well:
        named = ", ".join(sorted(report.failed))
        return Verdict(solved=False, reason=f"the new tests fail on the right code: {named or report.said[-200:]}")
    found = sum([not run_mutant(tree, mutant, run).well for mutant in task.mutants])
    told = f"{found} of {len(task.mutants)} mutants found"
    return Verdict(found >= task.kills, told if found >= task.kills else f"{told}, {task.kills} wanted")


def _check_function(task: Task, tree: Path, run: Run) -> Verdict:
    """The tests that were there and the hidden ones judge a copy of the tree, without the agent's own tests."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for each in copy.rglob("*"):
            if each.is_file() and _is_test(task, each.relative_to(copy).as_posix()):
                each.unlink()
        overlay({path: text for path, text in task.repository.items() if _is_test(task, path)}, copy)
        overlay(task.checks, copy)
        report = run(copy)
    return Verdict(
        report.well, "" if report.well else f"fails: {', '.join(sorted(report.failed)) or report.said[-200:]}"
    )


CHECKS: dict[str, Callable[[Task, Path, Run], Verdict]] = {
    "fix": _check_fix,
    "tests": _check_tests,
    "function": _check_function,
}


def run_mutant(tree: Path, mutant: Mutant, run: Run) -> Report:
    """The tests of a copy of the tree that has the mistake. Raises ValueError where it has no place."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "mutant"
        shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        overlay(mutant.place({mutant.file: (copy / mutant.file).read_text("utf-8")}), copy)
        return run(copy)


def check_review(task: Task, text: str) -> Verdict:
    """Whether a review names the bug: its file, and a line beside it or one of the words."""
    if task.bug is None:
        raise ValueError(f"{task.name} has no bug")
    prose = re.sub(r"```.*?(```|\Z)", " ", text, flags=re.DOTALL)  # the change, recited
    if not prose.strip():
        return Verdict(solved=False, reason="no review")
    if task.bug.file.rpartition("/")[2] not in prose:
        return Verdict(solved=False, reason=f"does not name {task.bug.file}")
    first, last = task.bug.lines
    named = named_lines(prose)
    if len({*named}) <= MOST and any(first - NEAR <= number <= last + NEAR for number in named):
        return Verdict(solved=True, reason="names the line")
    for word in task.bug.words:
        if _said(word, prose):
            return Verdict(solved=True, reason=f"says {word!r}")
    return Verdict(solved=False, reason="does not name the bug")


def named_lines(text: str) -> list[int]:
    """The lines that a text names: `line 12`, `lines 12-14`, `L12`, `file.py:12:3`, `"line": 12`."""
    return [int(each) for match in _LINES.finditer(text) for each in match.groups() if each]


def _said(word: str, text: str) -> bool:
    """Whether a text says a word, other than "no injection was found"."""
    for match in re.finditer(re.escape(word), text, re.IGNORECASE):
        if not re.search(r"\b(no|free of)\b[^.\n]{0,30}$", text[: match.start()], re.IGNORECASE):
            return True
    return False


def _is_test(task: Task, path: str) -> bool:
    return bool(SUITES[task.language].files.search(path))


def _same(text: str | None, file: Path) -> bool:
    return text is not None and file.is_file() and not file.is_symlink() and file.read_bytes() == text.encode()
