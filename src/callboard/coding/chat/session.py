"""A chat: turns of a person and a model in the person's own tree.

Owns the conversation and the chat's job. Knows nothing of terminals. What the model is offered is `offer`'s business.
Law: before a turn's first change there is a state to go back to, or the user has been told that there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from callboard.agent.run import Run, RunResult
from callboard.coding.agents.job_request import Assignment
from callboard.coding.chat.approval_policy import Approver
from callboard.coding.chat.checkpoints import Turns
from callboard.coding.chat.turn_agent import Offer
from callboard.coding.jobs.log import Prompted, Record, Step, Told, replayed
from callboard.coding.jobs.replay_conversation import folded
from callboard.coding.jobs.store import MAX_DIFF, Job, Jobs
from callboard.coding.shielding import finished
from callboard.coding.workspace.read_tracker import ReadTracker
from callboard.coding.workspace.sandbox_profile import make_confinement
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration.coding import Rights
from callboard.core import (
    AssistantCanister,
    Canister,
    InvocationCanister,
    Model,
    RolledBack,
    Usage,
)
from callboard.errors import CallboardError, CallerError
from callboard.execution.result_store import KeptResults
from callboard.programs import work_in
from callboard.text.display import escape


class Chat:
    """A chat under way; made by `open_chat`. `job` is its record as it is on disk. `rounds`, `usage` and `cost` are
    sums, the cost None where prices are not known.
    """

    def __init__(
        self,
        assignment: Assignment,
        model: Model,
        job: Job,
        jobs: Jobs,
        *,
        record: Record,
        workspace: Workspace,
        show: Callable[[Step], None],
        approver: Approver,
        history: Iterable[Canister] = (),
    ) -> None:
        self.job = job
        self.rights: Rights = assignment.rights
        self.rounds = job.rounds
        self.usage = Usage(**job.usage)
        self.cost: float | None = job.output.get("cost")
        self.workspace = workspace
        self._jobs = jobs
        self._record = record
        self._show = show
        self._history = [*history]
        kept = KeptResults(jobs.folder(job.id) / "results")
        self._offer = Offer(
            assignment, model, workspace, kept, approver, around=self._wait_for, changing=self._begin_changes
        )
        self._turns = Turns(assignment.directory, jobs.folder(job.id), job.output.get("turns", ()))
        self._label = ""
        self._unkept = ""
        """Why changes cannot be taken back, once the user has been told."""
        self._notes: list[str] = []

    # What the user does

    async def turn(self, prompt: str) -> RunResult:
        """One prompt, and all that follows from it. Cancelling ends it, and the chat can go on.

        Raises what the agent's run raises: CallboardError, OSError.
        """
        self._label = prompt[:100]
        self._step(Prompted(prompt))
        self._update(state="running", reason="", description=self.job.description or prompt)
        notes, self._notes = self._notes, []
        notice = self.workspace.notice
        run = self._offer.agent(self.rights).stream("\n\n".join([*notes, prompt]), history=self._history)
        try:
            async with run:
                async for event in run:
                    self._step(event)
        finally:
            await finished(self._end_turn(run))
            if self.workspace.notice != notice:
                self.tell(self.workspace.notice)
        return run.result

    async def undo(self) -> tuple[str, ...]:
        """Takes back what the last turn changed that is not taken back yet; the files. Raises CallerError."""
        if self._unkept and not self._turns:
            raise CallerError(self._unkept)
        files = await self._turns.take_back()
        self._update(output=self._output())
        self._notes.append(_taken_back(files))
        self._record.add(Prompted(self._notes[-1]))
        return files

    async def diff(self) -> str:
        """What the files differ in from those before the chat's first change, as a patch."""
        return await self._turns.diff()

    def clear(self) -> None:
        """Forgets the conversation; files stay as they are."""
        self._history.clear()
        self._notes.clear()
        self.workspace.seen = ReadTracker()
        self._record.add(RolledBack(0))

    def tools(self) -> list[tuple[str, str, bool]]:
        """What the model is offered: the name, what it does, and whether all of it runs without asking."""
        return self._offer.tools(self.rights)

    def tell(self, text: str) -> None:
        """Something in our own words, which is recorded too."""
        self._step(Told(text))

    async def close(self, state: Any, reason: str = "", error: str = "") -> None:
        """Writes down how the chat ended, and what has come of it."""
        output = self._output()
        with suppress(CallboardError, OSError):
            output["diff"] = (await self.diff())[:MAX_DIFF]
        self._update(state=state, reason=reason, error=error, output=output)

    # A turn

    def _wait_for(self, what: str) -> None:
        self._update(state="waiting" if what else "running", reason=what)

    async def _begin_changes(self) -> None:
        if self._unkept:
            return
        try:
            await self._turns.begin(self._label)
        except CallerError as error:
            self._unkept = str(error)
            self.tell(f"changes cannot be taken back: {error}")
            return
        # On disk before anything changes: whatever becomes of the process, the way back is known.
        self._update(output=self._output())

    async def _end_turn(self, run: Run) -> None:
        try:
            await self._turns.end()
        except CallerError as error:
            self.tell(f"the changes of this turn cannot be taken back: {error}")
        finally:
            self._take(run)
            self.wait()

    # Its record

    def wait(self) -> None:
        """It is the user's turn."""
        self._wait_for("for the user")

    def _take(self, run: Run) -> None:
        if not run.ended:
            return
        result = run.result
        self._history += result.canisters
        self.rounds += result.rounds
        self.usage += result.usage
        self.cost = None if result.cost is None else (self.cost or 0.0) + result.cost
        calls = sum(isinstance(each, InvocationCanister) for each in result.canisters)
        said = [each.text for each in result.canisters if isinstance(each, AssistantCanister) and each.text]
        self._update(
            rounds=self.rounds,
            calls=self.job.calls + calls,
            usage={name: getattr(self.usage, name) for name in ("input", "output", "cached")},
            output=self._output() | ({"summary": said[-1]} if said else {}),
        )

    def _output(self) -> dict[str, Any]:
        turns = self._turns
        return {**self.job.output, "turns": turns.record, "files": turns.files, "cost": self.cost}

    def _step(self, step: Step) -> None:
        self._record.add(step)
        self._show(step)

    def _update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)


@asynccontextmanager
async def open_chat(
    assignment: Assignment,
    model: Model,
    jobs: Jobs,
    show: Callable[[Step], None],
    approver: Approver,
    *,
    resume: Job | None = None,
) -> AsyncIterator[Chat]:
    """A chat, for as long as it is entered; `resume` is an earlier one that goes on. Raises CallerError.

    Its job is completed at the end; failed by a CallboardError or OSError, cancelled by a cancellation; removed where
    there was no turn.
    """
    work_in(assignment.directory)
    job = resume or jobs.create("chat", "", assignment.directory, model=model.name, given=assignment.given)
    folder = jobs.folder(job.id)
    with _removed_if_nothing_was_said(jobs, job), jobs.running(job.id), Record(folder) as record:
        history = folded(replayed(folder)) if resume else []
        job = jobs.update(job, state="running", reason="", error="", completed_at=None, model=model.name)
        # The user's own tree. Where there is no sandbox, commands are refused, each by itself.
        workspace = Workspace(
            assignment.directory,
            prefer="none" if assignment.without_sandbox else "",
            confinement=make_confinement(assignment.settings.coding, assignment.directory, folder),
        )
        chat = Chat(
            assignment,
            model,
            job,
            jobs,
            record=record,
            workspace=workspace,
            show=show,
            approver=approver,
            history=history,
        )
        try:
            await workspace.connect()
            chat.wait()
            yield chat
            await chat.close("completed")
        except asyncio.CancelledError:
            await finished(chat.close("cancelled", "ended by a signal"))
            raise
        except (CallboardError, OSError) as error:
            await chat.close("failed", str(error), str(error))
            raise
        finally:
            await workspace.disconnect()


@contextmanager
def _removed_if_nothing_was_said(jobs: Jobs, job: Job) -> Iterator[None]:
    """Removes a chat's job at the end where there was no turn: it holds nothing to go on with."""
    try:
        yield
    finally:
        if not jobs.load(job.id).description:
            jobs.remove(job.id)


async def undo_chat(job: Job, jobs: Jobs) -> str:
    """Makes the files that a chat changed what they were before its first change; what was done, in words.

    Raises CallerError if it is under way, or if somebody else has changed one of them since.
    """
    folder = jobs.folder(job.id)
    with jobs.running(job.id):
        turns = Turns(Path(job.directory), folder, job.output.get("turns", ()))
        if not turns:
            return f"nothing of {job.id} is to be taken back"
        files = await turns.take_back(all_=True)
        jobs.update(job, output={**job.output, "turns": turns.record, "files": turns.files, "diff": ""})
        with Record(folder) as record:
            record.add(Prompted(_taken_back(files)))
    return f"as before the chat: {', '.join(map(escape, files))}" if files else f"{job.id} left nothing changed"


def _taken_back(files: Iterable[str]) -> str:
    return f"(The user took your changes back. These files are again as they were before: {', '.join(map(escape, files))}.)"
