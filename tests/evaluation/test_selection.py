"""Which tasks are taken."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import CallerError
from callboard.evaluation.selection import read_categories, select_tasks
from callboard.evaluation.task import Task

TASKS = [
    Task(f"{category}_{at}", "own", category, (), ())
    for category, count in {"simple": 40, "multiple": 20, "rare": 3}.items()
    for at in range(count)
]


def counts(tasks):
    return dict(Counter(task.category for task in tasks))


def test_a_number_is_shared_out_among_the_categories():
    assert counts(select_tasks(TASKS, count=5)) == {"simple": 2, "multiple": 2, "rare": 1}
    assert counts(select_tasks(TASKS, count=31)) == {"simple": 14, "multiple": 14, "rare": 3}
    assert len(select_tasks(TASKS)) == 63


def test_a_category_may_set_its_own_number():
    chosen = select_tasks(TASKS, categories=read_categories(["simple:24,multiple:12", "rare"]))
    assert counts(chosen) == {"simple": 24, "multiple": 12, "rare": 3}


def test_what_was_fitted_on_is_left_out():
    fitted = {task.identifier for task in select_tasks(TASKS, count=30, seed=7)}
    assert not fitted & {task.identifier for task in select_tasks(TASKS, exclude=fitted)}


@given(st.permutations(TASKS), st.integers(0, 39), st.integers(0, 9))
def test_the_choice_depends_on_the_seed_alone(tasks, count, seed):
    categories = {"simple": count, "multiple": None}
    chosen = select_tasks(TASKS, categories=categories, seed=seed)
    assert chosen == select_tasks(tasks, categories=categories, seed=seed)
    more = select_tasks(TASKS, categories={"simple": count + 1, "multiple": None}, seed=seed)
    assert {task.identifier for task in chosen} <= {task.identifier for task in more}


@given(st.integers(1, 100))
def test_as_many_as_were_asked_for(count):
    assert len(select_tasks(TASKS, count=count)) == min(count, len(TASKS))


def test_another_seed_gives_other_tasks():
    assert select_tasks(TASKS, count=20, seed=1) != select_tasks(TASKS, count=20, seed=2)


@table(
    "options",
    [
        {"categories": {"loud": None}},
        {"count": 0},
        {"exclude": {t.identifier for t in TASKS}},
        {"categories": {"rare": 4}},
    ],
)
def test_nothing_to_do_is_a_mistake(options):
    with pytest.raises(CallerError):
        select_tasks(TASKS, **options)


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(CallerError, match="two tasks have this name") as caught:
        select_tasks([*TASKS, TASKS[0]])
    assert caught.value.path == "own/simple/simple_0"


def test_a_number_of_tasks_is_a_number():
    with pytest.raises(CallerError, match="not a number"):
        read_categories(["simple:many"])
