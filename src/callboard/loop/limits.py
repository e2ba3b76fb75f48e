"""The bounds of a run, how much of them it has used, and the reasons that end it."""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from callboard.core import RunProgress, Usage
from callboard.errors import CallerError
from callboard.profiles import Pricing, describe_spent

MAX_DEPTH = 16
"""Runs within runs; an agent may, through others, be a tool of itself."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one run; None is no bound.

    When rounds, calls or errors are used up, one last reply is asked for, without tools; after tokens and cost nothing
    more is asked for; seconds cut what is under way. The run is then incomplete.
    """

    rounds: int = 20
    """Replies that may call, before one that may not. Few tasks need as many; a model that goes in circles is stopped."""
    calls: int | None = None
    """Invocations that are run."""
    errors: int | None = 8
    """Results with an error, one after another."""
    tokens: int | None = None
    """Tokens of input and output together."""
    cost: float | None = None
    """The cost in US dollars. It needs a model whose price is known."""
    seconds: float | None = None
    """The time from the run's start."""
    output_retries: int = 1
    """How often in a row the model is asked again because its output was refused; 0 is never."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            least = 0 if name in ("rounds", "output_retries") else math.ulp(0.0)
            if bound is not None and not (type(bound) in (int, float) and bound >= least):
                raise CallerError(f"a limit is above zero, not {bound!r}", path=f"limits.{name}")


class Budget:
    """What a run has taken of its limits.

    With an `outer` budget, that of the run that this one is within, both take what this run takes, and neither goes on
    where the limits of one are reached. Raises CallerError where too many runs are within one another.
    """

    def __init__(self, limits: Limits, pricing: Pricing | None, outer: Budget | None = None) -> None:
        self.limits = limits
        self.usage = Usage()
        self.calls = 0
        """Calls that were run."""
        self._outer = outer
        self.spent = 0.0
        """The cost of the replies whose cost is known."""
        self._is_priced = pricing is not None
        self.depth: int = outer.depth + 1 if outer else 0
        if self.depth > MAX_DEPTH:
            raise CallerError(f"more than {MAX_DEPTH} runs stand in one another", hint="answer without this agent")

    @property
    def cost(self) -> float | None:
        """The cost so far, None where the price of some of it is not known."""
        return self.spent if self._is_priced else None

    @property
    def is_bounded(self) -> bool:
        """Whether the cost has a bound, that of this run or of one that it is within."""
        return self.limits.cost is not None or (self._outer is not None and self._outer.is_bounded)

    def add(self, usage: Usage, pricing: Pricing | None, now: datetime) -> None:
        """Count the usage of a reply. Tokens that nobody counted make the cost unknown, unless they are free."""
        cost = pricing.cost(usage, now) if pricing is not None else None
        if pricing is not None and not (usage.input or usage.output):
            one_each = Usage(input=1, output=1, model=usage.model)
            cost = cost if pricing.cost(one_each, now) == 0 else None
        self._add(usage, cost)

    def _add(self, usage: Usage, cost: float | None) -> None:
        self.usage += usage
        self.spent += cost or 0.0
        self._is_priced &= cost is not None
        if self._outer is not None:
            self._outer._add(usage, cost)  # noqa: SLF001  # of the same class

    def go_on(self, progress: RunProgress) -> None:
        """Count what the run had taken before it was interrupted."""
        self.usage, self.calls = progress.usage, progress.calls
        self.spent, self._is_priced = progress.cost, self._is_priced and progress.is_priced

    def add_calls(self, count: int) -> None:
        """Count calls that are run."""
        self.calls += count
        if self._outer is not None:
            self._outer.add_calls(count)

    def out_of_calls(self) -> str:
        """Why no more calls are taken, if so."""
        most = self.limits.calls
        if most is not None and self.calls >= most:
            return f"no answer within {most} calls"
        return self._outer.out_of_calls() if self._outer is not None else ""

    def exhaustion_reason(self) -> str:
        """Why nothing more is asked for, if so."""
        used, limits = self.usage.input + self.usage.output, self.limits
        if limits.tokens is not None and used >= limits.tokens:
            return f"{used} tokens are used, of {limits.tokens}"
        if limits.cost is not None and self.spent >= limits.cost:
            return describe_spent(self.spent, limits.cost)
        if limits.cost is not None and not self._is_priced:
            return f"the cost is not known any more, and there is a budget of ${limits.cost:.4g}"
        return self._outer.exhaustion_reason() if self._outer is not None else ""
