"""A job, from its description to what it hands over.

Owns the order: record, tree, sandbox, phases, commit, push. What happens in a phase is `conduct`'s business.
Law: the user's tree is never touched; whatever becomes of a job, what was changed is on its branch, and no process of
it is left.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from callboard.coding.agents.job_request import Assignment
from callboard.coding.agents.job_workspace import Desk, RunnerMissing
from callboard.coding.agents.permissions import rules_of
from callboard.coding.agents.phase_runner import Conduct, said_last
from callboard.coding.agents.phases import Phase, actions, phases_of
from callboard.coding.agents.prompts import task_text
from callboard.coding.agents.pull_request import commit_message, pull_request, told_findings
from callboard.coding.chat.session import undo_chat
from callboard.coding.git import github
from callboard.coding.git.open_tree import open_tree, undo_tree
from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree import Tree
from callboard.coding.jobs.log import Record, Step, Told
from callboard.coding.jobs.store import MAX_DIFF, Job, Jobs
from callboard.coding.shielding import finished
from callboard.coding.tools.bash import bash
from callboard.coding.tools.file import read_file
from callboard.configuration.coding import Rights
from callboard.core import InvocationCanister, Model, Verdict
from callboard.errors import CallboardError, CallerError
from callboard.modes import plan_of
from callboard.programs import work_in
from callboard.tools import Invoker, Policy, Rule


class Approver(Protocol):
    """Asks a person, and knows what was allowed before."""

    @property
    def rules(self) -> list[Rule]: ...

    async def __call__(self, invocation: InvocationCanister, why: str) -> Verdict: ...


async def work(
    assignment: Assignment,
    model: Model,
    jobs: Jobs,
    show: Callable[[Step], None],
    approver: Approver,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    began: Callable[[Job], None] = lambda _: None,
) -> Job:
    """Does it, and gives the job as it ended; `began` is given it when it has begun.

    Raises CallerError before anything is begun, and where a fault is to be mended whose tests cannot be run; after that
    errors are the job's.

    When it is cancelled, the job is too, and CancelledError goes on; SIGTERM, and SIGHUP of a terminal that is closed,
    end it the same way, and give the job.
    """
    work_in(assignment.directory)
    task = await _task(assignment)
    job = jobs.create(
        assignment.kind,
        task,
        assignment.directory,
        model=model.name,
        given={key: value for key, value in assignment.given.items() if value not in (None, "", False)},
    )
    folder = jobs.folder(job.id)
    with jobs.running(job.id), _ended_by(*_ENDING) as ended:
        worker = _Worker(assignment, model, jobs, jobs.update(job, state="running"), task=task, clock=clock)
        began(worker.job)
        try:
            with Record(folder) as record:

                def tell(step: Step) -> None:
                    record.add(step)
                    try:
                        show(step)
                    except OSError as error:
                        raise CallerError(f"what it tells cannot be written: {error.strerror}") from None

                return await worker.run(tell, approver)
        except asyncio.CancelledError:
            worker.end("cancelled", "ended by a signal" if ended else "")
            if not ended:
                raise
            if (current := asyncio.current_task()) is not None:
                current.uncancel()
            return worker.job
        except RunnerMissing:
            # It is found out before the first reply, so there is no job to speak of.
            jobs.discard(job.id)
            raise
        except CallboardError as error:
            return worker.end("failed", error.message, error=str(error))
        except OSError as error:
            place, why = error.filename or folder, error.strerror or str(error)
            return worker.end("failed", why, error=f"{place}: {why}")
        except Exception as error:
            worker.end("failed", "a mistake in Callboard itself", error=f"{type(error).__name__}: {error}")
            raise


class _Worker:
    """One job under way; `job` is its record as it is on disk."""

    def __init__(
        self, assignment: Assignment, model: Model, jobs: Jobs, job: Job, *, task: str, clock: Callable[[], datetime]
    ) -> None:
        self.job = job
        self._assignment = assignment
        self._model = model
        self._jobs = jobs
        self._task = task
        self._clock = clock
        self._told: set[str] = set()

    async def run(self, tell: Callable[[Step], None], approver: Approver) -> Job:
        assignment, coding = self._assignment, self._assignment.settings.coding
        deadline = self._clock() + timedelta(minutes=coding.limits.max_task_duration_minutes)
        form = assignment.form or plan_of(self._model).coding
        phases = _permitted(phases_of(assignment.kind, form), assignment.rights)
        async with self._tree(tell) as tree:
            policy = _Policies(assignment, approver, str(tree.root))
            async with AsyncExitStack() as stack:
                desk = await stack.enter_async_context(
                    Desk(
                        tree,
                        self._jobs.folder(self.job.id),
                        coding,
                        without_sandbox=assignment.without_sandbox,
                        allow_weaker_sandbox=assignment.allow_weaker_sandbox or coding.sandbox.allow_weaker,
                        guards_tests=assignment.kind == "debug" or form == "short",
                        needs_tests=assignment.kind == "debug",
                        reviewed=await self._base() if assignment.kind == "review" else None,
                        permits=policy.permits(Invoker.of(read_file), {}),
                        commands=policy.permits(Invoker.of(bash), {}),
                    )
                )
                self._notify(desk.notices, tell)
                conduct = Conduct(
                    self._model,
                    desk,
                    phases,
                    kind=assignment.kind,
                    task=self._task,
                    settings=coding,
                    policy=policy,
                    approve=self._asking(approver),
                    single=form == "short",
                    rounds=self._rounds(),
                    deadline=deadline,
                    clock=self._clock,
                )
                try:
                    async with aclosing(conduct.steps()) as steps:
                        async for step in steps:
                            tell(step)
                            self._notify(desk.notices, tell)
                            if conduct.phase != self.job.phase:
                                self._update(phase=conduct.phase)
                finally:
                    self._update(rounds=conduct.rounds, calls=conduct.calls, usage=_counted(conduct.usage))
                    await finished(self._deliver(tree, desk, conduct))
                    self._notify(tree.notices, tell)
            if not conduct.missing:
                await self._publish(tree, tell)
        missing = conduct.missing
        if missing:
            return self.end("failed", conduct.why or f"the evidence of the phase {conduct.phase!r} does not hold")
        return self.end("completed", "")

    def end(self, state: Any, reason: str, error: str = "") -> Job:
        """The job as it ended, also where that cannot be written down any more."""
        try:
            self._update(state=state, reason=reason, error=error)
        except OSError as full:
            self.job = msgspec.structs.replace(self.job, state=state, reason=reason, error=error or str(full))
        return self.job

    def _notify(self, notices: Iterable[str], tell: Callable[[Step], None]) -> None:
        """Tells what was not told before: some of it is found out under way."""
        for notice in notices:
            if notice not in self._told:
                self._told.add(notice)
                tell(Told(notice))

    def _update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)

    async def _base(self) -> str:
        """What a branch is compared with: what was said, else where the user's own tree is."""
        repository = await find_repository(self._assignment.directory)
        return str(self._assignment.given.get("base") or (await repository.head() if repository else "HEAD"))

    def _rounds(self) -> int | None:
        assignment = self._assignment
        coding = assignment.settings.coding
        mode = coding.modes.get(assignment.kind)
        return assignment.rounds or (mode.rounds if mode else None) or coding.limits.max_inference_runs

    def _asking(self, approver: Approver) -> Callable[[InvocationCanister, str], Any]:
        async def asked(invocation: InvocationCanister, why: str) -> Verdict:
            self._update(state="waiting", reason=f"asks whether {invocation.name} may run")
            try:
                return await approver(invocation, why)
            finally:
                self._update(state="running", reason="")

        return asked

    @asynccontextmanager
    async def _tree(self, tell: Callable[[Step], None]) -> AsyncIterator[Tree]:
        assignment = self._assignment
        coding = assignment.settings.coding
        at = str(assignment.given.get("branch") or assignment.given.get("at") or "HEAD")
        folder = self._jobs.folder(self.job.id)
        name = f"{coding.git.branch_prefix}{assignment.kind}-{self.job.id}"
        tree = await open_tree(assignment.directory, folder, name, at, fetch=coding.git.fetch)
        try:
            self._update(tree={**tree.record})
            self._notify(tree.notices, tell)
            yield tree
        finally:
            await finished(tree.close(keep=assignment.keep or coding.debug.keep_temp_files))

    async def _deliver(self, tree: Tree, desk: Desk, conduct: Conduct) -> None:
        """Commits what was changed, and writes down what the job hands over."""
        job, assignment = self.job, self._assignment
        described = said_last(conduct.said)
        output: dict[str, Any] = {"summary": described, "missing": [*conduct.missing]}
        if conduct.findings is not None:
            output["findings"] = [msgspec.to_builtins(each) for each in conduct.findings]
            output["summary"] = told_findings(conduct.findings)
        if assignment.kind in ("build", "debug"):
            message = commit_message(job, described)
            await tree.commit(message if conduct.is_finished else f"Not finished: {message}")
            changes = await tree.changes()
            tests = desk.tests_told
            title, body = pull_request(
                job,
                described,
                files=changes.files,
                tests=tests,
                missing=conduct.missing,
                left_out=conduct.left_out,
                issue=assignment.given.get("issue"),
            )
            output |= {
                "branch": tree.branch if changes.commits else "",
                "commits": [each.id for each in changes.commits],
                "files": [*changes.files],
                "diff": changes.diff[:MAX_DIFF],
                "tests": desk.tests_summary,
                "pull_request": {"title": title, "body": body},
            }
            if tree.result_patch and changes.diff:
                output["patch"] = str(tree.result_patch)
        self._update(output=output)

    async def _publish(self, tree: Tree, tell: Callable[[Step], None]) -> None:
        """Pushes the branch, and opens a pull request, where the user asked for it."""
        given, git = self._assignment.given, self._assignment.settings.coding.git
        if self._assignment.kind not in ("build", "debug") or not (given.get("push") or given.get("pr")):
            return
        await tree.push(git.remote)
        tell(Told(f"pushed {tree.branch} to {git.remote}"))
        if given.get("pr"):
            wanted = self.job.output["pull_request"]
            url = await github.open_pull_request(
                self._assignment.directory,
                branch=tree.branch,
                title=wanted["title"],
                body=wanted["body"],
                draft=git.always_draft_pr,
            )
            tell(Told(f"opened {url}"))
            self._update(output={**self.job.output, "pull_request_url": url})


_WITHIN: Final[Mapping[Rights, tuple[str, ...]]] = {
    "read-only": ("look", "history"),
    "edit": ("look", "history", "edit", "commit", "run_tests"),
}


def _permitted(phases: tuple[Phase, ...], rights: Rights) -> tuple[Phase, ...]:
    """The phases with those of their tools that are within the rights."""
    if rights == "full":
        return phases
    allowed = actions(_WITHIN[rights])
    return tuple(
        msgspec.structs.replace(phase, tools=tuple(each for each in actions(phase.tools) if each in allowed))
        for phase in phases
    )


class _Policies(Policy):
    """The policy of a job: what was allowed meanwhile counts from the next call on."""

    def __init__(self, assignment: Assignment, approver: Approver, root: str) -> None:
        super().__init__()
        self._assignment = assignment
        self._approver = approver
        self._beneath = root

    def decide(self, *arguments: Any, **named: Any) -> Any:
        return self._now().decide(*arguments, **named)

    def permits(self, *arguments: Any, **named: Any) -> Any:
        return self._now().permits(*arguments, **named)

    def _now(self) -> Policy:
        rules = rules_of(self._assignment.kind, self._assignment.settings, self._approver.rules)
        return Policy(rules, root=self._beneath)


async def undo_job(job: Job, jobs: Jobs) -> str:
    """Takes back what a job did; what was done, in words. Raises CallerError if it runs, or if it cannot be taken back."""
    if job.state in ("pending", "running", "waiting"):
        raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id}")
    if job.type == "chat":
        return await undo_chat(job, jobs)
    with jobs.running(job.id):
        return await undo_tree(job.tree, jobs.folder(job.id))


async def _task(assignment: Assignment) -> str:
    """The task in full, with what GitHub says of it."""
    given, directory = assignment.given, assignment.directory
    issue = ""
    if given.get("issue"):
        issue = await github.issue_text(given["issue"], directory)
    if given.get("number"):
        branch, issue = await github.pull_request_of(given["number"], directory)
        given["branch"] = given.get("branch") or branch
    task = task_text(given, assignment.logs, issue)
    return task or f"Review the branch {given.get('branch')}."


_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def _ended_by(*numbers: signal.Signals) -> Iterator[list[int]]:
    """The current task is cancelled by these signals, but for those that are ignored; the list then holds them."""
    ended: list[int] = []
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int) -> None:
        # Once: what was changed is put in order then, however often it is asked for.
        if task is not None and not ended:
            task.cancel()
        ended.append(number)

    for number in heeded:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, end, number)
    try:
        yield ended
    finally:
        for number in heeded:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(number)


def _counted(usage: Any) -> dict[str, int]:
    return {"input": usage.input, "output": usage.output, "cached": usage.cached}
