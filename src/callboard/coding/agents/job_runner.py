"""Run a job, from its request to its results: record, tree, sandbox, phases, commit, push.

Laws: the user's tree is never touched. However a job ends, its changes are on its branch and none of its processes is
left. A job whose process died continues where its record ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from callboard.agent.run import FindSchema
from callboard.coding.agents.deliver import deliver, publish
from callboard.coding.agents.job_models import JobModels
from callboard.coding.agents.job_record import JobLeft, JobMemory, JobRecord, PhaseMemory, trim_report
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_tests import RunnerMissing
from callboard.coding.agents.job_workspace import Approver, JobPolicy, JobWorkspace
from callboard.coding.agents.phase_runner import PhaseRunner
from callboard.coding.agents.phases import phases_of
from callboard.coding.agents.progress import Progress, read_progress
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.coding.git import github
from callboard.coding.git.open_tree import is_closed, reopen_tree
from callboard.coding.git.tree import Tree
from callboard.coding.job import Job, JobState, Notice, PhaseStarted, Resumed, Step
from callboard.core import InvocationCanister, InvocationEnded, ResultReady
from callboard.errors import CallboardError, CallerError
from callboard.modes import get_plan


async def add_github_text(request: JobRequest) -> JobRequest:
    """Add the text of the request's issue or pull request, and the branch of the pull request. Raises CallerError."""
    if request.github_text:
        return request
    if request.issue:
        text = await github.issue_text(request.issue, request.directory)
        return msgspec.structs.replace(request, github_text=text)
    if request.pull_request:
        branch, text = await github.pull_request_of(request.pull_request, request.directory)
        return msgspec.structs.replace(request, branch=request.branch or branch, github_text=text)
    return request


@dataclass(eq=False)
class JobRunner:
    """One job under way, until it has ended or waits."""

    request: JobRequest
    models: JobModels
    record: JobRecord
    """Record of the job, with the steps from earlier processes."""
    _: KW_ONLY
    show: Callable[[Step], None]
    """Gets each step as it happens."""
    approver: Approver
    """Asks the user; where it defers a call, the job waits."""
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._memory = JobMemory.load(self.record.job.memory)
        self._seconds = self._memory.seconds
        """That the job ran in earlier processes."""
        self._began = self.clock()
        # The making of the tree counts, and the time in which no process ran the job does not.
        minutes = self.request.settings.coding.limits.max_task_duration_minutes
        self._deadline = self._began + timedelta(minutes=minutes, seconds=-self._seconds)
        self._notified: set[str] = set()
        self.pending: tuple[InvocationCanister, ...] = ()
        """Calls that need an answer before the job continues."""
        self.find_schema: FindSchema = lambda _: None
        """Returns the schema of the tool of a pending call."""

    @property
    def job(self) -> Job:
        """The job as it is recorded."""
        return self.record.job

    async def run_to_end(self) -> Job:
        """Run the job as `run` does, and record a failure, unless another process continues the job.

        Raises RunnerMissing, our own bugs, and the reason why this process leaves the job.
        """
        try:
            return await self.run()
        except JobLeft:
            return self.job
        except RunnerMissing:
            raise
        except Exception as error:
            if self.record.is_left:
                raise
            match error:
                case CallboardError():
                    return self.end("failed", error.message, error=str(error))
                case OSError():
                    path, why = error.filename or self.record.folder, error.strerror or str(error)
                    return self.end("failed", why, error=f"{path}: {why}")
                case _:
                    self.end("failed", "a mistake in Callboard itself", error=f"{type(error).__name__}: {error}")
                    raise

    async def run(self) -> Job:
        """Runs the phases that are left, and delivers what they changed; the job has ended then, or waits."""
        past = read_progress(self.record.steps())
        if past.phase:
            self._emit(Resumed())
        memory = self._memory
        memory.workflow = memory.workflow or self.request.workflow or get_plan(self.models.own).coding
        phases = phases_of(self.request.kind, memory.workflow, self.request.access_level)
        has_ended = memory.is_delivered and is_closed(self.record.folder)
        if has_ended and not past.missing and all(each.name in past.answers for each in phases):
            return self._finish((), "", "")
        if has_ended or self.record.begins_fork:
            # Somebody continues a job that had ended.
            memory.is_delivered = False
            if past.missing:
                memory.phase = PhaseMemory()
                past.repeat_phase()
        async with self._open_tree() as tree:
            policy = JobPolicy(self.request, self.approver, str(tree.root))
            async with JobWorkspace(self.request, tree, self.record.folder, policy, memory) as workspace:
                self._notify(workspace.notices)
                runner = self._phase_runner(workspace, policy, past)
                try:
                    await runner.run(phases)
                finally:
                    self.pending, self.find_schema = runner.pending, runner.find_schema
                    self._update(calls=runner.calls)
                    if not self._stays_open:
                        await finish_despite_cancellation(self._deliver(tree, runner, workspace))
            if not (runner.missing or self._stays_open):
                self._update(output=await publish(self.request, tree, self.job.output, self._emit))
        if self._stays_open:
            return self.job
        return self._finish(runner.missing, runner.phase, runner.why)

    def end(self, state: JobState, reason: str, error: str = "") -> Job:
        """Return the job as it ended."""
        self._update(state=state, reason=reason, error=error)
        return self.job

    def _finish(self, missing: tuple[str, ...], phase: str, why: str) -> Job:
        if missing:
            return self.end("failed", why or f"stopped in the phase {phase!r}: {missing[0].rstrip('.')}")
        return self.end("completed", "")

    @property
    def _stays_open(self) -> bool:
        """Return whether the job continues later or elsewhere, in the tree as it is."""
        return self.record.is_left or bool(self.pending)

    @asynccontextmanager
    async def _open_tree(self) -> AsyncIterator[Tree]:
        request, coding = self.request, self.request.settings.coding
        branch = request.branch_of(self.job.id)
        commit = request.branch or request.commit or "HEAD"
        tree = await reopen_tree(request.directory, self.record.folder, branch, commit, fetch=coding.git.fetch)
        try:
            self._update(tree={**tree.record})
            self._notify(tree.notices)
            yield tree
        finally:
            if not self._stays_open:
                keep = request.keep_tree or coding.debug.keep_temp_files
                await finish_despite_cancellation(tree.close(keep=keep))

    def _phase_runner(self, workspace: JobWorkspace, policy: JobPolicy, past: Progress) -> PhaseRunner:
        def emit(step: Step) -> None:
            self._emit(step)
            if isinstance(step, ResultReady):
                for edit in workspace.edits.take():
                    self._emit(edit)
            elif isinstance(step, InvocationEnded):
                workspace.edits.take()  # before an attempt, the previous one was undone
            self._notify(workspace.notices)

        def remember() -> None:
            tests = workspace.tests
            self._memory.first_report, self._memory.last_report = trim_report(tests.first), trim_report(tests.last)
            self._memory.seconds = self._seconds + (self.clock() - self._began).total_seconds()
            self._update(memory=self._memory.dump())

        return PhaseRunner(
            self.request,
            self.job.description,
            self.models,
            workspace,
            record=self.record,
            memory=self._memory,
            remember=remember,
            past=past,
            policy=policy,
            approver=self.approver,
            deadline=self._deadline,
            clock=self.clock,
            emit=emit,
        )

    async def _deliver(self, tree: Tree, phases: PhaseRunner, workspace: JobWorkspace) -> None:
        output = await deliver(self.request, self.job, tree, phases, workspace.tests)
        self._memory.is_delivered = True
        self._update(output=output, memory=self._memory.dump())
        await self.record.save()
        self._notify(tree.notices)

    def _emit(self, step: Step) -> None:
        self.record.add(step)
        try:
            self.show(step)
        except OSError as error:
            raise CallerError(f"what it tells cannot be written: {error.strerror}") from None
        if isinstance(step, PhaseStarted):
            self._update(phase=step.name)

    def _notify(self, notices: Iterable[str]) -> None:
        """Emits the notices that are new: some come up under way."""
        for notice in notices:
            if notice not in self._notified:
                self._notified.add(notice)
                self._emit(Notice(notice))

    def _update(self, **changes: Any) -> None:
        self.record.update(**changes)
