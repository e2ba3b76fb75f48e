"""Rebuild a conversation from the recorded steps, so that a chat or a job can go on.

A record holds either the events of a reply, or the canisters that it left.

Law: the model sees what it saw before, but for notes that were added to one prompt alone; every call has its result,
but for those of a job that goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterable

from callboard.coding.jobs.log import (
    Notice,
    PhaseEnded,
    PhaseStarted,
    PromptSent,
    Resumed,
    RoundMeasured,
    Step,
    TreeSnapshot,
)
from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    Fold,
    InvocationCanister,
    PictureContent,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    SupervisorCanister,
    UserCanister,
    contents,
    error_result,
)


def replay_conversation(steps: Iterable[Step | Canister], *, is_open: bool = False) -> list[Canister]:
    """The recorded conversation.

    Args:
        steps: The steps, and the canisters of the replies whose events were not recorded.
        is_open: The last run goes on. A reply of it that is not whole is left out, and calls without a result stay so;
            else such a call gets a result that says that it was cancelled.
    """
    replay = _Replay()
    for step in steps:
        replay.feed(step)
    if not is_open:
        replay.end_run()
    replay.add_prompt()
    return replay.canisters


class _Replay:
    """The conversation as far as it was fed."""

    def __init__(self) -> None:
        self.canisters: list[Canister] = []
        self._fold = Fold()
        self._reply: list[Canister] = []
        """What is whole of a reply that is not."""
        self._prompts: list[str] = []
        """Those that no round has begun with yet."""
        self._pictures: list[PictureContent] = []
        """What was shown with them."""
        self._calls: dict[str, None] = {}
        """Those without a result."""

    def feed(self, step: Step | Canister) -> None:
        match step:
            case PromptSent(text=text, pictures=pictures):
                self.end_run()
                self._prompts.append(text)
                self._pictures += pictures
            case RoundStarted():
                self.add_prompt()
            case RolledBack(to=to):
                self.end_run()
                self._forget_prompts()
                del self.canisters[to:]
            case ReplyEnded(reason="retry") | Resumed():
                self._fold.finish()
                self._reply.clear()
            case ReplyEnded() | ReplyFailed():
                reply, self._reply = [*self._reply, *self._fold.feed(step)], []
                for canister in reply:
                    self._add(canister)
            case ResultReady(canister=canister):
                self._add(canister)
            case RunEnded(state=state):
                # A run that is pending goes on with its calls.
                if state != "pending":
                    self.end_run()
            case PhaseStarted() | PhaseEnded() | Notice() | TreeSnapshot() | RoundMeasured():
                pass
            case (
                UserCanister()
                | AssistantCanister()
                | SupervisorCanister()
                | DocumentCanister()
                | InvocationCanister()
                | ResultCanister()
            ):
                self._add(step)
            case _:
                self._reply += self._fold.feed(step)

    def end_run(self) -> None:
        """A call whose result is missing was cancelled; what was said of a reply stays."""
        for canister in [*self._reply, *self._fold.finish("cancelled")]:
            self._add(canister)
        self._reply.clear()
        self.canisters.extend([error_result(each, "cancelled", "the run was cancelled") for each in self._calls])
        self._calls.clear()

    def add_prompt(self) -> None:
        if self._prompts:
            self.canisters.append(UserCanister(contents(("\n\n".join(self._prompts), *self._pictures))))
            self._forget_prompts()

    def _forget_prompts(self) -> None:
        self._prompts.clear()
        self._pictures.clear()

    def _add(self, canister: Canister) -> None:
        match canister:
            case UserCanister():
                # It is the prompt itself.
                self._forget_prompts()
            case InvocationCanister(identifier=identifier):
                self._calls[identifier] = None
            case ResultCanister(invocation_id=identifier):
                self._calls.pop(identifier, None)
            case _:
                pass
        self.canisters.append(canister)
