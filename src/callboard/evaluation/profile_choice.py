"""Choose the facts of a profile from a comparison, with a sentence of evidence.

Laws: facts come only from a variant that has answered every task, and the evidence has the figures. A win within noise
writes no facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.evaluation.report import Report, VariantScore, format_interval


class ChosenProfile(msgspec.Struct, frozen=True):
    """The facts of the best variant, and the evidence for the settings."""

    facts: Mapping[str, Any]
    evidence: str


def choose_profile(report: Report, mode: str, sample: str = "") -> ChosenProfile | None:
    """Choose the facts to write.

    Args:
        report: A comparison of variants.
        mode: The model's mode without any variant. It is written if this mode stays because of its speed, so that the
            settings have the reason.
        sample: How the tasks were chosen. Do not report on tasks that a threshold was fitted on.

    Returns:
        The choice. It has no facts if the present profile is the best, or others win only within noise. None if no
        comparison was completed.
    """
    choice = report.choice
    if choice is None:
        return None
    scores = {each.name: each for each in report.variants}
    best = scores[choice.name]
    if not best.solved:  # the fastest variant would win
        return ChosenProfile({}, f"no variant solved any of {report.planned} tasks")
    slower = [scores[name] for name in choice.slower]
    complete = [each for each in report.variants if each.total == report.planned and each is not best]
    rivals = [each.name for each in complete if not each.facts] or [each.name for each in complete]
    if best.facts and {*rivals} <= {*choice.tied}:
        evidence = f"{best.name} beats {', '.join(rivals)} only within noise: {_describe(best)}; try more tasks"
        return ChosenProfile({}, evidence)
    evidence = f"{_describe(best)}, the best of {len(report.variants)} variants on {report.planned} tasks"
    if best.fits_threshold:
        evidence += f", on which gate_threshold was fitted, so report on others than {sample or 'these'}"
    if slower:
        times = [f"{each.name} {each.solved} at {_ratio(each, best)}" for each in slower]
        evidence += f"; stays for its latency (effort), for within noise won {', '.join(times)} times its seconds"
    facts = dict(best.facts)
    if slower and not facts:
        facts = {"mode": mode}
    return ChosenProfile(facts, evidence)


def _describe(score: VariantScore) -> str:
    return f"{score.solved} of {score.total} solved ({format_interval(score.interval)}), {score.seconds_per_task:.1f} s each"


def _ratio(score: VariantScore, other: VariantScore) -> str:
    return f"{score.seconds_per_task / other.seconds_per_task:.1f}" if other.seconds_per_task else "many"
