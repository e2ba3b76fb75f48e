"""Results for calls that cannot run, and calls with edited arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.core import InvocationCanister, ResultCanister, TextualContent, error_result
from callboard.text.suggest import suggest
from callboard.tools.invoker import Invoker
from callboard.tools.permissions import Permission, Policy, read_decision

_MAX_EXCERPT = 200


def check_call(invocation: InvocationCanister, invokers: Mapping[str, Invoker], why: str = "") -> ResultCanister | None:
    """Return the error result of an `invocation` that none of the `invokers` can run, otherwise None.

    `why` says what cut it short.
    """
    if invocation.name not in invokers:
        alternatives = [each.calls[invocation.name] for each in invokers.values() if invocation.name in each.calls]
        hint = f"did you mean {' or '.join(alternatives)}?" if alternatives else suggest(invocation.name, invokers)
        return error_result(invocation.identifier, "not_found", f"no tool {invocation.name[:64]!r}; {hint}")
    if invocation.arguments is None:
        wrote = f"; you wrote {invocation.raw[:_MAX_EXCERPT]!r}" if invocation.raw else ""
        if why == "length":
            message = f"the call was cut at the reply's length limit before its arguments ended; make it shorter{wrote}"
        elif why:
            message = f"the call ended before its arguments were whole ({why}){wrote}"
        else:
            message = (
                f"ArgValidationError: arguments\n  Input should be a JSON object, not {invocation.raw[:_MAX_EXCERPT]!r}"
            )
        return error_result(invocation.identifier, "validation", message)
    return None


def edited_invocation(
    invocation: InvocationCanister,
    arguments: Mapping[str, Any],
    invoker: Invoker,
    policy: Policy,
    *,
    validated: bool = True,
) -> InvocationCanister | ResultCanister:
    """Replace the model's arguments with a person's edited arguments.

    Args:
        invocation: The call that was allowed.
        arguments: The edited arguments.
        invoker: The tool that is called.
        policy: The rules. They apply to the person's arguments as well.
        validated: False takes the arguments as they are (mode parsed).

    Returns:
        The call to run, or the result of a call that must not or cannot run.
    """
    identifier, name = invocation.identifier, invocation.name
    permission, why = read_decision(policy, invoker, arguments)
    if invoker.deferred:
        # The person or program that provides the result never sees the edited arguments.
        return denial(invocation, "its result comes from outside, so its arguments cannot be edited")
    if permission not in ("allow", "ask"):
        return denial(invocation, f"its arguments were edited, and {why}")
    if mistake := invoker.find_mistake(arguments) if validated else "":
        return error_result(identifier, "validation", f"the arguments of {name} were edited, and do not fit: {mistake}")
    return replace(invocation, arguments=arguments, raw=msgspec.json.encode(arguments).decode())


def edited_result(invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
    """Return the `result` of an `invocation` with edited arguments, with a note that they were edited."""
    text = f"The arguments of this call were edited before it ran: {invocation.raw}"
    return replace(result, content=(TextualContent(text), *result.content))


def judge_call(
    invocation: InvocationCanister, invoker: Invoker, policy: Policy, *, asks_quoted: bool = True
) -> tuple[Permission, str]:
    """Return the decision of `policy` about an `invocation` of `invoker`, and its reason.

    With `asks_quoted`, a call that repeats a source needs approval.
    """
    permission, why = read_decision(policy, invoker, invocation.arguments or {})
    if not invocation.quoted_from or not asks_quoted or permission not in ("allow", "ask"):
        return permission, why
    quoted = f"this call stands word for word in {invocation.quoted_from}"
    return "ask", quoted if permission == "allow" else f"{why}; {quoted}"


def denial(invocation: InvocationCanister, why: str, *, quoted: bool = False) -> ResultCanister:
    """Return the result of an `invocation` that may not run because of `why`.

    `quoted` says that it repeats a source and was not approved.
    """
    if quoted:
        todo = "Its author may want this call, not the user. Continue without it, or tell the user why you need it."
        why = f"this call stands word for word in {invocation.quoted_from}, and {why}. {todo}"
    return error_result(invocation.identifier, "permission", f"{invocation.name} may not run: {why}")
