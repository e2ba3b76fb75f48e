"""What a handful of attempts proves: intervals, the cost of a solved task, and which variant to choose.

Laws: an interval lies within 0 and 1, holds the share that was measured, and narrows as tasks are added. Where a variant
has answered a task, one is chosen; each that has a higher lower bound than the chosen one took too many seconds for a
win within noise.

Why Wilson and not share plus or minus two deviations: 12 of 12 solved is not certainty, and the plain formula says it is.
Why two variants are compared task by task (`win_by_chance`): both had the same tasks, so what both solve and what both
miss says nothing about which is better, and two intervals that overlap may hide a clear win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

_Z: Final = 1.959963984540054
"""Standard deviations of an interval that holds the true share 95 times of 100."""
NOISE: Final = 0.05
"""A win whose probability by chance is larger is taken for noise."""
TOLERANCE: Final = 1.5
"""Times the seconds of another variant that a win within noise may cost."""


class Interval(NamedTuple):
    """Where the true share lies, 95 times of 100."""

    low: float
    high: float


class Score(msgspec.Struct, frozen=True):
    """What one variant did with its tasks.

    `solved` has an entry for each task that the model answered, by the task's identifier; a task whose endpoint failed
    has none. `seconds` and `tokens` are those of all of these tasks, solved or not.
    """

    solved: Mapping[str, bool]
    seconds: float = 0.0
    tokens: int = 0

    @property
    def total(self) -> int:
        """The tasks that were answered."""
        return len(self.solved)

    @property
    def count(self) -> int:
        """The tasks that were solved."""
        return sum(self.solved.values())

    @property
    def share(self) -> float:
        """The share of tasks that were solved; 0 of none."""
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> Interval:
        """The interval of the share."""
        return wilson_interval(self.count, self.total)

    @property
    def seconds_per_task(self) -> float:
        """Seconds that a task took, solved or not."""
        return self.seconds / self.total if self.total else 0.0

    @property
    def seconds_per_solved(self) -> float | None:
        """All seconds, shared among the solved tasks; None where none was solved."""
        return self.seconds / self.count if self.count else None

    @property
    def tokens_per_solved(self) -> float | None:
        """All tokens, shared among the solved tasks; None where none was solved."""
        return self.tokens / self.count if self.count else None


class Choice(msgspec.Struct, frozen=True):
    """The chosen variant, why, and what was refused for its price."""

    name: str
    reason: str
    slower: tuple[str, ...] = ()
    """Variants with a higher lower bound that cost too much for a win within noise, the best first."""
    tied: tuple[str, ...] = ()
    """Variants over which it wins within noise, and not by its seconds either."""


def wilson_interval(solved: int, total: int) -> Interval:
    """The Wilson interval of a share.

    Args:
        solved: Successes.
        total: Trials; of none, nothing is known.
    """
    if total <= 0:
        return Interval(0.0, 1.0)
    share, square = solved / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = _Z / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return Interval(max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach)))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed, interpolated between neighbours; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return min(ordered[above], ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def win_by_chance(better: Mapping[str, bool], worse: Mapping[str, bool]) -> float:
    """The probability that chance alone gives such a win or a larger one (exact sign test over the tasks of both).

    Args:
        better: Whether each task was solved by the variant that seems to win.
        worse: The same of the other.
    """
    common = better.keys() & worse.keys()
    wins = sum(better[task] and not worse[task] for task in common)
    losses = sum(worse[task] and not better[task] for task in common)
    decided = wins + losses
    return float(sum(math.comb(decided, count) for count in range(wins, decided + 1)) / 2**decided)


def choose_best(scores: Mapping[str, Score]) -> Choice | None:
    """Choose by the lower bound of the interval, unless a win within noise costs too many seconds.

    Args:
        scores: Each variant's score by its name. Those that answered no task are no candidates.

    Returns:
        The choice, None without candidates. Of equals, the faster one is chosen.
    """
    candidates = {name: score for name, score in scores.items() if score.total}
    ranked = sorted(candidates, key=lambda name: (-candidates[name].interval.low, candidates[name].seconds_per_task))
    slower: list[str] = []
    for name in ranked:
        rival = _cheaper_equal(name, candidates)
        if rival is None:
            tied = [other for other in ranked if other != name and _is_tied(candidates[name], candidates[other])]
            return Choice(name, _give_reason(candidates[name], slower, tied), tuple(slower), tuple(tied))
        slower.append(name)
    return None


def _cheaper_equal(name: str, scores: Mapping[str, Score]) -> str | None:
    """A variant that is much faster and over which this one wins within noise, if at all."""
    score = scores[name]
    for other, rival in scores.items():
        if other != name and _is_slower(score, rival) and _is_noise(score, rival):
            return other
    return None


def _is_slower(score: Score, rival: Score) -> bool:
    return score.seconds_per_task > TOLERANCE * rival.seconds_per_task


def _is_noise(score: Score, rival: Score) -> bool:
    return win_by_chance(score.solved, rival.solved) > NOISE


def _is_tied(score: Score, rival: Score) -> bool:
    return _is_noise(score, rival) and not _is_slower(rival, score)


def _give_reason(score: Score, slower: Sequence[str], tied: Sequence[str]) -> str:
    reason = f"the highest lower bound of the share of solved tasks ({score.interval.low * 100:.0f} %)"
    if slower:
        reason += (
            f" but for {', '.join(slower)}, which won within noise and took more than {TOLERANCE:g} times the seconds"
        )
    if tied:
        reason += f"; it beats {', '.join(tied)} only within noise"
    return reason
