"""Invocations that cannot run.

Owns what the model is told of a name that no tool has and of arguments that are no object.
"""

from __future__ import annotations

from collections.abc import Mapping

from callboard.core import InvocationCanister, ResultCanister, error_result
from callboard.text.near import near
from callboard.tools.invoker import Invoker

_MAX_EXCERPT = 200


def refusal(invocation: InvocationCanister, invokers: Mapping[str, Invoker], why: str = "") -> ResultCanister | None:
    """The result of an invocation that cannot run, None for one that can. `why` says what cut it short."""
    if invocation.name not in invokers:
        meant = [each.calls[invocation.name] for each in invokers.values() if invocation.name in each.calls]
        hint = f"did you mean {' or '.join(meant)}?" if meant else near(invocation.name, invokers)
        return error_result(invocation.identifier, "not_found", f"no tool {invocation.name[:64]!r}; {hint}")
    if invocation.arguments is None:
        if why == "length":
            told = "the call was cut at the reply's length limit before its arguments ended; make it shorter"
        elif why:
            told = f"the call ended before its arguments were whole ({why})"
        else:
            told = (
                f"ArgValidationError: arguments\n  Input should be a JSON object, not {invocation.raw[:_MAX_EXCERPT]!r}"
            )
        return error_result(invocation.identifier, "validation", told)
    return None
