"""Resume a history with waiting calls: with their results, or with decisions about them.

An allowed call runs as if it had been allowed at once. Invalid decisions are refused before anything runs: about an
unknown call, about a call that has its result, or with an unknown word.

An interrupted run resumes in the same way, but its undecided calls had not started. They are judged like new calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError
from callboard.execution import make_result
from callboard.execution.approval import read_answer
from callboard.tools import Invoker, Policy, check_call, edited_invocation


class Resumption(NamedTuple):
    """The waiting calls, the results of some, the decisions about others, and the user's next prompt."""

    invocations: tuple[core.InvocationCanister, ...]
    answered: Mapping[str, core.ResultCanister]
    decisions: tuple[core.ApprovalAnswered, ...]
    prompt: tuple[core.Canister, ...]


class Interruption(NamedTuple):
    """The saved state of an interrupted run, and later decisions and results by call identifier."""

    progress: core.RunProgress
    decisions: Mapping[str, core.ApprovalAnswered]
    results: Mapping[str, core.ResultCanister]


def find_waiting_calls(history: Iterable[core.Canister]) -> list[core.InvocationCanister]:
    """Return the invocations of a history that have no result."""
    waiting: dict[str, list[tuple[int, core.InvocationCanister]]] = {}
    for place, canister in enumerate(history):
        if isinstance(canister, core.InvocationCanister):
            waiting.setdefault(canister.identifier, []).append((place, canister))
        elif isinstance(canister, core.ResultCanister):
            waiting.pop(canister.invocation_id, None)
    return [each for _, each in sorted(chain.from_iterable(waiting.values()), key=itemgetter(0))]


def complete_results(
    waiting: Iterable[core.InvocationCanister], results: Mapping[str, Any], now: datetime
) -> Iterator[core.ResultCanister]:
    """Yield a result for each waiting call. Raises CallerError if a result belongs to no waiting call."""
    identifiers = dict.fromkeys(each.identifier for each in waiting)
    _check_known(results, identifiers, "result")
    for identifier in identifiers:
        value = results.get(identifier, core.ToolError("cancelled", "no result was given"))
        if isinstance(value, core.ToolError):
            result = core.error_result(identifier, value.category, value.message)
        else:
            result = make_result(identifier, value)
        yield replace(result, timestamp=now)


def read_resumption(
    waiting: list[core.InvocationCanister],
    approvals: Mapping[str, core.Answer],
    results: Mapping[str, Any],
    prompt: tuple[core.Canister, ...],
    *,
    invokers: Mapping[str, Invoker],
    policy: Policy,
    validated: bool,
    now: datetime,
) -> Resumption:
    """Read the decisions about waiting calls.

    Args:
        waiting: The calls of the history that have no result.
        approvals: The decisions, by call identifier.
        results: Results of other waiting calls.
        prompt: The user's next prompt.
        invokers: The tools by the names that models use.
        policy: The rules. Edited arguments have to pass them too.
        validated: Whether edited arguments are validated.
        now: The time.

    Returns:
        The work that the run starts with. A call without a decision is cancelled.

    Raises:
        CallerError: A decision is invalid, belongs to no waiting call, or decides a call twice.
    """
    calls = {each.identifier: each for each in waiting}
    counts = Counter(each.identifier for each in waiting)
    _check_known(approvals, calls, "approval")
    decisions: list[core.ApprovalAnswered] = []
    for identifier, answer in approvals.items():
        path = f"approvals.{identifier}"
        if identifier in results:
            raise CallerError("the call is decided twice", path=path, hint="give its result or an approval, not both")
        if counts[identifier] > 1:
            raise CallerError("several calls of this identifier wait", path=path, hint="give each one of its own")
        decision = read_answer(calls[identifier], answer)
        if decision.failed:
            hint = "write 'allow', 'deny', 'defer', Allow(arguments) or Deny(why)"
            raise CallerError(decision.why, path=path, hint=hint)
        _check_edited(decision, invokers, policy, path, validated=validated)
        invoker = invokers.get(decision.invocation.name)
        gets_result_later = decision.verdict == "allow" and invoker is not None and invoker.deferred
        if prompt and (decision.verdict == "defer" or gets_result_later):
            hint = "give the prompt when each call has its result"
            raise CallerError("a prompt cannot follow a call that still waits", path=path, hint=hint)
        decisions.append(decision)
    others = [each for each in waiting if each.identifier not in approvals]
    answered = {each.invocation_id: each for each in complete_results(others, results, now)}
    return Resumption(tuple(waiting), answered, tuple(decisions), prompt)


def read_interruption(
    history: Iterable[core.Canister],
    progress: core.RunProgress,
    approvals: Mapping[str, core.Answer],
    results: Mapping[str, Any],
    *,
    prompt: core.UserCanister,
    now: datetime,
) -> Interruption:
    """Return the saved state of an interrupted run that is to resume.

    Args:
        history: Its conversation as far as it was saved.
        progress: The rest of its saved state.
        approvals: Decisions about waiting calls, by identifier.
        results: Results of waiting calls.
        prompt: The user's next prompt, which must be empty.
        now: The time.

    Returns:
        The state that the run resumes from.

    Raises:
        CallerError: There is a prompt, or a decision or a result belongs to no waiting call.
    """
    if prompt.content:
        raise CallerError("an interrupted run resumes without a prompt", path="prompt", hint="let it end first")
    calls = {each.identifier: each for each in find_waiting_calls(history)}
    _check_known(approvals, calls, "approval")
    _check_known(results, calls, "result")
    resolved = complete_results([calls[identifier] for identifier in results], results, now)
    decisions = {identifier: read_answer(calls[identifier], answer) for identifier, answer in approvals.items()}
    return Interruption(progress, decisions, {each.invocation_id: each for each in resolved})


def _check_known(decided: Iterable[str], identifiers: Mapping[str, Any], what: str) -> None:
    for identifier in decided:
        if identifier not in identifiers:
            hint = f"there wait {', '.join(identifiers)}" if identifiers else "no call of the history waits"
            raise CallerError(f"no call waits for this {what}", path=identifier, hint=hint)


def _check_edited(
    decision: core.ApprovalAnswered, invokers: Mapping[str, Invoker], policy: Policy, path: str, *, validated: bool
) -> None:
    """Raise CallerError if the tool does not accept or allow the edited arguments."""
    call, arguments = decision.invocation, decision.arguments
    if arguments is None or check_call(call, invokers) is not None:
        return
    edited = edited_invocation(call, arguments, invokers[call.name], policy, validated=validated)
    if isinstance(edited, core.ResultCanister) and edited.error is not None:
        raise CallerError(edited.error.message, path=path)
