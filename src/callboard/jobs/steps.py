"""The entries of a job as the steps that a direct run records, so that both are shown and exported by the same code.

An entry that is a step stays as it is; a canister becomes the events that it was made of.

Law: each entry is shown once, also where a prompt was recorded as a step and stands in the conversation as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from callboard.coding.job import PromptSent, Step
from callboard.core import (
    AssistantCanister,
    Content,
    DocumentCanister,
    InvocationCanister,
    InvocationEnded,
    ReasoningContent,
    ReasoningPiece,
    RefusalContent,
    RefusalPiece,
    ReplyEnded,
    ResultCanister,
    ResultReady,
    RoundStarted,
    SupervisorCanister,
    TextPiece,
    TextualContent,
    UserCanister,
)
from callboard.jobs.entries import JobEntry


class EntrySteps:
    """A stage from entries to steps: feed it a job's entries from the first one on, and call `finish` behind the last."""

    def __init__(self) -> None:
        self._has_prompt = False
        """Whether the prompt of the next round was a step already."""
        self._has_round = False
        """Whether the next round was begun by a step already."""
        self._round = 0
        """The round of the reply that is not closed yet; 0 for none."""
        self._calls = 0

    def feed(self, entry: JobEntry) -> list[Step]:
        """The steps of an entry. Raises CallerError for a line that is no entry."""
        item = entry.item
        match item:
            case AssistantCanister() | InvocationCanister():
                return [*self._begin_reply(entry.round), *self._convert_reply(item)]
            case ResultCanister():
                return [*self.finish(), ResultReady(item)]
            case UserCanister() if self._has_prompt:
                self._has_prompt = False
                return self.finish()
            case UserCanister() | SupervisorCanister() | DocumentCanister():
                return [*self.finish(), PromptSent(item.text)]
            case _:
                self._has_prompt = self._has_prompt or isinstance(item, PromptSent)
                self._has_round = self._has_round or isinstance(item, RoundStarted)
                return [*self.finish(), item]

    def finish(self) -> list[Step]:
        """The end of a reply that is open."""
        if not self._round:
            return []
        self._round = 0
        return [ReplyEnded("invocations" if self._calls else "stop")]

    def _begin_reply(self, number: int) -> list[Step]:
        if self._round == number:
            return []
        steps = self.finish()
        if not self._has_round:
            steps.append(RoundStarted(number))
        self._has_round = self._has_prompt = False
        self._round, self._calls = number, 0
        return steps

    def _convert_reply(self, item: AssistantCanister | InvocationCanister) -> list[Step]:
        if isinstance(item, AssistantCanister):
            return [piece for part in item.content if (piece := _to_piece(part))]
        self._calls += 1
        return [InvocationEnded(self._calls - 1, item.identifier, item.name, item.arguments, item.raw)]


def read_steps(entries: Iterable[JobEntry]) -> Iterator[Step]:
    """The steps of a job. Raises CallerError for a line that is no entry."""
    stage = EntrySteps()
    for entry in entries:
        yield from stage.feed(entry)
    yield from stage.finish()


def _to_piece(part: Content) -> Step | None:
    match part:
        case TextualContent(text=text):
            return TextPiece(text)
        case ReasoningContent(text=text):
            return ReasoningPiece(text)
        case RefusalContent(text=text):
            return RefusalPiece(text)
        case _:
            return None
