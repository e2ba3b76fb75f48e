"""Make facts of a profile out of a comparison: which ones, and the sentence that says why.

Laws: facts are written only of a variant that was asked every task, and the sentence has the figures that they stand on;
none are written that only noise speaks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.evaluation.report import Report, VariantScore, format_interval


class ChosenProfile(msgspec.Struct, frozen=True):
    """The facts of the best variant, and the evidence that stands beside each of them in the settings."""

    facts: Mapping[str, Any]
    evidence: str


def choose_profile(report: Report, mode: str, sample: str = "") -> ChosenProfile | None:
    """Choose what to write.

    Args:
        report: A comparison of variants.
        mode: The mode of the model as it is asked without any variant. It is written where that one stays for its
            speed, because the reason is worth reading then.
        sample: How the tasks were chosen, for whoever must not report on those that a threshold was fitted on.

    Returns:
        The choice; with no facts where the model is best asked as it is, or nothing but noise speaks for others. None
        where no comparison was completed.
    """
    choice = report.choice
    if choice is None:
        return None
    scores = {each.name: each for each in report.variants}
    best = scores[choice.name]
    if not best.solved:  # the fastest of them would be chosen
        return ChosenProfile({}, f"no variant solved any of {report.planned} tasks")
    slower = [scores[name] for name in choice.slower]
    complete = [each for each in report.variants if each.total == report.planned and each is not best]
    rivals = [each.name for each in complete if not each.facts] or [each.name for each in complete]
    if best.facts and {*rivals} <= {*choice.tied}:
        evidence = f"{best.name} beats {', '.join(rivals)} only within noise: {_describe(best)}; more tasks tell more"
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
