from collections import Counter

import pytest
from evals.suites import SUITES, program
from evals.task import load_tasks
from evals.validate import go_cache, problems

TASKS = load_tasks()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_what_it_says(task):
    if not program(task.language):
        pytest.skip(f"{SUITES[task.language].command[0]} is not here")
    assert problems(task, go_cache()) == []


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
