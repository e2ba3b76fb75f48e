from collections import Counter
from typing import get_args

import pytest
from evals.suites import SUITES, program
from evals.task import HELD_BACK, TASKS, Fault, Language, every_task, load_tasks
from evals.validate import every_problem
from tests.tables import table

EVERY = every_task()


@pytest.mark.parametrize("language", get_args(Language))
def test_tasks_are_what_they_say(language):
    """The tests of each task run, with and without its fault and its solution."""
    if not program(language):
        pytest.skip(f"there is no {SUITES[language].command[0]}")
    tasks = [task for task in EVERY if task.language == language]
    assert {task.name: found for task, found in every_problem(tasks) if found} == {}


@table("task", EVERY, ids=lambda task: task.name)
def test_what_a_task_names_is_there(task):
    assert set(task.protected) <= {*task.repository}
    assert all(task.repository[each.file].count(each.old) == 1 for each in task.mutants)
    assert task.solution
    assert bool(task.bug) == (task.kind == "review")
    assert bool(task.checks) == (task.kind == "function")


@table("task", EVERY, ids=lambda task: task.name)
def test_tasks_are_small(task):
    sources = [text for path, text in task.repository.items() if not SUITES[task.language].files.search(path)]
    assert max(text.count("\n") for text in sources) <= 70
    assert len([text for text in sources if text]) <= 3 + 2


def test_names_are_unique():
    assert max(Counter(task.name for task in EVERY).values()) == 1


def test_the_halves_have_the_same_proportions():
    counts = {
        ("fix", "python"): 9,
        ("fix", "javascript"): 6,
        ("fix", "go"): 5,
        ("tests", "python"): 3,
        ("tests", "javascript"): 2,
        ("tests", "go"): 2,
        ("review", "python"): 2,
        ("review", "javascript"): 2,
        ("review", "go"): 1,
        ("function", "python"): 2,
        ("function", "javascript"): 1,
    }
    for root in (TASKS, HELD_BACK):
        assert Counter((task.kind, task.language) for task in load_tasks(root)) == counts


def test_faults_vary():
    assert {task.fault for task in EVERY} == {*get_args(Fault)}
    for kind in ("fix", "review"):
        assert not {"missing-tests", "missing-function"} & {task.fault for task in EVERY if task.kind == kind}
