"""A conversation out of the record of it.

Owns the way from recorded steps back to canisters. Knows nothing of files.
Law: what a model is shown is what it was shown, but for words that were added for it alone; every call has its result.
"""

from __future__ import annotations

from collections.abc import Iterable

from callboard.coding.jobs.log import PhaseEnded, PhaseStarted, Prompted, Step, Told
from callboard.core import (
    Canister,
    Fold,
    InvocationCanister,
    ReplyEnded,
    ReplyFailed,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    UserCanister,
    contents,
    error_result,
)


def folded(steps: Iterable[Step]) -> list[Canister]:
    """The conversation that was recorded; a call whose result is missing has one that says so."""
    done: list[Canister] = []
    reply: list[Canister] = []
    prompts: list[str] = []
    calls: dict[str, None] = {}
    fold = Fold()

    def settle() -> None:
        done.extend([*reply, *fold.finish("cancelled")])
        calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
        reply.clear()
        done.extend([error_result(each, "cancelled", "the run was cancelled") for each in calls])
        calls.clear()

    def prompt() -> None:
        if prompts:
            done.append(UserCanister(contents("\n\n".join(prompts))))
            prompts.clear()

    for step in steps:
        match step:
            case Prompted(text=text):
                settle()
                prompts.append(text)
            case RoundStarted():
                prompt()
            case RolledBack(to=to):
                settle()
                prompts.clear()
                del done[to:]
            case ReplyEnded(reason="retry"):
                fold.finish()
                reply.clear()
            case ReplyEnded() | ReplyFailed():
                reply += fold.feed(step)
                done += reply
                calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
                reply.clear()
            case ResultReady(canister=canister):
                calls.pop(canister.invocation_id, None)
                done.append(canister)
            case RunEnded():
                settle()
            case PhaseStarted() | PhaseEnded() | Told():
                pass
            case _:
                reply += fold.feed(step)
    settle()
    prompt()
    return done
