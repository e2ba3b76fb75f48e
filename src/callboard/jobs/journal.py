"""The journal of a run within a job. It writes through the job's claim.

A job may have several runs, one after another. A coding job has one run for each phase. Each journal has a name, under
which the job's memory keeps the run's progress. The job's rounds, calls, tokens and cost are sums over all runs. The
progress is written in the same transaction as its entries.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.agent.run import FindSchema
from callboard.errors import CallerError
from callboard.jobs.entries import Item, MeasuredReply, ReplyTook
from callboard.jobs.job import Approval, Changes
from callboard.jobs.segment import JobSegment

_DIGITS: Final = 16
"""Digits of a digest. It only distinguishes calls; it is not a security measure."""


class _Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Notes about a run in the memory of its job. `before` is the usage of the job's earlier runs."""

    job: str
    segment: int
    progress: core.RunProgress
    before: core.RunProgress


class JobJournal:
    """A Journal over the claim of a segment.

    `progress` is the progress of an interrupted run, None for a new run. `is_reopened` is True if the run had ended and
    its job was resumed. `start` is the progress to use if none is saved.
    """

    def __init__(self, segment: JobSegment, name: str = "run", *, start: core.RunProgress | None = None) -> None:
        job = segment.job
        self._segment = segment
        self.name = name
        self._counts = segment.call_counts
        self._saving: asyncio.Task[None] | None = None
        """Task that commits the reply whose calls start."""
        notes = _read_notes(job.memory.get(name), job.id)
        self.progress: core.RunProgress | None = notes.progress if notes else start
        self.is_reopened = False
        if notes is not None and notes.progress.state and notes.segment != job.segment:
            self.is_reopened = True
            self.progress = replace(
                notes.progress, state="", output="", why="", is_last=False, shortfall="", refused=0, empty=0, thoughts=0
            )
        self._measured = self.progress or core.RunProgress()
        """Progress at the last measured reply."""
        self._at = segment.clock()
        """Time of the last write."""
        self._charged = self._measured.cost
        """Cost of the run that is added to the budgets."""
        self._before = notes.before if notes else _subtract(job.rounds, job.calls, job.usage, job.cost, start)

    def call_key(self, invocation: core.InvocationCanister) -> str:
        """Return `JOB:CALL`, with a number if the model has used the identifier before."""
        count = self._counts[invocation.identifier]
        again = f"#{count}" if count > 1 else ""
        return f"{self._segment.job.id}:{invocation.identifier}{again}"

    async def save(self, items: Sequence[Item], progress: core.RunProgress, *, begins: bool = False) -> None:
        """Commit new entries and the progress. If `begins`, do not wait; `begin_call` does."""
        self._counts.update([each.identifier for each in items if isinstance(each, core.InvocationCanister)])
        await self._charge(progress)
        written = self._segment.claim.append(self._measure_reply(items, progress), **self._changes(progress))
        writing = self._segment.commit(written)
        if not begins:
            await writing
            return
        self._saving = asyncio.create_task(writing)
        # Retrieve the exception, so that asyncio does not warn: the next write raises it again.
        self._saving.add_done_callback(lambda saving: saving.cancelled() or saving.exception())

    def declare(self, tools: Sequence[core.ToolDeclaration]) -> None:
        self._segment.claim.declare(tools)

    async def begin_call(self, invocation: core.InvocationCanister, idempotent: bool) -> None:
        """Commit the start of a call that is not idempotent, and wait for its reply's commit."""
        if not idempotent:
            await self._segment.commit(self._segment.claim.begin_calls([invocation]))
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def end_call(self, _: core.InvocationCanister, result: core.ResultCanister) -> None:
        self._at = self._segment.clock()
        await self._segment.commit(self._segment.claim.end_call(result))

    def answers(self, waiting: Iterable[core.InvocationCanister]) -> tuple[dict[str, core.Answer], dict[str, Any]]:
        """Return the answers to waiting calls: approvals, and results of questions, by identifiers.

        An answer to an earlier call with the same identifier does not count.
        """
        digests = {each.identifier: self.digest(each) for each in waiting}
        approvals: dict[str, core.Answer] = {}
        results: dict[str, Any] = {}
        for each in self._segment.claim.answers:
            if digests.get(each.call_id) != each.digest:
                continue
            if each.is_question:
                denied = core.ToolError("permission", each.reason or "the answer was no")
                results[each.call_id] = each.text if each.verdict == "allow" else denied
            else:
                approvals[each.call_id] = core.Allow(each.edited) if each.verdict == "allow" else core.Deny(each.reason)
        return approvals, results

    def ask(
        self, pending: Iterable[core.InvocationCanister], reasons: Mapping[str, str], find_schema: FindSchema
    ) -> tuple[Approval, ...]:
        """Return the approvals to ask for: whether calls with a reason may run, and the results of the others.

        `find_schema` returns the schema of a tool's arguments, by the tool's name.
        """
        return tuple(
            [
                Approval(
                    call_id=each.identifier,
                    name=each.name,
                    arguments=dict(each.arguments or {}),
                    why=reasons.get(each.identifier, ""),
                    digest=self.digest(each),
                    is_question=each.identifier not in reasons,
                    parameters=dict(find_schema(each.name) or {}) if each.identifier in reasons else None,
                )
                for each in pending
            ]
        )

    def digest(self, invocation: core.InvocationCanister) -> str:
        """Return the digest of a call, its position in the job, and the directory of the job."""
        job = self._segment.job
        what = [job.id, job.directory, self._counts[invocation.identifier], invocation.identifier, invocation.name]
        text = msgspec.json.encode([*what, invocation.arguments, invocation.raw], order="sorted")
        return hashlib.sha256(text).hexdigest()[:_DIGITS]

    async def _charge(self, progress: core.RunProgress) -> None:
        """Add the new cost to the budgets. Do this before the commit: a lost reply was paid, too."""
        spent, self._charged = progress.cost - self._charged, progress.cost
        for budget in self._segment.budgets:
            if progress.rounds and not progress.is_priced:
                hint = "nobody counted the tokens of a reply, or its model has no price"
                raise CallerError("what a reply cost is not known", path=budget.setting, hint=hint)
            if spent > 0:
                await budget.add(spent)

    def _measure_reply(self, items: Sequence[Item], progress: core.RunProgress) -> list[Item | MeasuredReply]:
        """Return the items, with the measurements of a new reply since the last write in its last item."""
        measured: list[Item | MeasuredReply] = [*items]
        before, began_at, self._at = self._measured, self._at, self._segment.clock()
        last = items[-1] if items else None
        if progress.rounds > before.rounds and isinstance(last, core.AssistantCanister | core.InvocationCanister):
            cost = progress.cost - before.cost if progress.is_priced else None
            counts = (progress.usage - before.usage).counts()
            took = ReplyTook(began_at, {name: count for name, count in counts.items() if count}, cost)
            measured[-1] = MeasuredReply(last, took)
            self._measured = progress
        return measured

    def _changes(self, progress: core.RunProgress) -> Changes:
        before, job = self._before, self._segment.job
        notes = _Notes(job.id, job.segment, progress, before)
        usage = before.usage + progress.usage
        return Changes(
            rounds=before.rounds + progress.rounds,
            calls=before.calls + progress.calls,
            usage=usage.counts(),
            cost=before.cost + progress.cost if before.is_priced and progress.is_priced else None,
            memory={**job.memory, self.name: msgspec.to_builtins(notes)},
        )


def _read_notes(notes: Any, identifier: str) -> _Notes | None:
    """Return the notes of a run of this job. Ignore the notes of the job that it was forked from."""
    if notes is None:
        return None
    read = msgspec.convert(notes, _Notes)
    return read if read.job == identifier else None


def _subtract(
    rounds: int, calls: int, usage: Mapping[str, int], cost: float | None, start: core.RunProgress | None
) -> core.RunProgress:
    start = start or core.RunProgress()
    used = core.Usage.from_counts(usage) - start.usage
    return core.RunProgress(
        rounds=rounds - start.rounds,
        calls=calls - start.calls,
        usage=used,
        cost=(cost or 0.0) - start.cost,
        is_priced=cost is not None or not rounds,
    )
