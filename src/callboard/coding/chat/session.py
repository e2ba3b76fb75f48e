"""A chat: turns of a person and a model in the person's own tree.

A chat is also a job with a record. Law: before a turn's first change there is a checkpoint to restore, or a notice to
the user that there is none.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from callboard.agent import Agent
from callboard.agent.run import Run, RunResult
from callboard.coding.agents.explorer import make_explorer
from callboard.coding.agents.job_record import JobRecord, RunRecord
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_workspace import JobPolicy
from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.agents.prompts import instructions
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.coding.chat.approval_policy import FREE, ApprovalPolicy, connect_servers, without_names_of_ours
from callboard.coding.chat.approver import ChatApprover
from callboard.coding.git.snapshots import Checkpoints, restored_note
from callboard.coding.job import MAX_DIFF, Job, JobOutput, Notice, PromptSent, Step
from callboard.coding.tools import edited_paths, make_ensemble, purpose_of
from callboard.coding.tools.commands import bash
from callboard.coding.tools.file import read_file
from callboard.coding.workspace.changed_files import ChangedFile, EditLog, ObservedDirectory
from callboard.coding.workspace.project_checks import ProjectChecks
from callboard.coding.workspace.repository_instructions import NestedInstructions, read_instructions
from callboard.coding.workspace.run_command import make_confinement
from callboard.coding.workspace.workspace import READ_ONLY, ReadTracker, Workspace
from callboard.configuration import DescribedServer, disconnect_ensembles
from callboard.configuration.coding import CHAT_ROUNDS, Access
from callboard.configuration.skills import Skill, describe_off, describe_skills, find_skills, make_skills_ensemble
from callboard.core import (
    AssistantCanister,
    Canister,
    InvocationCanister,
    Model,
    PictureContent,
    ResultCanister,
    ResultReady,
    RolledBack,
    Usage,
    UserCanister,
    pipe,
)
from callboard.errors import CallboardError, CallerError
from callboard.execution.result_store import KeptResults
from callboard.loop import ContextWindow, Limits, RepetitionFilter
from callboard.modes import HallucinatedResultFilter, get_plan
from callboard.profiles import describe_spent
from callboard.tools import Ensemble, Invoker, Policy

_ALL: Final = actions_of_groups(("look", "history", "edit", "commit", "git_checkout", "git_branch", "check"))
_FEW: Final = (
    *("read_file", "list_directory", "grep", "find_files", "git_status", "git_diff"),
    *("write_file", "replace_in_file", "append_file", "delete_file", "run_tests", "bash"),
)
"""For models that keep to one thing at a time."""
_CHANGES_NO_FILE: Final = frozenset((*FREE, *actions_of_groups(("commit",))))
PICTURES_ALONE: Final = "(pictures)"
"""The description of a chat that began with no words."""


@dataclass(eq=False)
class ChatSession:
    """A chat under way; made by `open_session`."""

    request: JobRequest
    model: Model
    find_record: Callable[[], JobRecord]
    _: KW_ONLY
    workspace: Workspace
    """The user's own tree."""
    show: Callable[[Step], None]
    approver: ChatApprover
    history: InitVar[Iterable[Canister]] = ()
    results: KeptResults
    """Holds what was truncated for the model."""
    skills: Sequence[Skill] = ()
    edits: EditLog
    """Collects what calls change in the workspace."""
    ensembles: Sequence[Ensemble] = ()
    """Tools of others, which the model gets unless it may only look. The creator connects them."""

    def __post_init__(self, history: Iterable[Canister]) -> None:
        self.access: Access = self.request.access_level
        self._history = [*history]
        self._notes: list[str] = []
        """Notes for the model before the next prompt."""
        if self._history and isinstance(self._history[-1], UserCanister):
            self._notes.append(self._history.pop().text)
        self._last_policy: ApprovalPolicy | None = None
        self._context_window = self._make_context_window()
        self._checkpoints = Checkpoints(self.request.directory, self._record.folder, self.job.output.turns)
        self._nested: NestedInstructions | None = None
        self._checks = ProjectChecks(self.workspace)
        self._label = ""
        self._no_checkpoints = ""
        """Reason why changes cannot be undone; set after the notice to the user."""

    @property
    def _record(self) -> JobRecord:
        return self.find_record()

    @property
    def job(self) -> Job:
        """The chat as it is recorded."""
        return self._record.job

    @property
    def rounds(self) -> int:
        return self.job.rounds

    @property
    def usage(self) -> Usage:
        return Usage.from_counts(self.job.usage)

    @property
    def cost(self) -> float | None:
        """Cost in US dollars; None if unknown."""
        return self.job.cost

    # Actions of the user

    async def turn(self, prompt: str, pictures: Sequence[PictureContent] = ()) -> RunResult:
        """Run one turn: a prompt and all that follows from it. After a cancellation, the chat can continue.

        Raises the errors of the agent's run: CallboardError, OSError.
        """
        budget = self._remaining_budget()
        self._label = prompt[:100]
        self._emit(PromptSent(prompt, tuple(pictures)))
        self._record.update(description=self.job.description or prompt.strip() or PICTURES_ALONE)
        notes, self._notes = self._notes, []
        notice = self.workspace.notice
        content: tuple[str | PictureContent, ...] = ("\n\n".join([*notes, prompt]), *pictures)
        journal = self._record.open_journal(f"turn-{secrets.token_hex(4)}")
        run = self._agent(budget).stream(content, history=self._history, journal=journal)
        try:
            async with run:
                async for event in run:
                    self._emit(event)
                    if isinstance(event, ResultReady):
                        for edit in self.edits.take():
                            self._emit(edit)
        finally:
            await finish_despite_cancellation(self._end_turn(run, journal))
            if self.workspace.notice != notice:
                self.notify(self.workspace.notice)
        return run.result

    async def undo(self) -> tuple[str, ...]:
        """Takes back what the last turn changed that is not taken back yet; the files. Raises CallerError."""
        if self._no_checkpoints and not self._checkpoints:
            raise CallerError(self._no_checkpoints)
        files = await self._checkpoints.restore()
        self._record.update(output=self._output())
        self._notes.append(restored_note(files))
        return files

    async def diff(self) -> str:
        """Return a patch of all changes since the chat's first change."""
        return await self._checkpoints.diff()

    def clear(self) -> None:
        """Forgets the conversation; files stay as they are."""
        self._history.clear()
        self._nested = None
        self._notes.clear()
        self.workspace.seen = ReadTracker()
        self._record.add(RolledBack(0))

    def tools(self) -> list[tuple[str, str, bool]]:
        """Return the model's tools: the name, what it does, and whether all of it runs without asking."""
        ensembles = self._offer_ensembles(self.access)
        policy = self._policy(ensembles, self.access)
        invokers = [invoker for each in ensembles for invoker in each.invokers.values()]
        return [(each.name, purpose_of(each), policy.is_free(each)) for each in invokers]

    def action_of(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """Return our own name of the action of a call, such as `read_file`; "" for a tool that is not ours."""
        if self._last_policy is None:
            self._last_policy = self._policy(self._offer_ensembles("full"), "full")
        return self._last_policy.action_of(name, arguments)

    def use_model(self, model: Model) -> None:
        """Use another model from the next turn on. The caller closes the model."""
        self.model = model
        self._context_window = self._make_context_window()
        self._record.update(model=model.name)

    def notify(self, text: str) -> None:
        """Shows and records a notice."""
        self._emit(Notice(text))

    async def close(self) -> None:
        """Record the chat's diff, and what the model has not read yet."""
        output = self._output()
        with suppress(CallboardError, OSError):
            output = replace(output, diff=(await self.diff())[:MAX_DIFF])
        self._record.update(output=output)
        await self._record.save([UserCanister("\n\n".join(self._notes))] if self._notes else ())

    # A turn

    def _agent(self, budget: float | None) -> Agent:
        """Return the agent of one turn, with a budget in US dollars."""
        text = read_instructions(self.workspace.files)
        ensembles = self._offer_ensembles(self.access)
        policy = self._last_policy = self._policy(ensembles, self.access)
        self.workspace.permits = policy.permits(Invoker.of(bash), {})
        self._nested = self._nested or self._nested_instructions(policy)

        async def before_call(invocation: InvocationCanister) -> ResultCanister | None:
            result = await policy.before_call(invocation)
            if result is None and policy.action_of(invocation.name, invocation.arguments) not in _CHANGES_NO_FILE:
                await self._begin_checkpoint()
                await self._checks.begin()
            return result

        return Agent(
            self.model,
            ensembles=ensembles,
            instructions=instructions(
                self.request.settings.coding.project,
                text,
                describe_skills(self.skills, get_plan(self.model).context_tokens),
            ),
            limits=Limits(rounds=(self.request.max_rounds or CHAT_ROUNDS) - 1, errors=None, cost=budget),
            policy=policy,
            approve=policy.approve,
            before_call=before_call,
            after_call=partial(self._after_call, self._nested),
            answer_after="model",
            on_repeated_call="warn",
            context_window=self._context_window,
            keep_order=True,
            event_filter=lambda: pipe(RepetitionFilter(), HallucinatedResultFilter()),
        )

    def _make_context_window(self) -> ContextWindow:
        context = self.request.settings.coding.context
        return ContextWindow(
            limit=get_plan(self.model).context_tokens,
            threshold=context.compact_at,
            keep=context.keep_rounds,
            every=context.compact_every_n_rounds or 0,
        )

    def _offer_ensembles(self, access: Access) -> list[Ensemble]:
        single = get_plan(self.model).coding == "short"
        names = _FEW if single else _ALL
        may_change = access != "read-only"
        offered = [name for name in names if may_change or name in FREE]
        # Only its own description says what a third-party tool does.
        further = [without_names_of_ours(each) for each in self.ensembles] if may_change else []
        skills = [make_skills_ensemble(self.skills)] if self.skills else []
        ours = [make_ensemble(self.workspace, offered, single=single), self.results.ensemble(), *skills]
        return [*ours, *([] if single else [self._explorer()]), *further]

    def _explorer(self) -> Ensemble:
        policy = JobPolicy(self.request, self.approver, str(self.workspace.root))
        return make_explorer(
            self.model,
            make_ensemble(self.workspace, actions_of_groups(("look",)), single=False),
            policy=policy,
            after_call=lambda: partial(self._after_call, self._nested_instructions(policy)),
            context=self.request.settings.coding.context,
        )

    def _nested_instructions(self, policy: Policy) -> NestedInstructions:
        return NestedInstructions(self.workspace, policy.permits(Invoker.of(read_file), {}))

    def _policy(self, ensembles: list[Ensemble], access: Access) -> ApprovalPolicy:
        return ApprovalPolicy(
            self.request,
            self.approver,
            access=access,
            workspace=self.workspace,
            ensembles=ensembles,
            on_answer=self._emit,
        )

    async def _after_call(
        self, nested: NestedInstructions, invocation: InvocationCanister, result: ResultCanister
    ) -> ResultCanister:
        limit = self.request.settings.coding.context.result_limit(invocation.name)
        result = self.results.truncate(invocation.name, result, limit)
        result = nested.add(invocation, result)
        return await self._checks.add(edited_paths(invocation.name, invocation.arguments or {}), result)

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
        self._record.update(output=self._output())

    async def _end_turn(self, run: Run, journal: RunRecord) -> None:
        try:
            await self._checkpoints.end()
        except CallerError as error:
            self.notify(f"the changes of this turn cannot be taken back: {error}")
        finally:
            canisters = run.result.canisters if run.ended else ()
            self._history += canisters
            answers = [each.text for each in canisters if isinstance(each, AssistantCanister) and each.text]
            summary = answers[-1] if answers else self.job.output.summary
            self._record.update(output=replace(self._output(), summary=summary))
            await self._record.save(journal.find_unsaved(canisters))

    def _remaining_budget(self) -> float | None:
        """Return the rest of the budget in US dollars; None if unlimited. Raises CallerError if nothing is left."""
        budget = self.request.max_cost
        if budget is None:
            return None
        if self.cost is None and self.rounds:
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
        self._record.add(step)
        self.show(step)


@asynccontextmanager
async def open_session(
    request: JobRequest,
    model: Model,
    find_record: Callable[[], JobRecord],
    show: Callable[[Step], None],
    approver: ChatApprover,
    *,
    history: Iterable[Canister] = (),
    servers: Iterable[DescribedServer] = (),
    on_change: Callable[[ChangedFile], None] | None = None,
) -> AsyncIterator[ChatSession]:
    """Open a chat for the `async with` block. Raises CallerError.

    The record of `find_record` may be another one in each turn. A server that cannot be connected is reported.
    `on_change` gets each file that a tool of ours writes or deletes, in the thread that does it.
    """
    folder = find_record().folder
    # The user's own tree. Without a sandbox, each command is refused on its own.
    every = find_skills(request.directory, request.settings.trusted)
    skills = [each for each in every if not each.problem]
    confinement = make_confinement(request.settings.coding, request.directory, folder)
    workspace = Workspace(
        request.directory,
        prefer="none" if request.without_sandbox else "",
        confinement=replace(confinement, readable=(*confinement.readable, *[each.folder for each in skills])),
    )
    edits = EditLog()

    def note_change(change: ChangedFile) -> None:
        edits.add(change)
        if on_change is not None:
            on_change(change)

    workspace.files = ObservedDirectory(str(request.directory), READ_ONLY, note_change)
    results = KeptResults(folder / "results")
    ensembles: list[Ensemble] = []
    off = describe_off(every)
    chat = ChatSession(
        request,
        model,
        find_record,
        workspace=workspace,
        show=show,
        approver=approver,
        history=history,
        results=results,
        edits=edits,
        skills=skills,
        ensembles=ensembles,
    )
    try:
        await workspace.connect()
        ensembles += await connect_servers(servers, results, chat.notify)
        if off:
            chat.notify(off)
        await find_record().save()
        try:
            yield chat
        finally:
            await finish_despite_cancellation(chat.close())
    finally:
        try:
            await finish_despite_cancellation(disconnect_ensembles(ensembles))
        finally:
            await workspace.disconnect()
