"""Are the tasks what they say that they are?

usage: python -m evals.validate [NAME ...]      all of them, the ones that are held back too

No model runs. A valid task of each kind:

    fix         the named tests fail and the others pass; the solution solves it
    tests       the solution's tests find every mutant, and the tests that were there find none
    review      the solution's test proves the bug; its words are in no file, and the solution's review names it
    function    the function is missing, the visible tests pass, the hidden ones fail; the solution solves it
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from evals.check import Run, check_review, check_tree, run_mutant
from evals.fixture import overlay
from evals.suites import ENVIRONMENT, SUITES, Report, program
from evals.task import Task, every_task
from evals.warm import warm_runs

REVIEW = "review.md"


def problems(task: Task, run: Run) -> list[str]:
    """What is wrong with a task."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            overlay(task.repository, place / "fixture")
            return [*CHECKS[task.kind](task, place, run)]
        except (KeyError, ValueError) as error:
            return [f"{type(error).__name__}: {error}"]


def _fix(task: Task, place: Path, run: Run) -> Iterator[str]:
    before = run(place / "fixture")
    if before.failed != set(task.failing):
        yield f"fail at first: {sorted(before.failed)}, not {sorted(task.failing)}: {before.said}"
    if not before.passed:
        yield "no test passes at first"
    if not task.protected:
        yield "nothing is protected"
    yield from _solution(task, place, run, before)


def _tests(task: Task, place: Path, run: Run) -> Iterator[str]:
    before = run(place / "fixture")
    if not before.well or not before.passed:
        yield f"the first tests do not pass: {before.said}"
    if not 0 < task.kills <= len(task.mutants):
        yield f"{task.kills} of {len(task.mutants)} mutants are to be found"
    yield from _solution(task, place, run, before)
    for mutant in task.mutants:
        if not run_mutant(place / "fixture", mutant, run).well:
            yield f"the first tests find {mutant.new!r}, or it is no program"
    if task.function not in "".join([task.files[each] for each in task.protected]):
        yield f"{task.function} is in no protected file"


def _function(task: Task, place: Path, run: Run) -> Iterator[str]:
    before = run(place / "fixture")
    if not before.well or not before.passed:
        yield f"the first tests do not pass: {before.said}"
    if task.function not in task.description:
        yield f"{task.function} is not in the description"
    if any(task.function in text for text in task.repository.values()):
        yield f"{task.function} is there at first"
    overlay(task.checks, checked := Path(shutil.copytree(place / "fixture", place / "checked")))
    yield from _solution(task, place, run, run(checked))


def _review(task: Task, place: Path, run: Run) -> Iterator[str]:
    """The solution mends the bug, and has a test that proves it."""
    bug = task.bug
    if bug is None or not task.branch:
        yield "no bug, or no branch"
        return
    changed = place / "changed"
    overlay({**task.repository, **task.change}, changed)
    before = run(changed)
    if not before.well or not before.passed:
        yield f"the tests of the change do not pass: {before.said}"
    shown = [task.description, task.branch, *task.repository.values(), *task.change.values()]
    for word in bug.words:
        if word.lower() in "\n".join(shown).lower():
            yield f"who recites the change says {word!r}"
    if check_review(task, f"```\n{task.change[bug.file]}```\nLooks good.").solved:
        yield "the change itself counts as a review"
    if not check_review(task, task.solution[REVIEW]).solved:
        yield "the solution's review does not name the bug"
    overlay(task.answers, changed)
    if run(changed).well:
        yield "the solution's tests pass with the bug"
    overlay(task.solution, changed)
    if not (mended := run(changed)).well:
        yield f"the solution's tests fail without the bug: {mended.said}"


def _solution(task: Task, place: Path, run: Run, before: Report) -> Iterator[str]:
    if check_tree(task, place / "fixture", lambda _: before).solved:
        yield "it is solved at first"
    solved = place / "solved"
    overlay({**task.repository, **task.solution}, solved)
    verdict = check_tree(task, solved, run)
    every = len(task.mutants)
    if not verdict.solved or (every and not verdict.reason.startswith(f"{every} of {every} ")):
        yield f"the solution does not solve it: {verdict.reason}"


CHECKS: dict[str, Callable[[Task, Path, Run], Iterator[str]]] = {
    "fix": _fix,
    "tests": _tests,
    "review": _review,
    "function": _function,
}


def every_problem(tasks: list[Task]) -> Iterator[tuple[Task, list[str]]]:
    """Find what is wrong with tasks, several at a time. Raises FileNotFoundError if a language is missing."""
    with warm_runs(go_cache()) as runs, ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda task: problems(task, runs[task.language]), tasks)
        yield from zip(tasks, found, strict=True)


def go_cache() -> Path:
    """Beside Go, where it is ours."""
    return ENVIRONMENT / "go-cache" if ENVIRONMENT.exists() else Path.home() / ".cache" / "go-build"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as python/page-count")
    names = parser.parse_args().names
    wrong = 0
    tasks = [each for each in every_task() if not names or each.name in names]
    for language in {each.language for each in tasks if not program(each.language)}:
        print(f"{language}: skipped, {SUITES[language].command[0]} is not here")
    for task, found in every_problem([each for each in tasks if program(each.language)]):
        wrong += bool(found)
        print(f"{task.name}: {'; '.join(found) or 'good'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
