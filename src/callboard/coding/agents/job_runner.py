"""Run a job, from its request to what it hands over: record, tree, sandbox, phases, commit, push.

Law: the user's tree is never touched; however a job ends, what was changed is on its branch, and no process of it is
left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from callboard.coding.agents.deliver import deliver, publish
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_tests import RunnerMissing
from callboard.coding.agents.job_workspace import JobWorkspace
from callboard.coding.agents.permissions import Approver, JobPolicy
from callboard.coding.agents.phase_runner import PhaseRunner
from callboard.coding.agents.phases import phases_of
from callboard.coding.agents.prompts import task_text
from callboard.coding.cancellation import cancel_on_signals, finish_despite_cancellation
from callboard.coding.git import github
from callboard.coding.git.open_tree import open_tree
from callboard.coding.git.tree import Tree
from callboard.coding.jobs.job import Job, JobState
from callboard.coding.jobs.log import JobLog, Notice, PhaseStarted, Step
from callboard.coding.jobs.store import JobStore
from callboard.core import InvocationCanister, Model, Verdict
from callboard.errors import CallboardError, CallerError
from callboard.modes import get_plan
from callboard.programs import exclude_repository


async def run_job(
    request: JobRequest,
    model: Model,
    jobs: JobStore,
    show: Callable[[Step], None],
    approver: Approver,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    on_start: Callable[[Job], None] = lambda _: None,
) -> Job:
    """Runs a job, and gives it as it ended.

    A cancellation cancels the job, and is raised again. SIGTERM, and SIGHUP of a closed terminal, cancel it too; then
    it is given.

    Args:
        request: What is to be done.
        model: Does it.
        jobs: Where the job is recorded.
        show: Gets each step as it happens.
        approver: Asks the user.
        clock: The time.
        on_start: Gets the job when it runs.

    Raises:
        CallerError: Nothing was begun; or a fault is to be mended, and its tests cannot be run. Other errors are the
            job's.
    """
    exclude_repository(request.directory)
    if request.issue:
        request = msgspec.structs.replace(
            request, github_text=await github.issue_text(request.issue, request.directory)
        )
    elif request.pull_request:
        branch, text = await github.pull_request_of(request.pull_request, request.directory)
        request = msgspec.structs.replace(request, branch=request.branch or branch, github_text=text)
    task = task_text(request)
    job = jobs.create(request.kind, task, request.directory, model=model.name, input=request.input)
    with jobs.running(job.id), cancel_on_signals() as signals:
        job = jobs.update(job, state="running")
        runner = JobRunner(request, model, jobs, job, show=show, approver=approver, clock=clock)
        on_start(runner.job)
        try:
            return await runner.run()
        except asyncio.CancelledError:
            runner.end("cancelled", "ended by a signal" if signals else "")
            if not signals:
                raise
            if (current := asyncio.current_task()) is not None:
                current.uncancel()
            return runner.job
        except RunnerMissing:
            # Found out before the first reply, so there is nothing to record.
            jobs.remove(job.id)
            raise
        except CallboardError as error:
            return runner.end("failed", error.message, error=str(error))
        except OSError as error:
            path, why = error.filename or jobs.folder(job.id), error.strerror or str(error)
            return runner.end("failed", why, error=f"{path}: {why}")
        except Exception as error:
            runner.end("failed", "a mistake in Callboard itself", error=f"{type(error).__name__}: {error}")
            raise


class JobRunner:
    """One job under way; `job` is its record as it is on disk."""

    def __init__(
        self,
        request: JobRequest,
        model: Model,
        jobs: JobStore,
        job: Job,
        *,
        show: Callable[[Step], None],
        approver: Approver,
        clock: Callable[[], datetime],
    ) -> None:
        self.job = job
        self._request = request
        self._model = model
        self._jobs = jobs
        self._folder = jobs.folder(job.id)
        self._show = show
        self._approver = approver
        self._clock = clock
        # The making of the tree counts.
        self._deadline = clock() + timedelta(minutes=request.settings.coding.limits.max_task_duration_minutes)
        self._notified: set[str] = set()

    async def run(self) -> Job:
        """Runs the phases, and delivers what they changed; the job has ended then."""
        request = self._request
        workflow = request.workflow or get_plan(self._model).coding
        with JobLog(self._folder) as self._log:
            async with self._open_tree() as tree:
                policy = JobPolicy(request, self._approver, str(tree.root))
                async with JobWorkspace(request, tree, self._folder, policy, workflow) as workspace:
                    self._notify(workspace.notices)
                    phases = self._phase_runner(workspace, policy)
                    try:
                        await phases.run(phases_of(request.kind, workflow, request.access_level))
                    finally:
                        usage = {name: getattr(phases.usage, name) for name in ("input", "output", "cached")}
                        self._update(rounds=phases.rounds, calls=phases.calls, usage=usage)
                        await finish_despite_cancellation(self._deliver(tree, phases, workspace))
                if not phases.missing:
                    self._update(output=await publish(request, tree, self.job.output, self._emit))
        if phases.missing:
            return self.end("failed", phases.why or f"the evidence of the phase {phases.phase!r} does not hold")
        return self.end("completed", "")

    def end(self, state: JobState, reason: str, error: str = "") -> Job:
        """The job as it ended, also where that cannot be written to disk any more."""
        try:
            self._update(state=state, reason=reason, error=error)
        except OSError as full:
            self.job = msgspec.structs.replace(self.job, state=state, reason=reason, error=error or str(full))
        return self.job

    @asynccontextmanager
    async def _open_tree(self) -> AsyncIterator[Tree]:
        request, coding = self._request, self._request.settings.coding
        branch = f"{coding.git.branch_prefix}{request.kind}-{self.job.id}"
        commit = request.branch or request.commit or "HEAD"
        tree = await open_tree(request.directory, self._folder, branch, commit, fetch=coding.git.fetch)
        try:
            self._update(tree={**tree.record})
            self._notify(tree.notices)
            yield tree
        finally:
            await finish_despite_cancellation(tree.close(keep=request.keep_tree or coding.debug.keep_temp_files))

    def _phase_runner(self, workspace: JobWorkspace, policy: JobPolicy) -> PhaseRunner:
        def emit(step: Step) -> None:
            self._emit(step)
            self._notify(workspace.notices)

        return PhaseRunner(
            self._request,
            self.job.description,
            self._model,
            workspace,
            policy=policy,
            approve=self._approve,
            deadline=self._deadline,
            clock=self._clock,
            emit=emit,
        )

    async def _deliver(self, tree: Tree, phases: PhaseRunner, workspace: JobWorkspace) -> None:
        self._update(output=await deliver(self._request, self.job, tree, phases, workspace.tests))
        self._notify(tree.notices)

    async def _approve(self, invocation: InvocationCanister, why: str) -> Verdict:
        self._update(state="waiting", reason=f"asks whether {invocation.name} may run")
        try:
            return await self._approver(invocation, why)
        finally:
            self._update(state="running", reason="")

    def _emit(self, step: Step) -> None:
        self._log.add(step)
        try:
            self._show(step)
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
        self.job = self._jobs.update(self.job, **changes)
