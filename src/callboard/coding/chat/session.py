"""A chat: turns of a person and a model in the person's own tree.

A chat is a job too, with a record and a log. Law: before a turn's first change there is a checkpoint to go back to, or
the user has been told that there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from callboard.agent.run import Run, RunResult
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.coding.chat.approver import ChatApprover
from callboard.coding.chat.checkpoints import Checkpoints, restored_note
from callboard.coding.chat.dry_run import ChangedFile, ObservedDirectory
from callboard.coding.chat.mcp_servers import connect_servers
from callboard.coding.chat.turn_agent import TurnAgent
from callboard.coding.jobs.job import MAX_DIFF, Job, JobOutput, JobState
from callboard.coding.jobs.log import JobLog, Notice, PromptSent, Step, replay_steps
from callboard.coding.jobs.replay_conversation import replay_conversation
from callboard.coding.jobs.round_meter import RoundMeter
from callboard.coding.jobs.store import JobStore
from callboard.coding.workspace.run_command import make_confinement
from callboard.coding.workspace.workspace import READ_ONLY, ReadTracker, Workspace
from callboard.configuration import DescribedServer, disconnect_ensembles
from callboard.configuration.coding import Access
from callboard.core import AssistantCanister, Canister, InvocationCanister, Model, PictureContent, RolledBack, Usage
from callboard.errors import CallboardError, CallerError
from callboard.execution.result_store import KeptResults
from callboard.modes import get_plan
from callboard.profiles import describe_spent
from callboard.programs import exclude_repository
from callboard.tools import Ensemble

PICTURES_ALONE: Final = "(pictures)"
"""The description of a chat that began with no words."""


class ChatSession:
    """A chat under way; made by `open_chat`."""

    def __init__(
        self,
        request: JobRequest,
        model: Model,
        job: Job,
        jobs: JobStore,
        *,
        log: JobLog,
        workspace: Workspace,
        show: Callable[[Step], None],
        approver: ChatApprover,
        history: Iterable[Canister] = (),
        results: KeptResults,
        ensembles: Iterable[Ensemble] = (),
    ) -> None:
        self.job = job
        """Its record as it is on disk."""
        self.access: Access = request.access_level
        self.rounds = job.rounds
        self.usage = Usage.from_counts(job.usage)
        self.cost = job.cost
        """In US dollars, None where it is not known."""
        self.workspace = workspace
        self.model = model
        self._request = request
        self._jobs = jobs
        self._log = log
        self._show = show
        self._history = [*history]
        folder = jobs.folder(job.id)
        self._turn_agent = TurnAgent(
            request,
            model,
            workspace,
            results,
            approver,
            ensembles=ensembles,
            on_question=self._wait_for,
            on_answer=self._emit,
            before_change=self._begin_checkpoint,
        )
        self._checkpoints = Checkpoints(request.directory, folder, job.output.turns)
        self._label = ""
        self._no_checkpoints = ""
        """Why changes cannot be taken back, once the user has been told."""
        self._notes: list[str] = []

    # What the user does

    async def turn(self, prompt: str, pictures: Sequence[PictureContent] = ()) -> RunResult:
        """One prompt, and all that follows from it. Cancelling ends it, and the chat can go on.

        Raises what the agent's run raises: CallboardError, OSError.
        """
        budget = self._remaining_budget()
        self._label = prompt[:100]
        self._emit(PromptSent(prompt, tuple(pictures)))
        self._update(state="running", reason="", description=self.job.description or prompt.strip() or PICTURES_ALONE)
        notes, self._notes = self._notes, []
        notice = self.workspace.notice
        content: tuple[str | PictureContent, ...] = ("\n\n".join([*notes, prompt]), *pictures)
        run = self._turn_agent.agent(self.access, budget).stream(content, history=self._history)
        meter = RoundMeter(get_plan(self.model).prices)
        try:
            async with run:
                async for event in run:
                    for measured in meter.feed(event, datetime.now(UTC)):
                        self._log.add(measured)
                    self._emit(event)
        finally:
            await finish_despite_cancellation(self._end_turn(run))
            if self.workspace.notice != notice:
                self.notify(self.workspace.notice)
        return run.result

    async def undo(self) -> tuple[str, ...]:
        """Takes back what the last turn changed that is not taken back yet; the files. Raises CallerError."""
        if self._no_checkpoints and not self._checkpoints:
            raise CallerError(self._no_checkpoints)
        files = await self._checkpoints.restore()
        self._update(output=self._output())
        self._notes.append(restored_note(files))
        self._log.add(PromptSent(self._notes[-1]))
        return files

    async def diff(self) -> str:
        """What the files differ in from those before the chat's first change, as a patch."""
        return await self._checkpoints.diff()

    def clear(self) -> None:
        """Forgets the conversation; files stay as they are."""
        self._history.clear()
        self._notes.clear()
        self.workspace.seen = ReadTracker()
        self._log.add(RolledBack(0))

    def tools(self) -> list[tuple[str, str, bool]]:
        """The model's tools: the name, what it does, and whether all of it runs without asking."""
        return self._turn_agent.tools(self.access)

    def action_of(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """The own name of what a call of the model does, such as `read_file`; "" for a tool that is not ours."""
        return self._turn_agent.action_of(name, arguments)

    def use_model(self, model: Model) -> None:
        """From the next turn on, another model answers. Who gave it closes it."""
        self.model = model
        self._turn_agent.use_model(model)
        self._update(model=model.name)

    def notify(self, text: str) -> None:
        """Shows and records a notice."""
        self._emit(Notice(text))

    def wait(self) -> None:
        """It is the user's turn."""
        self._wait_for("for the user")

    async def close(self, state: JobState, reason: str = "", error: str = "") -> None:
        """Records how the chat ended, and its diff."""
        output = self._output()
        with suppress(CallboardError, OSError):
            output = replace(output, diff=(await self.diff())[:MAX_DIFF])
        self._update(state=state, reason=reason, error=error, output=output)

    # A turn

    def _wait_for(self, what: str) -> None:
        self._update(state="waiting" if what else "running", reason=what)

    async def _begin_checkpoint(self) -> None:
        if self._no_checkpoints:
            return
        try:
            await self._checkpoints.begin(self._label)
        except CallerError as error:
            self._no_checkpoints = str(error)
            self.notify(f"changes cannot be taken back: {error}")
            return
        # On disk before anything changes: even if the process dies, the way back is known.
        self._update(output=self._output())

    async def _end_turn(self, run: Run) -> None:
        try:
            await self._checkpoints.end()
        except CallerError as error:
            self.notify(f"the changes of this turn cannot be taken back: {error}")
        finally:
            self._add_up(run)
            self.wait()

    def _add_up(self, run: Run) -> None:
        if not run.ended:
            return
        result = run.result
        self._history += result.canisters
        self.usage += result.usage
        self.cost = None if result.cost is None or not self._is_priced else (self.cost or 0.0) + result.cost
        self.rounds += result.rounds
        calls = sum(isinstance(each, InvocationCanister) for each in result.canisters)
        answers = [each.text for each in result.canisters if isinstance(each, AssistantCanister) and each.text]
        self._update(
            rounds=self.rounds,
            calls=self.job.calls + calls,
            usage=self.usage.counts(),
            cost=self.cost,
            output=replace(self._output(), summary=answers[-1] if answers else self.job.output.summary),
        )

    @property
    def _is_priced(self) -> bool:
        """Whether the cost of all turns so far is known."""
        return self.cost is not None or not self.rounds

    def _remaining_budget(self) -> float | None:
        """What the next turn may cost, None for anything. Raises CallerError where nothing is left."""
        budget = self._request.max_cost
        if budget is None:
            return None
        if not self._is_priced:
            hint = "begin a chat, or leave the budget out"
            raise CallerError("a budget needs the cost of earlier turns, which is not known", path="budget", hint=hint)
        if (cost := self.cost or 0.0) >= budget:
            hint = "go on with a higher one: callboard chat --resume " + self.job.id
            raise CallerError(describe_spent(cost, budget), path="budget", hint=hint)
        return budget - cost

    def _output(self) -> JobOutput:
        checkpoints = self._checkpoints
        return replace(self.job.output, turns=checkpoints.turns, files=checkpoints.files)

    def _emit(self, step: Step) -> None:
        self._log.add(step)
        self._show(step)

    def _update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)


@asynccontextmanager
async def open_chat(
    request: JobRequest,
    model: Model,
    jobs: JobStore,
    show: Callable[[Step], None],
    approver: ChatApprover,
    *,
    resume: Job | None = None,
    servers: Iterable[DescribedServer] = (),
    on_change: Callable[[ChangedFile], None] | None = None,
) -> AsyncIterator[ChatSession]:
    """A chat, for as long as it is entered. Raises CallerError.

    Args:
        request: What is wanted.
        model: Answers.
        jobs: Where it is recorded.
        show: Gets each step.
        approver: Asks the user.
        resume: An earlier chat that goes on.
        servers: MCP servers whose tools the model gets too. One that cannot be connected is told of.
        on_change: Gets each file that a tool of ours writes or deletes, in the thread that does it.

    At the end its job is completed; failed if a CallboardError or OSError ended it, cancelled by a cancellation, and
    removed if there was no turn.
    """
    exclude_repository(request.directory)
    job = resume or jobs.create("chat", "", request.directory, model=model.name, input=request.input)
    folder = jobs.folder(job.id)
    with _removed_without_a_turn(jobs, job), jobs.running(job.id), JobLog(folder) as log:
        history = replay_conversation(replay_steps(folder)) if resume else []
        job = jobs.update(job, state="running", reason="", error="", completed_at=None, model=model.name)
        # The user's own tree. Where there is no sandbox, commands are refused, each by itself.
        workspace = Workspace(
            request.directory,
            prefer="none" if request.without_sandbox else "",
            confinement=make_confinement(request.settings.coding, request.directory, folder),
        )
        if on_change is not None:
            workspace.files = ObservedDirectory(str(request.directory), READ_ONLY, on_change)
        results = KeptResults(folder / "results")
        ensembles: list[Ensemble] = []
        chat = ChatSession(
            request,
            model,
            job,
            jobs,
            log=log,
            workspace=workspace,
            show=show,
            approver=approver,
            history=history,
            results=results,
            ensembles=ensembles,
        )
        try:
            await workspace.connect()
            ensembles += await connect_servers(servers, results, chat.notify)
            chat.wait()
            yield chat
            await chat.close("completed")
        except asyncio.CancelledError:
            await finish_despite_cancellation(chat.close("cancelled", "ended by a signal"))
            raise
        except (CallboardError, OSError) as error:
            await chat.close("failed", str(error), str(error))
            raise
        finally:
            try:
                await finish_despite_cancellation(disconnect_ensembles(ensembles))
            finally:
                await workspace.disconnect()


@contextmanager
def _removed_without_a_turn(jobs: JobStore, job: Job) -> Iterator[None]:
    """Removes a chat's job at the end if there was no turn: it holds nothing to go on with."""
    try:
        yield
    finally:
        if not jobs.load(job.id).description:
            jobs.remove(job.id)
