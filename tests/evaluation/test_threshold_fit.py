"""A threshold is found from replies whose calls all passed."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import InvocationCanister, ToolDeclaration, UserCanister, contents
from callboard.evaluation.records import Record
from callboard.evaluation.runner import MIN_SCORE, TaskOutcome
from callboard.evaluation.task import Attempt, ExpectedCall, Step, Task
from callboard.evaluation.threshold_fit import fit_threshold, fit_thresholds
from callboard.evaluation.variants import FIT, Variant

WEATHER = ToolDeclaration("weather", "The weather of a city.", {"properties": {"city": {"type": "string"}}})
OPEN = Variant(f"gate=confidence {FIT}", {"gate": "confidence", "gate_threshold": float("-inf")}, fits_threshold=True)
ROME = ExpectedCall("weather", {"city": ("Rome",)})


def outcome(name, expected, *scores, city="Rome", steps=(), text="", variant=OPEN):
    """A task, and calls with these scores that the model made."""
    calls = [InvocationCanister(f"c{at}", "weather", {"city": city}, "{}") for at in range(len(scores))]
    attempt = Attempt(tuple(calls), text, scores={f"c{at}": score for at, score in enumerate(scores)})
    task = Task(name, "s", "c", (WEATHER,), (Step((UserCanister(contents(name)),), expected), *steps))
    return TaskOutcome(variant, task, Record(name, variant.name, "s", "c", name, (attempt,)))


def test_the_threshold_lies_in_the_widest_gap_that_solves_most():
    wanted = [outcome(f"w{score}", (ROME,), score) for score in (3.0, 2.0, 0.5)]
    unwanted = [outcome(f"u{score}", (), score) for score in (-4.0, -1.5, -1.0)]
    fit = fit_threshold([*wanted, *unwanted])
    assert (fit.solved, fit.total, fit.solved_without) == (6, 6, 3)
    assert -1.0 < fit.threshold < 0.5


def test_where_no_threshold_helps_nothing_is_stopped():
    fit = fit_threshold([outcome("a", (ROME,), -3.0), outcome("b", (ROME,), 1.0), outcome("c", (), 2.0)])
    assert (fit.solved, fit.solved_without) == (2, 2)
    assert fit.threshold < -3.0


def test_the_outcomes_are_those_at_the_fitted_threshold():
    other = outcome("a", (), 5.0, variant=Variant("default"))
    given_outcomes = [outcome("a", (), -1.0, text="I call it."), outcome("b", (ROME,), 1.0), other]
    stopped, passed, same = fit_thresholds(given_outcomes)
    assert (stopped.record.attempts[0].calls, stopped.record.attempts[0].text) == ((), "")
    assert passed.record.attempts == given_outcomes[1].record.attempts
    assert same is other
    assert stopped.variant.name == "gate=confidence gate_threshold=0 (fitted)"
    assert stopped.variant.facts == {"gate": "confidence", "gate_threshold": 0.0}


def test_one_of_two_calls_may_be_stopped():
    (fitted,) = fit_thresholds([outcome("a", (ROME,), 2.0, -2.0)])
    assert len(fitted.record.attempts[0].calls) == 1


def test_what_would_follow_on_a_stopped_call_counts_as_missed():
    later = outcome("a", (), -1.0, steps=(Step(answer=(("31",),)),))
    worded = outcome("b", (), -1.0)
    worded = TaskOutcome(OPEN, Task("b", "s", "c", (WEATHER,), (Step(answer=(("31",),)),)), worded.record)
    fit = fit_threshold([later, worded])
    assert fit.solved == 0
    assert fit_thresholds([later])[0].record.attempts == later.record.attempts


def test_a_call_that_the_model_is_certain_against_is_stopped_by_every_threshold():
    fit = fit_threshold([outcome("a", (), MIN_SCORE), outcome("b", (ROME,), 0.0)])
    assert (fit.solved, fit.solved_without) == (2, 2)


def test_a_reply_that_failed_is_no_evidence():
    failed = Record("f", OPEN.name, "s", "c", "f", (Attempt(failure="gone"),))
    fit = fit_threshold([TaskOutcome(OPEN, outcome("f", ()).task, failed), outcome("a", ())])
    assert (fit.solved, fit.total, fit.threshold) == (1, 1, 0.0)


SCORES = st.lists(st.tuples(st.booleans(), st.floats(-20, 20)), min_size=1, max_size=12)


@given(SCORES, st.floats(-25, 25))
def test_no_threshold_solves_more(calls, other):
    outcomes = [outcome(str(at), (ROME,) if wanted else (), score) for at, (wanted, score) in enumerate(calls)]
    fit = fit_threshold(outcomes)
    assert fit.solved >= sum(wanted == (score >= other) for wanted, score in calls)
    assert fit.solved == sum(wanted == (score >= fit.threshold) for wanted, score in calls)


@table("scores", [(), (0.0, 1e-9)])
def test_scores_that_are_close_are_kept_apart(scores):
    fit = fit_threshold([outcome(str(score), (ROME,) if score else (), score) for score in scores])
    assert fit.solved == len(scores)
