"""How far a job came, as its recorded steps say.

Law: for a job that ended, this is what its runner counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from callboard.coding.agents.apply_code_blocks import PUT_CODE
from callboard.coding.job import PhaseEnded, PhaseStarted, PromptSent, Step, TreeSnapshot
from callboard.core import (
    AssistantCanister,
    Canister,
    InvocationCanister,
    InvocationEnded,
    ResultCanister,
    RolledBack,
    RoundStarted,
    RunEnded,
    UserCanister,
    contents,
    error_result,
)

Entry: TypeAlias = Step | Canister
"""A recorded step, or a canister of the conversation."""


class Progress:
    """How far the steps of a job go; made by `read_progress`."""

    def __init__(self) -> None:
        self.phase = ""
        """The phase that began last."""
        self.has_ended = False
        """Whether that phase ended."""
        self.missing: tuple[str, ...] = ()
        """Missing evidence at that time."""
        self.answers: dict[str, str] = {}
        """By the phases that ended: what the model said last."""
        self.rounds = 0
        self.rounds_before = 0
        """Those before the phase."""
        self.calls = 0
        self.calls_of_run = 0
        """Calls of the last run, if it has not ended; also counted in `calls`."""
        self.cost = 0.0
        """Known cost of the finished runs, in US dollars."""
        self.prompts = 0
        """Sent in the phase."""
        self.prompt = ""
        """The last one."""
        self.run_ended = False
        """Whether the run that it began has ended."""
        self.conversation: list[Canister] = []
        """Conversation of the phase; calls without a result are at its end."""
        self.attempt: list[Canister] = []
        """From the last prompt on."""
        self.code_calls: dict[str, str] = {}
        """The files that code blocks of the phase were put into, by the calls."""
        self.codes_before = 0
        """Such calls before the last prompt."""
        self._calls_before = 0
        self._phase_steps: list[Entry] = []
        self._run_steps: list[Entry] = []
        self._is_asked = False
        """Whether a round began and is not counted yet."""

        self.rounds_of_run = 0
        """Replies since the last prompt."""
        self.snapshot: TreeSnapshot | None = None
        """The files and notes that were kept last."""

    def feed(self, step: Entry) -> None:
        match step:
            case PhaseStarted(name=name):
                self._begin_phase(name)
            case PromptSent(text=text):
                self._run_steps = []
                self.codes_before = len(self.code_calls)
                self.prompts += 1
                self.prompt, self.run_ended = text, False
                self.rounds_of_run = 0
            case TreeSnapshot():
                self.snapshot = step
            case RoundStarted():
                self._is_asked = True
            case AssistantCanister() | InvocationCanister():
                self._count_round()
            case RunEnded(state=state, cost=cost) if state != "pending":
                self.cost += cost or 0.0
                self._count_round()
                self.run_ended = True
            case InvocationEnded(name="put_code", identifier=identifier, arguments=arguments):
                # Code that is applied again counts once.
                self.code_calls[identifier] = str((arguments or {}).get("path", ""))
            case PhaseEnded(name=name, missing=missing):
                self.has_ended, self.missing = True, missing
                conversation = _read_conversation(self._phase_steps)
                self.calls = self._calls_before + _count_calls(conversation) + len(self.code_calls)
                self.answers[name] = last_answer(conversation)
            case _:
                pass
        self._phase_steps.append(step)
        self._run_steps.append(step)

    def finish(self) -> None:
        """Rebuilds the conversation of a phase that has not ended."""
        if not self.has_ended:
            self.conversation = _read_conversation(self._phase_steps, is_open=True)
            self.attempt = _read_conversation(self._run_steps, is_open=True)
            self.calls = self._calls_before + _count_calls(self.conversation) + len(self.code_calls)
            self.calls_of_run = 0 if self.run_ended else _count_calls(self.attempt)

    def repeat_phase(self) -> None:
        """Forget the start of the latest phase."""
        self.answers.pop(self.phase, None)
        self.phase, self.missing, self.has_ended = "", (), False

    def _begin_phase(self, name: str) -> None:
        self._phase_steps, self._run_steps = [], []
        self._calls_before, self.rounds_before = self.calls, self.rounds
        self.phase, self.has_ended, self.missing = name, False, ()
        self.prompts, self.prompt, self.run_ended = 0, "", False
        self.code_calls, self.codes_before = {}, 0

    def _count_round(self) -> None:
        self.rounds += self._is_asked
        self.rounds_of_run += self._is_asked
        self._is_asked = False

    @property
    def answer(self) -> str:
        """Return the model's last answer in the phase."""
        return last_answer(self.conversation)

    def count_looks(self, is_look: Callable[[InvocationCanister], bool]) -> int:
        """Return how many calls of the phase succeeded in reading a file."""
        calls = {each.identifier: each for each in self.conversation if isinstance(each, InvocationCanister)}
        results = [each for each in self.conversation if isinstance(each, ResultCanister) and each.error is None]
        return sum(is_look(calls[each.invocation_id]) for each in results if each.invocation_id in calls)


def last_answer(canisters: Iterable[Canister]) -> str:
    """Return the model's last text; "" if there is none."""
    texts = [each.text for each in canisters if isinstance(each, AssistantCanister) and each.text]
    return texts[-1] if texts else ""


def _read_conversation(steps: Iterable[Entry], *, is_open: bool = False) -> list[Canister]:
    """Return the canisters of the steps, and a prompt that no run has used yet.

    A call without a result was cancelled, unless the conversation is open. Then the continued run answers the call.
    """
    canisters: list[Canister] = []
    prompts: list[str] = []
    calls: dict[str, None] = {}
    for step in steps:
        match step:
            case PromptSent(text=text):
                prompts.append(text)
            case RolledBack(to=to):
                prompts.clear()
                del canisters[to:]
            case UserCanister():
                prompts.clear()  # it is the prompt itself
            case InvocationCanister(identifier=identifier):
                calls[identifier] = None
            case ResultCanister(invocation_id=identifier):
                calls.pop(identifier, None)
            case _:
                pass
        if isinstance(step, Canister):
            canisters.append(step)
    if not is_open:
        canisters += [error_result(each, "cancelled", "the run was cancelled") for each in calls]
    if prompts:
        canisters.append(UserCanister(contents("\n\n".join(prompts))))
    return canisters


def _count_calls(canisters: Iterable[Canister]) -> int:
    return sum(isinstance(each, InvocationCanister) and each.name != PUT_CODE for each in canisters)


def read_progress(steps: Iterable[Entry]) -> Progress:
    """How far a job came whose steps these are."""
    progress = Progress()
    for step in steps:
        progress.feed(step)
    progress.finish()
    return progress
