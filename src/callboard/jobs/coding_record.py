"""The record of a coding job in the store of durable jobs. Its steps are entries; all other facts are in its memory.

Steps are collected until a later result is written: the reply's canisters, a call's result, or the end of a phase. So a
round costs one transaction. The pieces of a reply cost none, because its canisters repeat them.

Laws: steps are written in their order. After a refused write, nothing more is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.coding.job import Job, JobOutput, Step
from callboard.errors import CallboardError, CallerError
from callboard.jobs.entries import Item
from callboard.jobs.job import DurableJob, make_title
from callboard.jobs.journal import JobJournal
from callboard.jobs.segment import JobSegment, may_pass
from callboard.storage.atomic_file import write_private
from callboard.text.surrogates import encode_json

FORK: Final = "fork"
"""The key of a fork in the memory of a job."""
MAX_REPLY: Final = 32 * 1024 * 1024
"""Maximum characters of one reply."""
_OUTPUT: Final = "output.json"
_RUN: Final = "run:"
"""Prefix of the memory's keys for the progress of runs."""
_OF_RUN: Final = (
    *(
        core.ReplyStarted,
        core.TextPiece,
        core.ReasoningPiece,
        core.RefusalPiece,
        core.ArgumentsPiece,
        core.Logprobs,
        core.ToolProgress,
        core.Usage,
    ),
    *(
        core.InvocationStarted,
        core.InvocationEnded,
        core.InvocationIncomplete,
        core.ReplyEnded,
        core.ReplyFailed,
        core.ResultReady,
    ),
)
"""Steps that the canisters of a run repeat."""


class CodingRecord:
    """The record of one job while a segment of it runs. See `JobRecord` for the methods.

    Args:
        segment: The segment.
        folder: The folder for the job's files.
        items: The entries that the job has.
        is_direct: True if a user runs the job in this process. The job fails if its model is not available, and it does
            not give way to other jobs.
    """

    def __init__(self, segment: JobSegment, folder: Path, items: Sequence[Item], *, is_direct: bool = False) -> None:
        self.folder = folder
        self._is_direct = is_direct
        self._segment = segment
        self._items = items
        self._task = asyncio.current_task()
        self._is_left = False
        self.failure: CallboardError | None = None
        """Failure of the model's provider. The job waits until the provider is available again."""
        self._rounds = 0
        self._in_run = False
        self._length = 0
        """Characters of the present reply."""
        self._answered = {each.call_id for each in segment.claim.answers}
        self._steps: list[Step] = []
        self._notes: dict[str, Any] = {}
        """Unwritten changes of the memory."""
        self._fields: dict[str, Any] = {}
        """Unwritten changes of other fields of the row."""
        self._phase = segment.job.phase
        self._calls: int | None = None
        self.journal = CodingJournal(self, segment, _RUN)
        self.begins_fork = segment.job.memory.get(FORK, {}).get("entries") == segment.job.entries
        self._job = read_job(segment.job, folder, is_new=not items)

    @property
    def is_left(self) -> bool:
        segment = self._segment
        is_stopped = self._task is not None and self._task.cancelling() > 0 and not segment.cancel_requested
        return self._is_left or is_stopped or segment.failure is not None

    @property
    def job(self) -> Job:
        row = self._segment.job
        return replace(self._job, rounds=row.rounds, usage=row.usage, cost=row.cost)

    def should_leave(self) -> bool:
        self._is_left = self._is_left or self._segment.should_leave(0 if self._is_direct else self._rounds)
        self._rounds += 1
        return self._is_left

    def should_wait(self, failure: CallboardError) -> bool:
        if not (self._is_direct or self.is_left) and may_pass(failure):
            self.failure = failure
            self._is_left = True
        return self.failure is not None

    def open_journal(self, name: str, start: core.RunProgress | None = None) -> CodingJournal:
        self.journal = CodingJournal(self, self._segment, f"{_RUN}{name}", start=start)
        self._in_run = True
        return self.journal

    def find_answers(
        self, calls: Sequence[core.InvocationCanister]
    ) -> tuple[Mapping[str, core.Answer], Mapping[str, Any]]:
        return self.journal.answers(calls)

    def steps(self) -> Iterable[Item]:
        return self._items

    def add(self, step: Step) -> None:
        match step:
            case core.RoundStarted():
                self._length = 0
            case (
                core.TextPiece(text=text)
                | core.ReasoningPiece(text=text)
                | core.RefusalPiece(text=text)
                | core.ArgumentsPiece(json=text)
            ):
                self._length += len(text)
            case _:
                pass
        if self._length > MAX_REPLY:
            raise CallerError(f"the model's reply has more than {MAX_REPLY:,} characters", path=self._job.id)
        if isinstance(step, core.RunEnded):
            self._in_run = False
        # The store has written the answers from the time when the job waited.
        is_recorded = isinstance(step, core.ApprovalAnswered) and step.invocation.identifier in self._answered
        if not (is_recorded or (self._in_run and isinstance(step, _OF_RUN))):
            self._steps.append(step)

    def update(self, **changes: Any) -> None:
        self._job = replace(self._job, **changes)
        self._phase = self._job.phase
        if "output" in changes:
            write_output(self.folder, self._job.output)
        self._calls = changes.get("calls", self._calls)
        self._notes |= {name: value for name, value in changes.items() if name in ("memory", "tree")}
        if "description" in changes:
            self._fields |= {"description": self._job.description, "title": make_title(self._job.description)}
        if "model" in changes:
            self._fields["model"] = self._job.model

    async def save(self, canisters: Sequence[core.Canister] = ()) -> None:
        await self._segment.commit(self._segment.claim.append([*self.take_steps(), *canisters], **self._take_changes()))

    async def write_notes(self) -> None:
        if self._notes or self._phase != self._segment.job.phase:
            await self.save()

    def take_steps(self) -> list[Step]:
        """Return and forget the unwritten steps. The caller writes them."""
        steps, self._steps = self._steps, []
        return steps

    def _take_changes(self) -> Any:
        """Return the unwritten changes of the job. Drop the progress of ended runs from the memory."""
        notes, self._notes = self._notes, {}
        fields, self._fields = self._fields, {}
        memory = self._segment.job.memory
        if (run := self.journal.name) != _RUN:
            memory = {name: value for name, value in memory.items() if name == run or not name.startswith(_RUN)}
        # The journals do not count the calls that applied code blocks.
        calls = {} if self._calls is None or self.is_left else {"calls": self._calls}
        return {"phase": self._phase, "memory": {**memory, **notes}, **calls, **fields}


class CodingJournal(JobJournal):
    """The journal of one run. It also writes the record's steps."""

    def __init__(
        self, record: CodingRecord, segment: JobSegment, name: str, *, start: core.RunProgress | None = None
    ) -> None:
        super().__init__(segment, name, start=start)
        self._record = record
        self._saved: set[int] = set()
        """The `id` of each written canister."""
        self._results: set[str] = set()
        """Calls whose results are written."""

    async def save(self, items: Sequence[Item], progress: core.RunProgress, *, begins: bool = False) -> None:
        await self._record.write_notes()
        await super().save([*self._record.take_steps(), *items], progress, begins=begins)
        self._saved.update(map(id, items))

    async def end_call(self, invocation: core.InvocationCanister, result: core.ResultCanister) -> None:
        await super().end_call(invocation, result)
        self._results.add(result.invocation_id)

    def find_unsaved(self, canisters: Sequence[core.Canister]) -> list[core.Canister]:
        """Return the unwritten canisters of a stopped run."""
        return [
            each
            for each in canisters
            if id(each) not in self._saved
            and not (isinstance(each, core.ResultCanister) and each.invocation_id in self._results)
        ]


def encode_output(output: JobOutput) -> dict[str, Any]:
    """Return the output for the row of a job. Every kind has `text`."""
    fields: dict[str, Any] = msgspec.json.decode(encode_json(output))
    return {"text": output.summary, **fields}


def write_output(folder: Path, output: JobOutput) -> None:
    """Write the output of a job that has not ended to its folder."""
    write_private(folder / _OUTPUT, encode_json(output))


def read_job(job: DurableJob, folder: Path, *, is_new: bool) -> Job:
    """Return the job for its runner. A new fork starts without the tree and memory of its parent."""
    output = folder / _OUTPUT
    names = ("id", "description", "directory", "model", "input", "phase", "rounds", "calls", "usage", "cost")
    return Job(
        **{name: getattr(job, name) for name in names},
        type=job.kind,  # type: ignore[arg-type]  # its kind is one of these
        tree={} if is_new else job.memory.get("tree", {}),
        memory={} if is_new else job.memory.get("memory", {}),
        output=msgspec.json.decode(output.read_bytes(), type=JobOutput) if output.exists() else JobOutput(),
    )
