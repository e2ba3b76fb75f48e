"""Laws of the figures that a report shows and a profile is chosen by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.evaluation.statistics import Score, choose_best, percentile, wilson_interval, win_by_chance


def score(solved, total, seconds=1.0, *, first=0):
    """The first tasks are solved, from `first` on."""
    return Score({f"t{at}": first <= at < first + solved for at in range(total)}, seconds * total, 10 * total)


def test_the_interval_is_the_published_one():
    assert wilson_interval(44, 48) == pytest.approx((0.8045, 0.9671), abs=1e-4)
    assert wilson_interval(12, 12) == pytest.approx((0.7575, 1.0), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(0, 500), st.integers(1, 500))
def test_an_interval_holds_its_share_and_narrows(solved, total):
    solved = min(solved, total)
    low, high = wilson_interval(solved, total)
    assert 0 <= low <= solved / total <= high <= 1
    more = wilson_interval(solved * 4, total * 4)
    assert more.high - more.low < high - low


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_among_the_values(values, share):
    assert min(values) <= percentile(values, share) <= max(values)


def test_percentiles():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([0, 10], 0.9) == 9
    assert percentile([], 0.5) == 0


def test_costs_are_shared_among_the_solved_tasks():
    assert score(5, 10, 2.0).seconds_per_solved == 4.0
    assert score(5, 10, 2.0).tokens_per_solved == 20.0
    assert score(0, 10).seconds_per_solved is None


def test_a_win_on_a_few_tasks_may_be_chance():
    assert win_by_chance({"a": True}, {"a": False}) == 0.5
    assert win_by_chance(score(10, 10).solved, score(0, 10).solved) == pytest.approx(2**-10)
    assert win_by_chance({}, {}) == 1.0


def test_the_highest_lower_bound_is_chosen():
    choice = choose_best({"plain": score(20, 48), "gate": score(44, 48)})
    assert choice is not None
    assert choice.name == "gate"
    assert choice.slower == choice.tied == ()


def test_a_win_within_noise_is_called_one():
    choice = choose_best({"plain": score(42, 48), "gate": score(44, 48), "slow": score(44, 48, 2.0)})
    assert choice is not None
    assert (choice.name, choice.tied) == ("gate", ("plain",))
    assert choice.reason.endswith("it beats plain only within noise")


def test_a_win_within_noise_is_not_paid_for():
    choice = choose_best({"plain": score(40, 48), "thought": score(42, 48, 2.0)})
    assert choice is not None
    assert choice.name == "plain"
    assert choice.slower == ("thought",)
    assert "thought" in choice.reason


def test_a_clear_win_is_paid_for():
    choice = choose_best({"plain": score(20, 48), "thought": score(44, 48, 4.0)})
    assert choice is not None
    assert choice.name == "thought"


def test_few_tasks_that_all_are_solved_prove_less_than_many():
    choice = choose_best({"few": score(2, 2), "many": score(45, 48)})
    assert choice is not None
    assert choice.name == "many"


def test_without_answers_nothing_is_chosen():
    assert choose_best({}) is None
    assert choose_best({"plain": Score({})}) is None


_SCORES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(score, st.integers(0, 20), st.integers(0, 20), st.floats(0.1, 10), first=st.integers(0, 10)),
)


@given(_SCORES)
def test_some_candidate_is_always_chosen(scores):
    choice = choose_best(scores)
    assert (choice is None) == (not any(each.total for each in scores.values()))
    if choice is not None:
        assert scores[choice.name].total
        assert choice.name not in choice.slower
