"""Ask whether a call may run.

One function asks the question and reads the answer. Another does the same for a call that a policy judges. The agent,
the processor and `execute_invoker` share them.

Laws:
- Only the answer "allow" (or True, or an Allow) runs a call. A missing callback, any other answer and an exception deny
  it: a mistake in a callback must never let a call run.
- Every other denial than an ordinary "no" gives its reason to the model and in an alert.
- The callback gets a copy of the call, so its changes do not affect the call that runs.
- An answer after the wait was cancelled is ignored.
- Edited arguments pass the same rules and validation as the model's arguments.
- Nobody is asked about a call with invalid arguments, because it could not run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.text.truncate import truncate
from callboard.tools import Invoker, Policy, denial, edited_invocation, judge_call

_VERDICTS: Final[dict[str | bool, core.Verdict]] = {
    True: "allow",
    "allow": "allow",
    False: "deny",
    "deny": "deny",
    "defer": "defer",
}
_MAX_SHOWN = 80
"""Maximum characters of an answer or an exception in a reason."""


async def ask_approval(
    approve: core.Approve | None, invocation: core.InvocationCanister, why: str
) -> core.ApprovalAnswered:
    """Ask whether an invocation may run.

    Args:
        approve: The callback, sync or async; None if nobody can be asked.
        invocation: The call.
        why: The reason for the question.

    Returns:
        The answer.
    """
    if approve is None:
        return _no_answer(invocation, "nobody can be asked")
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        answer: Any = approve(replace(invocation, arguments=deepcopy(invocation.arguments)), why)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001  # the call must not run, whatever a callback raises
        return _no_answer(
            invocation, f"the approval failed: {truncate(f'{type(error).__name__}: {error}', _MAX_SHOWN)}"
        )
    if task is not None and task.cancelling() > cancels:  # the callback swallowed the cancellation
        raise asyncio.CancelledError
    return read_answer(invocation, answer)


def read_answer(invocation: core.InvocationCanister, answer: Any) -> core.ApprovalAnswered:
    """Return what an answer means for a call. An invalid answer denies the call.

    Args:
        invocation: The call.
        answer: The answer of a person or a callback.

    Returns:
        The answer, with edited arguments only if they differ from the model's.
    """
    kind = type(answer)
    if kind is core.Deny and type(answer.why) is str:
        return core.ApprovalAnswered(invocation, "deny", answer.why, by=str(answer.by), via=str(answer.via))
    if kind is core.Allow:
        return replace(_is_allowed(invocation, answer.arguments), by=str(answer.by), via=str(answer.via))
    verdict = _VERDICTS.get(answer) if kind in (str, bool) else None
    if verdict is not None:
        return core.ApprovalAnswered(invocation, verdict)
    return _no_answer(invocation, f"the approval answered {_describe(answer)}, which is neither allow, deny nor defer")


def _is_allowed(invocation: core.InvocationCanister, arguments: Any) -> core.ApprovalAnswered:
    if arguments is None:
        return core.ApprovalAnswered(invocation, "allow")
    if not isinstance(arguments, Mapping):
        return _no_answer(invocation, f"the edited arguments are {_describe(arguments)}, not a mapping")
    try:
        # A copy: later changes to the caller's mapping must not affect the call that was validated.
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(arguments)), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        return _no_answer(invocation, f"the edited arguments are no JSON: {truncate(str(error), _MAX_SHOWN)}")
    return core.ApprovalAnswered(invocation, "allow", arguments=None if copied == invocation.arguments else copied)


def _no_answer(invocation: core.InvocationCanister, why: str) -> core.ApprovalAnswered:
    return core.ApprovalAnswered(invocation, "deny", why, failed=True)


class EarlierAnswers:
    """Calls that a person has allowed, so that the question about an equal call can mention them."""

    def __init__(self) -> None:
        self._allowed: list[core.ApprovalAnswered] = []

    def mention(self, invocation: core.InvocationCanister, why: str) -> str:
        """Return `why` with the last answer that allowed the same tool with the same arguments."""
        return mention_earlier(self._allowed, invocation.name, invocation.arguments, why)

    def note(self, invocation: core.InvocationCanister, answer: core.Answer) -> None:
        """Remember an answer."""
        self._allowed.append(replace(read_answer(invocation, answer), timestamp=datetime.now(UTC)))


def mention_earlier(
    answers: Iterable[core.ApprovalAnswered], name: str, arguments: Mapping[str, Any] | None, why: str
) -> str:
    """Return `why` with the last answer that allowed the same call."""
    same = [
        each
        for each in answers
        if each.verdict == "allow"
        and not each.is_question
        and each.invocation.name == name
        and (each.invocation.arguments if each.arguments is None else each.arguments) == (arguments or {})
    ]
    return f"{why}. The same call was allowed before. {same[-1].describe()}" if same else why


async def permit(
    invoker: Invoker, invocation: core.InvocationCanister, policy: Policy, approve: core.Approve | None
) -> core.InvocationCanister | core.ResultCanister:
    """Decide whether a call may run, without waiting for a later answer.

    Args:
        invoker: The tool that is called.
        invocation: The call.
        policy: The rules. If they say ask, or the call repeats a source, `approve` is asked.
        approve: The callback; None if nobody can be asked.

    Returns:
        The call to run, with the arguments that a person may have edited, or the result of a call that may not run.
    """
    arguments = invocation.arguments or {}
    permission, why = judge_call(invocation, invoker, policy)
    if permission == "ask":
        if mistake := invoker.find_mistake(arguments):
            return core.error_result(invocation.identifier, "validation", mistake)
        answered = await ask_approval(approve, invocation, why)
        if answered.verdict == "allow" and answered.arguments is not None:
            return edited_invocation(invocation, answered.arguments, invoker, policy)
        if answered.verdict == "allow":
            return invocation
        deferred = "the answer was defer, and nothing waits for a later one here"
        why = answered.why or (deferred if answered.verdict == "defer" else "the answer was no")
        return denial(invocation, why, quoted=bool(invocation.quoted_from))
    if permission == "allow":
        return invocation
    return denial(invocation, why)


def _describe(answer: object) -> str:
    return (
        truncate(repr(answer), _MAX_SHOWN)
        if type(answer) in (str, int, float, type(None))
        else f"a {type(answer).__name__}"
    )
