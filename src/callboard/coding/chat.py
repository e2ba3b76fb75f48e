"""A chat: turns of a person and a model in the person's own tree.

Owns the conversation, the turns' snapshots and what is asked before a change. Knows nothing of terminals.
Law: nothing changes before there is a snapshot to go back to, or the user has been told that there is none; an edit
that is asked about is shown as what it would do to the files as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from callboard.agent import Agent
from callboard.agent.run import Run, RunResult
from callboard.coding.answers import pattern_of
from callboard.coding.brief import instructions
from callboard.coding.desk import INSTRUCTIONS, MAX_FILE
from callboard.coding.job import Job, Jobs
from callboard.coding.phases import READS, actions
from callboard.coding.record import Prompted, Record, Step, Told, replayed
from callboard.coding.rehearsal import rehearse
from callboard.coding.seen import Seen
from callboard.coding.snapshots import Snapshots, open_snapshots
from callboard.coding.tools import ensemble, single_action
from callboard.coding.turns import Turn, changed, take_back, turns_of
from callboard.coding.work import MAX_DIFF, Assignment, _rules
from callboard.coding.workspace import KEPT, Workspace
from callboard.configuration.coding import CodingSettings, Rights
from callboard.core import (
    AssistantCanister,
    Canister,
    Fold,
    InvocationCanister,
    Model,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    TextualContent,
    Usage,
    UserCanister,
    Verdict,
    contents,
    error_result,
)
from callboard.errors import CallboardError, CallerError
from callboard.loop import Fabricated, History, Limits
from callboard.mcp.kept import READ_RESULT, KeptResults
from callboard.modes import plan_of
from callboard.sandbox import CommandLimits, Confinement
from callboard.tools import Ensemble, Invoker, Policy, Rule

ROUNDS: Final = 50
"""Replies of one turn, where nothing is set."""

_ALL: Final = ("look", "history", "edit", "commit", "git_checkout", "git_branch", "check")
_FEW: Final = (
    *("read_file", "list_directory", "grep", "find_files", "git_status", "git_diff"),
    *("write_file", "replace_in_file", "append_file", "delete_file", "run_tests", "bash"),
)
"""What models are offered that keep to one thing at a time."""
_FREE: Final = frozenset((*actions(READS), READ_RESULT))
"""What looks, and is never asked about."""
_STILL: Final = frozenset((*_FREE, *actions(("commit",))))
"""What changes no file."""
_RIGHTS: Final[tuple[Rights, ...]] = ("read-only", "edit", "full")


class Approver(Protocol):
    """Asks a person whether a call may run, and knows what was allowed before. `diff` is what an edit would do,
    `pattern` what the answers for the session and for good are about.
    """

    @property
    def rules(self) -> list[Rule]: ...

    async def __call__(
        self, invocation: InvocationCanister, why: str, *, diff: str = "", pattern: str = ""
    ) -> Verdict: ...


class Chat:
    """A chat under way; made by `open_chat`. `rights` may be set between turns; `rounds`, `usage` and `cost` are sums,
    the cost None where prices are not known.
    """

    def __init__(
        self,
        assignment: Assignment,
        model: Model,
        job: Job,
        jobs: Jobs,
        record: Record,
        workspace: Workspace,
        show: Callable[[Step], None],
        approver: Approver,
        *,
        history: Iterable[Canister] = (),
    ) -> None:
        coding = assignment.settings.coding
        self.job = job
        self.rights: Rights = assignment.rights
        self.rounds = job.rounds
        self.usage = Usage(**job.usage)
        self.cost: float | None = job.output.get("cost")
        self.workspace = workspace
        self._assignment = assignment
        self._model = model
        self._jobs = jobs
        self._record = record
        self._show = show
        self._approver = approver
        self._history = [*history]
        self._single = plan_of(model).coding == "short"
        self._folder = jobs.folder(job.id)
        self._kept = KeptResults(self._folder / "results")
        self._view = History(
            limit=plan_of(model).context, threshold=coding.context.compact_at, keep=coding.context.keep_rounds
        )
        self._snapshots: Snapshots | None = None
        self._turns = turns_of(job.output)
        self._turn: Turn | None = None
        self._label = ""
        self._unkept = ""
        """Why changes cannot be taken back, once the user has been told."""
        self._notes: list[str] = []
        self._failing: set[str] = set()
        """Edits that were found to fail when they were to be asked about."""

    # What the user does

    async def turn(self, prompt: str) -> RunResult:
        """One prompt, and all that follows from it. Cancelling ends it, and the chat can go on.

        Raises what the agent's run raises: CallboardError, OSError.
        """
        self._label, self._turn = prompt, None
        self._failing.clear()
        self._step(Prompted(prompt))
        self._update(state="running", reason="", description=self.job.description or prompt)
        notes, self._notes = self._notes, []
        run = self._agent().stream("\n\n".join([*notes, prompt]), history=self._history)
        try:
            async with aclosing(aiter(run)) as events:  # type: ignore[type-var]  # a generator
                async for event in events:
                    self._step(event)
        finally:
            self._take(run)
            await asyncio.shield(self._end_turn())
        if run.result is None:
            raise AssertionError("a run ends with a result")
        return run.result

    async def undo(self) -> tuple[str, ...]:
        """Takes back what the last turn changed that is not taken back yet; the files. Raises CallerError."""
        left = [turn for turn in self._turns if not turn.undone]
        if not left:
            raise CallerError("there is nothing to take back", hint=self._unkept)
        files = await take_back(await self._states(), left[-1:])
        self._undone(left[-1:])
        self._notes.append(_taken_back(files))
        self._record.add(Prompted(self._notes[-1]))
        return files

    async def diff(self) -> str:
        """What the files differ in from those before the chat's first change, as a patch."""
        return await (await self._states()).diff(self._turns[0].before) if self._turns else ""

    def clear(self) -> None:
        """Forgets the conversation; files stay as they are."""
        self._history.clear()
        self._notes.clear()
        self.workspace.seen = Seen()
        self._record.add(RolledBack(0))

    def set_rights(self, name: str) -> None:
        """Raises CallerError for rights that there are not."""
        self.rights = rights_of(name, "/mode")

    def tools(self) -> list[tuple[str, str, bool]]:
        """What the model is offered: the name, what it does, and whether all of it runs without asking."""
        policy = self._policy()
        return [
            (invoker.name, invoker.description.partition("\n")[0], _is_free(policy, invoker))
            for each in self._ensembles()
            for invoker in each.invokers.values()
        ]

    async def close(self, state: Any, reason: str = "", error: str = "") -> None:
        """Writes down how the chat ended, and what has come of it."""
        output = {**self.job.output}
        if self._turns:
            with suppress(CallboardError, OSError):
                output["diff"] = (await self.diff())[:MAX_DIFF]
        self._update(state=state, reason=reason, error=error, output=output)

    def tell(self, text: str) -> None:
        self._step(Told(text))

    def wait(self) -> None:
        """The user's turn."""
        self._update(state="waiting", reason="for the user")

    # A turn

    def _agent(self) -> Agent:
        assignment = self._assignment
        coding = assignment.settings.coding
        mode = coding.modes.get("chat")
        rounds = assignment.rounds or (mode.rounds if mode else None) or coding.limits.max_inference_runs or ROUNDS
        text = ""
        with suppress(OSError):
            text = self.workspace.files.read(INSTRUCTIONS, MAX_FILE).decode("utf-8", "replace")
        return Agent(
            self._model,
            ensembles=self._ensembles(),
            instructions=instructions(coding.project, text),
            limits=Limits(rounds=rounds, errors=None),
            policy=self._policy(),
            approve=self._approve,
            before_call=self._before,
            after_call=self._after,
            answer_after="model",
            repeats="tell",
            view=self._view,
            at_once=1,
            stage=Fabricated,
        )

    def _ensembles(self) -> list[Ensemble]:
        names = actions(_FEW if self._single else _ALL)
        offered = [name for name in names if self.rights != "read-only" or name in _FREE]
        return [ensemble(self.workspace, offered, single=self._single), self._kept.ensemble()]

    def _policy(self) -> Policy:
        return _Policies(self._assignment, self._approver, self.rights, self.workspace)

    async def _approve(self, invocation: InvocationCanister, why: str) -> Verdict:
        """Asks, and shows what an edit would do. One that would fail is not asked about: see `_before`."""
        invoker = self._invoker(invocation)
        rehearsal = await rehearse(invoker, invocation)
        if rehearsal is not None and rehearsal.error:
            self._failing.add(invocation.identifier)
            return "allow"
        return await self._ask(invocation, why, rehearsal.diff if rehearsal else "")

    async def _before(self, invocation: InvocationCanister) -> ResultCanister | None:
        """Before a call that may run: what would fail may not by now, and a change needs a state to go back to."""
        identifier = invocation.identifier
        if identifier in self._failing:
            rehearsal = await rehearse(self._invoker(invocation), invocation)
            if rehearsal is not None and rehearsal.error:
                self.workspace.seen = rehearsal.seen
                return rehearsal.result
            why = f"{invocation.name} is asked about"
            if await self._ask(invocation, why, rehearsal.diff if rehearsal else "") != "allow":
                return error_result(
                    identifier, "permission", f"{invocation.name} may not run: the answer was no"
                )
        if self._turn is None and single_action(invocation.name, invocation.arguments or {}) not in _STILL:
            await self._begin_changes()
        return None

    async def _after(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister | None:
        limit = self._assignment.settings.coding.context.result_limit(invocation.name)
        text = result.text
        if len(text) <= limit or not all(isinstance(each, TextualContent) for each in result.content):
            return None
        return msgspec.structs.replace(result, content=contents(cut(self._kept, invocation.name, text, limit)))

    async def _ask(self, invocation: InvocationCanister, why: str, diff: str) -> Verdict:
        invoker = self._invoker(invocation)
        given = invoker.understood(invocation.arguments or {})
        about = {name: given.get(name) for name, subject in invoker.subjects.items() if subject == "command"}
        self._update(state="waiting", reason=f"asks whether {invocation.name} may run")
        try:
            return await self._approver(invocation, why, diff=diff, pattern=pattern_of(invocation.name, about))
        finally:
            self._update(state="running", reason="")

    def _invoker(self, invocation: InvocationCanister) -> Invoker:
        return next(
            each.access_invoker(invocation.name)
            for each in self._ensembles()
            if invocation.name in each.invokers
        )

    # Its changes

    async def _states(self) -> Snapshots:
        if self._snapshots is None:
            self._snapshots = await open_snapshots(self._assignment.directory, self._folder)
        return self._snapshots

    async def _begin_changes(self) -> None:
        """Keeps the tree as it is before the first change of a turn."""
        if self._unkept:
            return
        try:
            before = await (await self._states()).take(self._label[:100])
        except CallerError as error:
            self._unkept = str(error)
            self.tell(f"changes cannot be taken back: {error}")
            return
        self._turn = Turn(before)
        # On disk before anything changes: whatever becomes of the process, the way back is known.
        self._update(output=self._output([*self._turns, self._turn]))

    async def _end_turn(self) -> None:
        if self._turn is not None and self._snapshots is not None:
            with suppress(CallboardError):
                after = await self._snapshots.take("after the turn")
                files = await changed(self._snapshots, self._turn.before, after)
                if files:
                    self._turns.append(msgspec.structs.replace(self._turn, after=after, files=files))
        self._turn = None
        self.wait()

    def _undone(self, turns: Iterable[Turn]) -> None:
        gone = [*turns]
        self._turns = [msgspec.structs.replace(each, undone=True) if each in gone else each for each in self._turns]
        self._update(output=self._output(self._turns))

    # Its record

    def _take(self, run: Run) -> None:
        result = run.result
        if result is None:
            return
        self._history += result.canisters
        self.rounds += result.rounds
        self.usage += result.usage
        self.cost = None if result.cost is None else (self.cost or 0.0) + result.cost
        calls = sum(isinstance(each, InvocationCanister) for each in result.canisters)
        said = [each.text for each in result.canisters if isinstance(each, AssistantCanister) and each.text]
        output = self._output(self._turns)
        if said:
            output["summary"] = said[-1]
        self._update(
            rounds=self.rounds,
            calls=self.job.calls + calls,
            usage={name: getattr(self.usage, name) for name in ("input", "output", "cached")},
            output=output,
        )

    def _output(self, turns: Iterable[Turn]) -> dict[str, Any]:
        told = [*turns]
        files = sorted({path for turn in told if not turn.undone for path in turn.files})
        return {**self.job.output, "turns": msgspec.to_builtins(told), "files": files, "cost": self.cost}

    def _step(self, step: Step) -> None:
        self._record.add(step)
        self._show(step)

    def _update(self, **changes: Any) -> None:
        self.job = self._jobs.update(self.job, **changes)


class _Policies(Policy):
    """The policy of a chat: what looks is free, the rest is asked about, unless the rights or a rule say otherwise."""

    def __init__(self, assignment: Assignment, approver: Approver, rights: Rights, workspace: Workspace) -> None:
        super().__init__()
        self._assignment = assignment
        self._approver = approver
        self._rights = rights
        self._root = str(workspace.root)

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Any:
        default, *rules = _rules(self._assignment, self._approver.rules)
        asks = self._rights != "full" and single_action(invoker.name, arguments or {}) not in _FREE
        first = Rule("*", "ask") if asks else default
        permission, why = Policy([first, *rules], root=self._root).decide(invoker, arguments)
        if asks and permission == "ask" and repr(first.pattern) in why:
            why = f"{invoker.name} is asked about"
        return permission, why


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

    Its job is completed at the end; failed of a CallboardError or OSError, cancelled by a cancellation.
    """
    given = assignment.given
    job = resume or jobs.create("chat", "", assignment.directory, model=model.name, given=given)
    folder = jobs.folder(job.id)
    with jobs.running(job.id), Record(folder) as record:
        job = jobs.update(job, state="running", reason="", error="", completed_at=None, model=model.name)
        history = folded(replayed(folder)) if resume else []
        workspace = _workspace(assignment, folder)
        await workspace.connect()
        chat = Chat(assignment, model, job, jobs, record, workspace, show, approver, history=history)
        try:
            chat.wait()
            yield chat
            await chat.close("completed")
        except asyncio.CancelledError:
            await asyncio.shield(chat.close("cancelled", "ended by a signal"))
            raise
        except (CallboardError, OSError) as error:
            await chat.close("failed", str(error), str(error))
            raise
        finally:
            await workspace.disconnect()


async def undo_chat(job: Job, jobs: Jobs) -> str:
    """Makes the files that a chat changed what they were before its first change; what was done, in words.

    Raises CallerError if it is under way, or if somebody else has changed one of them since.
    """
    folder = jobs.folder(job.id)
    with jobs.running(job.id):
        turns = turns_of(job.output)
        left = [turn for turn in turns if not turn.undone]
        if not left:
            return f"{job.id} changed nothing" if not turns else f"the changes of {job.id} are taken back already"
        files = await take_back(await open_snapshots(Path(job.directory), folder), left)
        undone = [msgspec.structs.replace(turn, undone=True) for turn in turns]
        jobs.update(job, output={**job.output, "turns": msgspec.to_builtins(undone), "files": [], "diff": ""})
        with Record(folder) as record:
            record.add(Prompted(_taken_back(files)))
    return f"as before the chat: {', '.join(files)}" if files else f"{job.id} left nothing changed"


def folded(steps: Iterable[Step]) -> list[Canister]:
    """The conversation that was recorded; a call whose result is missing has one that says so."""
    done: list[Canister] = []
    reply: list[Canister] = []
    prompts: list[str] = []
    calls: dict[str, None] = {}
    fold = Fold()

    def settle() -> None:
        done.extend([*reply, *fold.finish("cancelled")])
        calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
        reply.clear()
        done.extend([error_result(each, "cancelled", "the run was cancelled") for each in calls])
        calls.clear()

    def prompt() -> None:
        if prompts:
            done.append(UserCanister(contents("\n\n".join(prompts))))
            prompts.clear()

    for step in steps:
        match step:
            case Prompted(text=text):
                settle()
                prompts.append(text)
            case RoundStarted():
                prompt()
            case RolledBack(to=to):
                settle()
                prompts.clear()
                del done[to:]
            case ReplyEnded(reason="retry"):
                fold.finish()
                reply.clear()
            case ReplyEnded() | ReplyFailed():
                reply += fold.feed(step)
                done += reply
                calls.update({each.identifier: None for each in reply if isinstance(each, InvocationCanister)})
                reply.clear()
            case ResultReady(canister=canister):
                calls.pop(canister.invocation_id, None)
                done.append(canister)
            case RunEnded():
                settle()
            case msgspec.Struct() if step.__struct_config__.tag not in _NO_EVENTS:
                reply += fold.feed(step)  # type: ignore[arg-type]  # what is left are events
            case _:
                pass
    settle()
    prompt()
    return done


_NO_EVENTS: Final = frozenset({"phase_started", "phase_ended", "told"})


def rights_of(name: str, path: str) -> Rights:
    """Raises CallerError for a name that is none."""
    for each in _RIGHTS:
        if each == name:
            return each
    raise CallerError(f"no rights {name!r}", path=path, hint=f"there are {', '.join(_RIGHTS)}")


def cut(kept: KeptResults, tool: str, text: str, limit: int) -> str:
    """A result, cut at the end of a line; the whole of it is kept, and the model is told how to read on."""
    head = text[:limit]
    line_end = head.rfind("\n")
    head = head[:line_end] if line_end > limit // 2 else head
    identifier = kept.keep(text)
    offset = len(head.encode("utf-8", "replace"))
    return (
        f"{head}\n[Output of {tool} truncated: ~{(len(text) - len(head)) // 4} more tokens. "
        f'Read on with {READ_RESULT}(identifier="{identifier}", offset={offset})]'
    )


def _is_free(policy: Policy, invoker: Invoker) -> bool:
    choices = invoker.arguments_schema.get("properties", {}).get("action", {}).get("enum", [None])
    asked: list[Mapping[str, Any]] = [{"action": each} if each else {} for each in choices]
    return all(policy.decide(invoker, each)[0] == "allow" for each in asked)


def _taken_back(files: Iterable[str]) -> str:
    return f"(The user took your changes back. These files are again as they were before: {', '.join(files)}.)"


def _workspace(assignment: Assignment, folder: Path) -> Workspace:
    """The user's own tree; where there is no sandbox, commands are refused one by one."""
    coding: CodingSettings = assignment.settings.coding
    home = folder / "home"
    home.mkdir(exist_ok=True, mode=0o700)
    return Workspace(
        assignment.directory,
        prefer="none" if assignment.without_sandbox else "",
        confinement=Confinement(
            workspace=assignment.directory,
            kept=KEPT,
            readable=tuple(Path(each).expanduser() for each in coding.sandbox.readable),
            home=home,
            hosts=coding.sandbox.hosts,
            limits=CommandLimits(
                seconds=coding.limits.command_seconds,
                memory=coding.limits.command_memory_mb * 1024 * 1024,
                processes=coding.limits.command_processes,
            ),
        ),
    )
