import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.errors import CallerError
from callboard.evaluation import Task, sample

TASKS = [Task(f"{category}_{n}", "mine", category, (), ()) for category in ("simple", "none") for n in range(50)]
seeds = st.integers(-(2**63), 2**63)


def names(tasks):
    return [task.identifier for task in tasks]


@given(st.permutations(TASKS), seeds, st.integers(0, 50), st.integers(0, 50))
def test_a_sample_follows_from_the_seed_and_a_larger_one_holds_it(tasks, seed, some, more):
    some, more = sorted((some, more))
    chosen = names(sample(tasks, {"none": some}, seed))
    assert chosen == names(sample(TASKS, {"none": some}, seed))
    assert chosen == names(sample(TASKS, {"none": more}, seed))[:some]


@given(seeds, st.integers(0, 25))
def test_samples_that_exclude_one_another_share_no_task(seed, count):
    first = names(sample(TASKS, {"simple": count}, seed))
    second = names(sample(TASKS, {"simple": 50 - count}, seed, exclude=first))
    assert sorted(first + second) == sorted(names(TASKS[:50]))


def test_a_sample_is_the_same_on_every_machine():
    assert " ".join(names(sample(TASKS, {"none": 3, "simple": 2}, 7))) == "none_10 none_44 none_32 simple_36 simple_38"
    assert names(sample(TASKS, {"simple": 5}, 7)) != names(sample(TASKS, {"simple": 5}, 8))


def test_more_tasks_than_there_are_is_an_error():
    with pytest.raises(CallerError, match=r"51 tasks of none were requested, but there are 50.*(\s|.)*none, simple"):
        sample(TASKS, {"none": 51}, 7)
    with pytest.raises(CallerError, match="there are 0"):
        sample(TASKS, {"unheard": 1}, 7)
