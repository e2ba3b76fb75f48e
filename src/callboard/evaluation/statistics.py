"""Statistics of few attempts: intervals, the cost of a solved task, and the choice of a variant.

Laws: an interval is within 0 and 1, contains the measured share, and narrows with more tasks. If any variant answered a
task, a variant is chosen. Variants with a higher lower bound than the chosen one were too slow for a win within noise.

We use the Wilson interval and not the share plus or minus two deviations, because the latter calls 12 of 12 certain.
We compare two variants task by task (`win_by_chance`), because both had the same tasks. Tasks that both solve or both
miss do not show which is better, and overlapping intervals may hide a clear win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

_Z: Final = 1.959963984540054
"""Standard deviations of a 95 % interval."""
NOISE: Final = 0.05
"""Maximum probability by chance of a real win. Other wins are noise."""
TOLERANCE: Final = 1.5
"""Maximum factor of time that a win within noise may cost."""


class Interval(NamedTuple):
    """A 95 % confidence interval of a share."""

    low: float
    high: float


class Score(msgspec.Struct, frozen=True):
    """The results of one variant.

    `solved` has an entry for each task that the model answered, by the task's identifier. Tasks whose endpoint failed
    have none. `seconds` and `tokens` are sums over all answered tasks.
    """

    solved: Mapping[str, bool]
    seconds: float = 0.0
    tokens: int = 0

    @property
    def total(self) -> int:
        """Number of answered tasks."""
        return len(self.solved)

    @property
    def count(self) -> int:
        """Number of solved tasks."""
        return sum(self.solved.values())

    @property
    def share(self) -> float:
        """Share of solved tasks, 0 if there are no tasks."""
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> Interval:
        """Interval of the share."""
        return wilson_interval(self.count, self.total)

    @property
    def seconds_per_task(self) -> float:
        """Mean seconds of an answered task."""
        return self.seconds / self.total if self.total else 0.0

    @property
    def seconds_per_solved(self) -> float | None:
        """All seconds divided by the solved tasks, None if no task was solved."""
        return self.seconds / self.count if self.count else None

    @property
    def tokens_per_solved(self) -> float | None:
        """All tokens divided by the solved tasks, None if no task was solved."""
        return self.tokens / self.count if self.count else None


class Choice(msgspec.Struct, frozen=True):
    """The chosen variant, the reason, and the variants that were too slow."""

    name: str
    reason: str
    slower: tuple[str, ...] = ()
    """Variants with a higher lower bound that cost too much for a win within noise, the best first."""
    tied: tuple[str, ...] = ()
    """Variants that are neither worse beyond noise nor slower."""


def wilson_interval(solved: int, total: int) -> Interval:
    """Return the Wilson interval of a share.

    Args:
        solved: Number of successes.
        total: Number of trials. For 0 the interval is 0 to 1.
    """
    if total <= 0:
        return Interval(0.0, 1.0)
    share, square = solved / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = _Z / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return Interval(max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach)))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of the values does not exceed, interpolated; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return min(ordered[above], ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def win_by_chance(better: Mapping[str, bool], worse: Mapping[str, bool]) -> float:
    """Return the probability of such a win, or a larger win, by chance (exact sign test over the common tasks).

    Args:
        better: Whether the variant that seems to win solved each task.
        worse: Whether the other variant solved each task.
    """
    common = better.keys() & worse.keys()
    wins = sum(better[task] and not worse[task] for task in common)
    losses = sum(worse[task] and not better[task] for task in common)
    decided = wins + losses
    return float(sum(math.comb(decided, count) for count in range(wins, decided + 1)) / 2**decided)


def choose_best(scores: Mapping[str, Score]) -> Choice | None:
    """Choose by the lower bound of the interval, unless a win within noise costs too many seconds.

    Args:
        scores: The scores by the names of the variants. Variants that answered no task are not candidates.

    Returns:
        The choice, None without candidates. If two are equal, the faster one is chosen.
    """
    candidates = {name: score for name, score in scores.items() if score.total}
    ranked = sorted(candidates, key=lambda name: (-candidates[name].interval.low, candidates[name].seconds_per_task))
    slower: list[str] = []
    for name in ranked:
        score = candidates[name]
        # A win within noise is not worth a multiple of the seconds.
        if not any(_is_slower(score, rival) and _is_noise(score, rival) for rival in candidates.values()):
            tied = [other for other in ranked if other != name and _is_tied(score, candidates[other])]
            return Choice(name, _give_reason(score, slower, tied), tuple(slower), tuple(tied))
        slower.append(name)
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
            f" except {', '.join(slower)}, which won within noise and took more than {TOLERANCE:g} times the seconds"
        )
    if tied:
        reason += f"; it beats {', '.join(tied)} only within noise"
    return reason
