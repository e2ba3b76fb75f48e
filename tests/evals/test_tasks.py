from collections import Counter

import pytest
from evals.suites import SUITES, program
from evals.task import load_tasks
from evals.validate import go_cache, problems
from tests.tables import table

TASKS = load_tasks()
# `python -m evals.validate`, which `make eval-agents` begins with, runs the tests of all of them, for a minute.
RUN = ("python/page-count", "javascript/truncate", "go/stock-reserve")


@pytest.mark.parametrize("task", [each for each in TASKS if each.name in RUN], ids=lambda task: task.name)
def test_a_task_is_what_it_says(task):
    """One of each language, and of each kind."""
    if not program(task.language):
        pytest.skip(f"there is no {SUITES[task.language].command[0]}")
    assert problems(task, go_cache()) == []


@table("task", TASKS, ids=lambda task: task.name)
def test_what_a_task_names_is_there(task):
    assert all((task.repository / name).is_file() for name in task.protected)
    assert all((task.repository / each.file).read_text("utf-8").count(each.old) == 1 for each in task.mutants)
    assert any(task.solution.rglob("*.*"))
    assert bool(task.bug and (task.change / task.bug.file).is_file()) == (task.kind == "review")


def test_there_are_enough():
    counts = Counter((task.kind, task.language) for task in TASKS)
    assert counts == {
        ("fix", "python"): 4,
        ("fix", "javascript"): 3,
        ("fix", "go"): 3,
        ("tests", "python"): 3,
        ("tests", "javascript"): 1,
        ("tests", "go"): 1,
        ("review", "python"): 2,
        ("review", "javascript"): 2,
        ("review", "go"): 1,
    }
