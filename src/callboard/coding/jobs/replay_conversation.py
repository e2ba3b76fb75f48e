"""Rebuild a conversation from the recorded steps, so that a chat can go on.

Law: the model sees what it saw before, but for notes that were added to one prompt alone; every call has its result.
"""

from __future__ import annotations

from collections.abc import Iterable

from callboard.coding.jobs.log import Notice, PhaseEnded, PhaseStarted, PromptSent, Step
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


def replay_conversation(steps: Iterable[Step]) -> list[Canister]:
    """The recorded conversation. A call whose result is missing gets one that says that it was cancelled."""
    canisters: list[Canister] = []
    reply: list[Canister] = []
    prompts: list[str] = []
    calls: dict[str, None] = {}
    fold = Fold()

    def end_run() -> None:
        canisters.extend([*reply, *fold.finish("cancelled")])
        calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
        reply.clear()
        canisters.extend([error_result(each, "cancelled", "the run was cancelled") for each in calls])
        calls.clear()

    def add_prompt() -> None:
        if prompts:
            canisters.append(UserCanister(contents("\n\n".join(prompts))))
            prompts.clear()

    for step in steps:
        match step:
            case PromptSent(text=text):
                end_run()
                prompts.append(text)
            case RoundStarted():
                add_prompt()
            case RolledBack(to=to):
                end_run()
                prompts.clear()
                del canisters[to:]
            case ReplyEnded(reason="retry"):
                fold.finish()
                reply.clear()
            case ReplyEnded() | ReplyFailed():
                reply += fold.feed(step)
                canisters += reply
                calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
                reply.clear()
            case ResultReady(canister=canister):
                calls.pop(canister.invocation_id, None)
                canisters.append(canister)
            case RunEnded():
                end_run()
            case PhaseStarted() | PhaseEnded() | Notice():
                pass
            case _:
                reply += fold.feed(step)
    end_run()
    add_prompt()
    return canisters
