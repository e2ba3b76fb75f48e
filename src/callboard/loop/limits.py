"""How much a run may take.

Owns the bounds and what is said when one is reached. Knows nothing of what is done then.
"""

from __future__ import annotations

import msgspec

from callboard.errors import CallerError


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one run; None is no bound.

    `output_retries` says how often in a row the model is asked again because its output was refused; 0 is never.
    `rounds` are replies that may call, `calls` invocations that are run, `errors` results with an error one
    after another, `tokens` those of input and output together, `cost` what the profile's prices make of them,
    `seconds` the time from the run's start. When rounds, calls or errors are reached one last reply is asked
    for, without tools; after tokens and cost nothing more is asked for; seconds cut what is under way. The run is
    then incomplete.
    """

    rounds: int = 20
    calls: int | None = None
    errors: int | None = 8
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    output_retries: int = 1

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            if bound is not None and (bound < 0 or (bound == 0 and name != "output_retries")):
                raise CallerError(f"a limit is above zero, not {bound}", path=f"limits.{name}")
