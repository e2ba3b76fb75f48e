"""Ask whether a call may run.

One function puts the question and reads the answer, one does the same for a call that a policy judges; an agent, the
processor and `execute_invoker` share them.

Laws:
- Only the answer "allow" (or True) runs a call. No callback, an answer of another kind and an exception deny it, for a
  mistake in a callback must never be the reason why something ran.
- Whatever was not an ordinary "no" says what it was, for the model and for an alert.
- Nobody is asked about a call whose arguments do not fit: it could not run.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from callboard.core import ApprovalAnswered, Approve, InvocationCanister, ResultCanister, Verdict, error_result
from callboard.tools import Invoker, Policy

_VERDICTS: Final[dict[str | bool, Verdict]] = {
    True: "allow",
    "allow": "allow",
    False: "deny",
    "deny": "deny",
    "defer": "defer",
}
_MAX_SHOWN = 80
"""Characters of an answer or an exception that are repeated."""


async def ask_approval(approve: Approve | None, invocation: InvocationCanister, why: str) -> ApprovalAnswered:
    """Put the question whether an invocation may run.

    Args:
        approve: The callback, sync or async; None where nobody can be asked.
        invocation: The call that it is about.
        why: Why it is asked.

    Returns:
        The answer. Its `why` is empty for an ordinary one, else it says why the call is denied.
    """
    if approve is None:
        return ApprovalAnswered(invocation, "deny", "nobody can be asked")
    try:
        answer: Any = approve(invocation, why)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001  # whatever a callback raises, the call does not run
        return ApprovalAnswered(invocation, "deny", f"the approval failed: {_cut(f'{type(error).__name__}: {error}')}")
    verdict = _VERDICTS.get(answer) if type(answer) in (str, bool) else None
    if verdict is not None:
        return ApprovalAnswered(invocation, verdict)
    return ApprovalAnswered(
        invocation, "deny", f"the approval answered {_shown(answer)}, which is neither allow, deny nor defer"
    )


async def permit(
    invoker: Invoker, invocation: InvocationCanister, policy: Policy, approve: Approve | None
) -> ResultCanister | None:
    """Decide whether a call may run, where it cannot wait for a later answer.

    Args:
        invoker: The tool that is called.
        invocation: The call.
        policy: The rules; where they say ask, `approve` is asked.
        approve: The callback; None where nobody can be asked.

    Returns:
        The result of a call that may not run, None for one that may.
    """
    arguments = invocation.arguments or {}
    permission, why = policy.decide(invoker, arguments)
    if permission == "ask":
        if mistake := invoker.mistake(arguments):
            return error_result(invocation.identifier, "validation", mistake)
        answered = await ask_approval(approve, invocation, why)
        if answered.verdict == "allow":
            return None
        deferred = "the answer was defer, and nothing waits for a later one here"
        why = answered.why or (deferred if answered.verdict == "defer" else "the answer was no")
    elif permission == "allow":
        return None
    return error_result(invocation.identifier, "permission", f"{invocation.name} may not run: {why}")


def _shown(answer: object) -> str:
    """The answer as it was written, its type where it could be anything."""
    return _cut(repr(answer)) if type(answer) in (str, int, float, type(None)) else f"a {type(answer).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
