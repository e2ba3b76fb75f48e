"""Find the threshold of a gate that solves most of the tasks, from replies whose calls all passed.

A variant with `gate_threshold=fit` asks each task once, with a gate that scores every call and stops none. The scores
show the effect of any threshold, so all thresholds are tried on the same replies.

Laws: the model is not asked. No threshold solves more of these tasks than the fitted one. If no threshold helps, the
fitted one stops nothing, except calls with a score of minus infinity. Unknown parts of a reply, such as the text after a
stopped call, count as missed if the task needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard.evaluation.check import check_step
from callboard.evaluation.runner import MIN_SCORE, TaskOutcome
from callboard.evaluation.task import Attempt, Task
from callboard.evaluation.variants import FIT, Variant

_DIGITS: Final = 3
"""Digits of a threshold, if they are enough to separate two scores."""


class ThresholdFit(msgspec.Struct, frozen=True):
    """The threshold that solved most tasks. `solved_without` is the number of solved tasks if every call passes."""

    threshold: float
    solved: int
    total: int
    solved_without: int


def fit_thresholds(outcomes: Iterable[TaskOutcome]) -> list[TaskOutcome]:
    """Fit the thresholds of variants. Return all outcomes, with the fitted thresholds applied to their variants."""
    outcomes = list(outcomes)
    fitted = {
        each.variant.name: fit_threshold([other for other in outcomes if other.variant.name == each.variant.name])
        for each in outcomes
        if each.variant.fits_threshold
    }
    return [
        _apply(each, fitted[each.variant.name].threshold) if each.variant.name in fitted else each for each in outcomes
    ]


def fit_threshold(outcomes: Sequence[TaskOutcome]) -> ThresholdFit:
    """Fit the threshold of one variant.

    Args:
        outcomes: The outcomes of all tasks. Unanswered tasks are ignored.
    """
    answered = [each for each in outcomes if not each.record.failure]
    attempts = [attempt for each in answered for attempt in each.record.attempts]
    scores = sorted({score for attempt in attempts for score in attempt.scores.values() if score > MIN_SCORE})
    always = [each for each in answered if not any(attempt.scores for attempt in each.record.attempts)]
    judged = [each for each in answered if any(attempt.scores for attempt in each.record.attempts)]
    base = sum(_is_solved(each.task, each.record.attempts) for each in always)

    def count(threshold: float) -> int:
        return base + sum(_is_solved(each.task, _stop_calls(each, threshold)) for each in judged)

    stops_nothing = _round(scores[0] - 2, scores[0]) if scores else 0.0
    without = count(stops_nothing)
    best, width, threshold = without, 0.0, stops_nothing
    for low, high in _gaps(scores):
        solved = count(middle := (low + high) / 2)
        if solved > best or (solved == best > without and high - low > width):
            best, width, threshold = solved, high - low, _round(middle, high) if _round(middle, high) > low else middle
    return ThresholdFit(threshold, best, len(answered), without)


def _gaps(scores: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the gaps between two scores, and the gap above the last score. Thresholds within a gap are equal."""
    yield from pairwise(scores)
    if scores:
        yield scores[-1], scores[-1] + 1


def _round(value: float, below: float) -> float:
    """Round the value to a few digits, if it stays below the other value."""
    short = float(f"{value:.{_DIGITS}g}")
    return short if short < below else value


def _apply(outcome: TaskOutcome, threshold: float) -> TaskOutcome:
    variant = outcome.variant
    # Mark the name as fitted, because another variant may have the same threshold and would have the same name.
    name = variant.name.replace(FIT, f"gate_threshold={threshold:g} (fitted)")
    fitted = Variant(name, {**variant.facts, "gate_threshold": threshold}, fits_threshold=True)
    record = replace(outcome.record, variant=name, attempts=_stop_calls(outcome, threshold))
    return replace(outcome, variant=fitted, record=record)


def _stop_calls(outcome: TaskOutcome, threshold: float) -> tuple[Attempt, ...]:
    """Return the attempts with this threshold, up to the first attempt that it changes.

    If the changed step is solved, the reply to the next step is not known. Such a task stays unchanged, and missed.
    """
    task, attempts = outcome.task, outcome.record.attempts
    for at, attempt in enumerate(attempts):
        calls = tuple([each for each in attempt.calls if attempt.scores.get(each.identifier, threshold) >= threshold])
        if len(calls) < len(attempt.calls):
            changed = (*attempts[:at], replace(attempt, calls=calls, text=attempt.text if calls else ""))
            is_missed = not check_step(task, task.steps[at], changed[-1]).solved
            return changed if is_missed or len(changed) == len(task.steps) else attempts
    return attempts


def _is_solved(task: Task, attempts: Sequence[Attempt]) -> bool:
    solved = [check_step(task, step, attempt).solved for step, attempt in zip(task.steps, attempts, strict=False)]
    return all(solved) and len(solved) == len(task.steps)
