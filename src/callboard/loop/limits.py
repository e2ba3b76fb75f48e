"""The bounds of a run, how much of them it has used, and the reasons that end it."""

from __future__ import annotations

import math

import msgspec

from callboard.core import RunProgress, Usage
from callboard.errors import CallerError
from callboard.profiles import Prices

MAX_DEPTH = 16
"""Runs within runs; an agent may, through others, be a tool of itself."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one run; None is no bound.

    When rounds, calls or errors are used up, one last reply is asked for, without tools; after tokens and cost nothing
    more is asked for; seconds cut what is under way. The run is then incomplete.
    """

    rounds: int = 20
    """Replies that may call. Few tasks need as many; a model that goes in circles is stopped by them."""
    calls: int | None = None
    """Invocations that are run."""
    errors: int | None = 8
    """Results with an error, one after another."""
    tokens: int | None = None
    """Tokens of input and output together."""
    cost: float | None = None
    """The cost, in the currency of the profile's prices."""
    seconds: float | None = None
    """The time from the run's start."""
    output_retries: int = 1
    """How often in a row the model is asked again because its output was refused; 0 is never."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            least = 0 if name == "output_retries" else math.ulp(0.0)
            if bound is not None and not (type(bound) in (int, float) and bound >= least):
                raise CallerError(f"a limit is above zero, not {bound!r}", path=f"limits.{name}")


class Budget:
    """What a run has taken of its limits.

    With an `outer` budget, that of the run that this one is within, both take what this run takes, and neither goes on
    where the limits of one are reached. Raises CallerError where too many runs are within one another.
    """

    def __init__(self, limits: Limits, prices: Prices | None, outer: Budget | None = None) -> None:
        self.limits = limits
        self.usage = Usage()
        self.calls = 0
        """Calls that were run."""
        self._outer = outer
        self._earlier = RunProgress()
        self._by_prices: dict[Prices | None, Usage] = {prices: Usage()}
        self.depth: int = outer.depth + 1 if outer else 0
        if self.depth > MAX_DEPTH:
            raise CallerError(f"more than {MAX_DEPTH} runs stand in one another", hint="answer without this agent")

    @property
    def cost(self) -> float | None:
        """The cost so far, None where the price of some of it is not known."""
        return None if None in self._by_prices or not self._earlier.is_priced else self.spent

    def add(self, usage: Usage, prices: Prices | None) -> None:
        """Count the usage of a reply."""
        if usage != Usage():
            self.usage += usage
            self._by_prices[prices] = self._by_prices.get(prices, Usage()) + usage
            if self._outer is not None:
                self._outer.add(usage, prices)

    def go_on(self, progress: RunProgress) -> None:
        """Count what the run had taken before it was interrupted."""
        self._earlier = progress
        self.usage, self.calls = progress.usage, progress.calls

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
            return f"the cost is {self.spent:.4g}, of {limits.cost:.4g}"
        return self._outer.exhaustion_reason() if self._outer is not None else ""

    @property
    def spent(self) -> float:
        """The cost of the tokens whose price is known."""
        priced = [prices.cost(usage) for prices, usage in self._by_prices.items() if prices is not None]
        return self._earlier.cost + sum(priced)
