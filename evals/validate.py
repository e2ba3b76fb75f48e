"""Are the tasks what they say that they are?

usage: python -m evals.validate [NAME ...]      all of them

No model runs. Of each task: the tests that are to be mended fail and the others pass; the solution solves it, and the
repository as it is does not; the mutants are found by the solution's tests, not by those that were there; the bug of
a review is one, its words are in no file, and the solution's review names it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from evals.check import check_review, check_tree, run_mutant
from evals.fixture import lay_out, overlay
from evals.suites import ENVIRONMENT, SUITES, Report, program, run_suite
from evals.task import Task, load_tasks

REVIEW = "review.md"


def problems(task: Task, go_cache: Path) -> list[str]:
    """What is wrong with a task."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        lay_out(task, place / "fixture")
        return [*CHECKS[task.kind](task, place, partial(run_suite, task.language, go_cache=go_cache))]


def _fix(task: Task, place: Path, run: Callable[[Path], Report]) -> Iterator[str]:
    before = run(place / "fixture")
    if before.failed != set(task.failing):
        yield f"fail at first: {sorted(before.failed)}, not {sorted(task.failing)}: {before.said}"
    if not before.passed:
        yield "no test passes at first"
    if not task.protected:
        yield "nothing is protected"
    yield from _solution(task, place, run, before)


def _tests(task: Task, place: Path, run: Callable[[Path], Report]) -> Iterator[str]:
    before = run(place / "fixture")
    if not before.well or not before.passed:
        yield f"the first tests do not pass: {before.said}"
    if not 0 < task.kills <= len(task.mutants):
        yield f"{task.kills} of {len(task.mutants)} mutants are to be found"
    yield from _solution(task, place, run, before)
    for mutant in task.mutants:
        if not run_mutant(place / "fixture", mutant, run).well:
            yield f"the first tests find {mutant.new!r}, or it is no program"
    if task.function not in "".join([(task.repository / each).read_text("utf-8") for each in task.protected]):
        yield f"{task.function} is in no protected file"


def _review(task: Task, place: Path, run: Callable[[Path], Report]) -> Iterator[str]:
    """The solution mends the bug, and has a test that proves it."""
    bug = task.bug
    if bug is None or not task.branch:
        yield "no bug, or no branch"
        return
    changed = place / "changed"
    overlay(task.repository, changed)
    overlay(task.change, changed)
    before = run(changed)
    if not before.well or not before.passed:
        yield f"the tests of the change do not pass: {before.said}"
    lines = len((task.change / bug.file).read_text("utf-8").splitlines())
    if not 1 <= bug.lines[0] <= bug.lines[1] <= lines:
        yield f"lines {bug.lines} of {lines}"
    shown = [each.read_text("utf-8") for root in (task.repository, task.change) for each in root.rglob("*.*")]
    for word in bug.words:
        if word.lower() in "\n".join([task.description, task.branch, *shown]).lower():
            yield f"who recites the change says {word!r}"
    if check_review(task, "```\n" + (task.change / bug.file).read_text("utf-8") + "```\nLooks good.").solved:
        yield "the change itself counts as a review"
    if not check_review(task, (task.solution / REVIEW).read_text("utf-8")).solved:
        yield "the solution's review does not name the bug"
    for each in task.solution.rglob("*"):
        name = each.relative_to(task.solution)
        if each.is_file() and SUITES[task.language].files.search(name.as_posix()):
            (changed / name).write_bytes(each.read_bytes())
    if run(changed).well:
        yield "the solution's tests pass with the bug"
    overlay(task.solution, changed)
    if not (mended := run(changed)).well:
        yield f"the solution's tests fail without the bug: {mended.said}"


def _solution(task: Task, place: Path, run: Callable[[Path], Report], before: Report) -> Iterator[str]:
    if check_tree(task, place / "fixture", lambda _: before).solved:
        yield "it is solved at first"
    solved = place / "solved"
    overlay(task.repository, solved)
    overlay(task.solution, solved)
    verdict = check_tree(task, solved, run)
    every = len(task.mutants)
    if not verdict.solved or (every and not verdict.reason.startswith(f"{every} of {every} ")):
        yield f"the solution does not solve it: {verdict.reason}"


CHECKS: dict[str, Callable[..., Iterator[str]]] = {"fix": _fix, "tests": _tests, "review": _review}


def go_cache() -> Path:
    """Beside Go, where it is ours."""
    return ENVIRONMENT / "go-cache" if ENVIRONMENT.exists() else Path.home() / ".cache" / "go-build"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as python/page-count")
    names = parser.parse_args().names
    wrong = 0
    for task in load_tasks():
        if names and task.name not in names:
            continue
        if not program(task.language):
            print(f"{task.name}: skipped, {SUITES[task.language].command[0]} is not here")
            continue
        found = problems(task, go_cache())
        wrong += bool(found)
        print(f"{task.name}: {'; '.join(found) or 'good'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
