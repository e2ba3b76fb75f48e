"""The limits of a run, its usage, and the reasons that end it."""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from callboard.core import RunProgress, Usage
from callboard.errors import CallerError
from callboard.profiles import Pricing, describe_spent

MAX_DEPTH = 16
"""Maximum depth of nested runs: an agent may be a tool of itself, through other agents."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one run; None means no limit.

    When rounds, calls or errors are used up, the model is asked for one last reply, without tools. When tokens or cost
    are used up, nothing more is requested. When the time is used up, work is cut off. The run is then incomplete.
    """

    rounds: int = 20
    """Maximum replies with calls. Few tasks need so many, and the limit stops models that go in circles."""
    calls: int | None = None
    """Maximum invocations that run."""
    errors: int | None = 8
    """Maximum results with errors in a row."""
    tokens: int | None = None
    """Maximum tokens, input and output together."""
    cost: float | None = None
    """Maximum cost in US dollars. The price of the model has to be known."""
    seconds: float | None = None
    """Maximum seconds since the run's start."""
    output_retries: int = 1
    """How often in a row the model is asked again after its output was refused; 0 for never."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            least = 0 if name in ("rounds", "output_retries") else math.ulp(0.0)
            if bound is not None and not (type(bound) in (int, float) and bound >= least):
                raise CallerError(f"a limit is above zero, not {bound!r}", path=f"limits.{name}")


class Budget:
    """The usage of a run, compared with its `limits`; `pricing` has the prices, if they are known.

    `outer` is the budget of the enclosing run. Usage counts against both budgets. When either is used up, this run
    stops. Raises CallerError if too many runs are nested.
    """

    def __init__(self, limits: Limits, pricing: Pricing | None, outer: Budget | None = None) -> None:
        self.limits = limits
        self.usage = Usage()
        self.calls = 0
        """Calls that have run."""
        self._outer = outer
        self.spent = 0.0
        """Cost of the replies whose cost is known, in US dollars."""
        self._is_priced = pricing is not None
        self.depth: int = outer.depth + 1 if outer else 0
        if self.depth > MAX_DEPTH:
            raise CallerError(f"more than {MAX_DEPTH} runs are nested", hint="answer without this agent")

    @property
    def cost(self) -> float | None:
        """The cost so far, or None if a price is unknown."""
        return self.spent if self._is_priced else None

    @property
    def is_bounded(self) -> bool:
        """Whether this run or an enclosing run has a limit on cost."""
        return self.limits.cost is not None or (self._outer is not None and self._outer.is_bounded)

    def add(self, usage: Usage, pricing: Pricing | None, now: datetime) -> None:
        """Count the `usage` of a reply at the time `now`, with the prices of `pricing`.

        Missing token counts make the cost unknown, unless the tokens are free.
        """
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
        """Restore the usage from before the interruption out of `progress`."""
        self.usage, self.calls = progress.usage, progress.calls
        self.spent, self._is_priced = progress.cost, self._is_priced and progress.is_priced

    def add_calls(self, count: int) -> None:
        """Count `count` calls that have run."""
        self.calls += count
        if self._outer is not None:
            self._outer.add_calls(count)

    def out_of_calls(self) -> str:
        """Return why no more calls may run, or an empty text."""
        most = self.limits.calls
        if most is not None and self.calls >= most:
            return f"no answer within {most} calls"
        return self._outer.out_of_calls() if self._outer is not None else ""

    def exhaustion_reason(self) -> str:
        """Return why nothing more may be requested, or an empty text."""
        used, limits = self.usage.input + self.usage.output, self.limits
        if limits.tokens is not None and used >= limits.tokens:
            return f"{used} tokens are used, of {limits.tokens}"
        if limits.cost is not None and self.spent >= limits.cost:
            return describe_spent(self.spent, limits.cost)
        if limits.cost is not None and not self._is_priced:
            return f"the cost is not known any more, and there is a budget of ${limits.cost:.4g}"
        return self._outer.exhaustion_reason() if self._outer is not None else ""
