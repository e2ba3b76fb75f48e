"""Finds the job of an AG-UI client's request: a new job, or one that waits for the client's answer.

Identifiers of messages and interrupts begin with the identifier of their job, so the client's identifiers lead to the
job. If the client sends other identifiers, a new job begins with the conversation in the request.

Laws: only its owner can continue a job, and only in its own thread. A job continues only with answers to everything
that it waits for. A call runs only if the client names it.

The job kind "agui": a job is one turn of a conversation between an AG-UI client and an agent.

The agent is one that this server serves. The client's tools and context are in the job's input, so that the job
survives the client, the connection and this process.

Jobs of a gateway's clients count against two budgets: the budget of the key and the daily budget.

Budgets are checked before a segment and before each round. The cost of a reply is added when the reply has ended. A run
therefore fails after the reply that used up a budget, and new requests are refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from callboard.agent import Agent
from callboard.core import Canister, SupervisorCanister, UserCanister
from callboard.errors import CallerError
from callboard.jobs.agent_kind import AgentInput, AgentKind
from callboard.jobs.entries import read_conversation
from callboard.jobs.job import QUEUE, Approval, DurableJob, Failed, JobKind, Outcome
from callboard.jobs.segment import JobSegment
from callboard.jobs.store import DurableStore
from callboard.servers.agui.encoder import AguiEncoder, InterruptAnswer, interrupt_id, job_of_interrupt, read_answer
from callboard.servers.agui.run_input import (
    AguiAssistantMessage,
    AguiReasoningMessage,
    AguiTool,
    AguiToolCall,
    AguiToolMessage,
    AguiUserMessage,
    AnyMessage,
    RunInput,
    client_ensemble,
    message_text,
    read_context,
    read_messages,
)
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.spending import Spending


class KeyBudget:
    """Remaining budget of one key."""

    setting = "budget_per_day, key_budgets"

    def __init__(self, spending: Spending, owner: str) -> None:
        self.refusal = ""
        """Why requests are refused, as of the last check."""
        self._spending = spending
        self._owner = owner

    @property
    def is_spent(self) -> bool:
        """True if the budget is used up, or if the store does not answer."""
        return bool(self.refusal)

    async def add(self, dollars: float) -> None:
        """Add the cost of a reply, and check the remaining budget."""
        self._spending.charge(self._owner, dollars)
        await self.look()

    async def look(self) -> None:
        try:
            await self._spending.check(self._owner)
        except HttpError as error:
            self.refusal = error.failure.message
        else:
            self.refusal = ""


KIND: Final = "agui"
_OPTIONS: Final = "agui"
"""Key of the client's data in the input of a job and in the auxdata of its tools."""


class AguiOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about the client in the input of a job."""

    owner: str
    """Owner of the job. Nobody else can continue it."""
    thread_id: str
    tools: list[AguiTool] = []

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset([each.name for each in self.tools])


def agui_queue(agent: str) -> str:
    """Return the queue of an agent's jobs. Only AG-UI servers serve it."""
    return f"{QUEUE}-agui:{agent}"


def thread_partition(owner: str, thread_id: str) -> str:
    """Return the partition of a thread. The jobs of a thread run one at a time."""
    return f"agui-{hashlib.sha256(msgspec.json.encode([owner, thread_id])).hexdigest()}"


def read_options(job: DurableJob) -> AguiOptions:
    """Read the facts about the client from the input of a job."""
    return msgspec.convert(job.input.get(_OPTIONS, {}), AguiOptions)


def split_conversation(run_input: RunInput) -> tuple[list[Canister], UserCanister]:
    """Split the conversation into the history and the prompt. If the last message is a result, the prompt is empty.

    Raises:
        CallerError: See `read_messages`.
    """
    messages: Sequence[Any] = run_input.messages
    prompt = UserCanister(())
    if messages and isinstance(messages[-1], AguiUserMessage) and messages[-1].subagent_run_id is None:
        (prompt,) = read_messages(messages[-1:])  # type: ignore[assignment]  # one message of the user
        messages = messages[:-1]
    return [*read_context(run_input.context or ()), *read_messages(messages)], prompt


def job_input(agent: str, owner: str, run_input: RunInput, prompt: UserCanister, history_length: int) -> dict[str, Any]:
    """Make the input of a job. Raises CallerError if the client's data is not valid JSON."""
    shared = {"threadId": run_input.thread_id, "state": run_input.state, "forwardedProps": run_input.forwarded_props}
    fields = AgentInput(agent=agent, prompt=prompt, history_length=history_length, auxdata={_OPTIONS: shared})
    options = AguiOptions(owner=owner, thread_id=run_input.thread_id, tools=run_input.tools or [])
    return {**fields.to_json(), _OPTIONS: msgspec.to_builtins(options)}


class AguiKind(JobKind):
    """Runs jobs of the given agents, by the names that the server uses. `spending` limits the costs."""

    name = KIND

    def __init__(self, agents: Mapping[str, Agent[Any]], spending: Spending | None = None) -> None:
        self._agents = agents
        self._spending = spending

    def find_obstacle(self, job: DurableJob) -> str:
        """Return an obstacle if this server does not serve the job's agent."""
        agent = job.input.get("agent", "")
        return "" if agent in self._agents else f"the server that claimed it does not serve {agent!r} with --agui"

    async def run(self, segment: JobSegment) -> Outcome:
        """Continue the run until it ends, waits, or yields to the next segment."""
        name = segment.job.input["agent"]
        agent = self._agents[name]
        options = read_options(segment.job)
        if self._spending is not None and self._spending.has_budget(options.owner):
            budget = KeyBudget(self._spending, options.owner)
            await budget.look()
            if budget.is_spent:
                return Failed(budget.refusal)
            segment.budgets.append(budget)
        if options.tools:
            agent = agent.add_ensemble(client_ensemble(options.tools))
        return await AgentKind({name: agent}).run(segment)


log = logging.getLogger("callboard.agui")

_UNANSWERED: Final = "the run waits for it"


class AguiRun(NamedTuple):
    """A run that begins: its job, the number of the last entry that the client knows, and its encoder."""

    job: DurableJob
    after: int
    encoder: AguiEncoder


class ThreadRuns:
    """The runs of one client in one store.

    Args:
        store: The jobs.
        agents: The available agents, by the names that the server uses.
    """

    def __init__(self, store: DurableStore, agents: Mapping[str, Agent[Any]]) -> None:
        self._store = store
        self._agents = agents

    async def begin(self, agent: str, owner: str, run_input: RunInput) -> AguiRun:
        """Begin a new run, or continue the run that waits.

        Args:
            agent: The server's name of the agent.
            owner: Owner of the request.
            run_input: Input of the run.

        Raises:
            CallerError: The request is not valid; the path names the part of the input.
            DatabaseUnavailable: The job could not be queued.
        """
        if run_input.resume:
            job = await self._find_interrupted(owner, run_input)
            return await self._go_on(job, owner, run_input)
        waiting = await self._find_waiting(owner, run_input)
        if waiting is None:
            return await self._submit(agent, owner, run_input)
        options = read_options(waiting)
        interrupts = [each for each in await self._open_approvals(waiting) if not _is_clients(each, options)]
        if interrupts:
            names = ", ".join([interrupt_id(each, waiting.id) for each in interrupts])
            raise CallerError(f"{_UNANSWERED}: {names}", path="resume", hint="answer each interrupt of the last run")
        if isinstance(run_input.messages[-1], AguiToolMessage):
            return await self._go_on(waiting, owner, run_input)
        # The user sent another message: the conversation continues from the client's version of it.
        run = await self._submit(agent, owner, run_input)
        await self._store.request_cancel(waiting.id, "the conversation continued without it")
        return run

    async def _submit(self, agent: str, owner: str, run_input: RunInput) -> AguiRun:
        history, prompt = split_conversation(run_input)
        if not (history or prompt.content):
            raise CallerError("there is nothing to ask", path="messages", hint="send a message of the user")
        served = self._agents[agent]
        if served.instructions:
            # The agent's own instructions go here. Instructions of a client do not replace them.
            history.insert(0, SupervisorCanister(by_agent=True))
        tools = run_input.tools or []
        known = served.registry
        for place, tool in enumerate(tools):
            if tool.name in known:
                raise CallerError("the agent has a tool of that name", path=f"tools[{place}].name")
        client_ensemble(tools)
        job = await self._store.create(
            KIND,
            description=prompt.text,
            model=served.model.name,
            input=job_input(agent, owner, run_input, prompt, len(history)),
            items=history,
            queue=agui_queue(agent),
            partition=thread_partition(owner, run_input.thread_id),
        )
        # The client has its own prompt. The run writes it as its first entry.
        after = len(history) + bool(prompt.content)
        return AguiRun(job, after, _encoder(job, run_input, after))

    async def _go_on(self, job: DurableJob, owner: str, run_input: RunInput) -> AguiRun:
        """Answer everything that a job waits for."""
        options = read_options(job)
        answers = _read_answers(job, options, await self._open_approvals(job), run_input)
        conversation = read_conversation([each.item for each in await self._store.read_entries(job.id)])
        encoder = _encoder(job, run_input, len(conversation))
        for each in answers:
            by = f"key {owner}" if owner else "client"
            await self._store.answer(job.id, **msgspec.structs.asdict(each), by=by, via="AG-UI")
        return AguiRun(job, job.entries, encoder)

    async def _find_interrupted(self, owner: str, run_input: RunInput) -> DurableJob:
        names = dict.fromkeys([job_of_interrupt(each.interrupt_id) for each in run_input.resume or ()])
        jobs = [job for name in names if (job := await self._find(name, owner, run_input.thread_id)) is not None]
        waiting = [each for each in jobs if each.state == "waiting"]
        if len(waiting) == 1:
            return waiting[0]
        if jobs and not waiting:
            calls = {each.interrupt_id.rpartition(":")[0] for each in run_input.resume or ()}
            answers = await self._store.read_answers(jobs[0].id)
            descriptions = [
                each.describe() for each in answers if f"{jobs[0].id}/{each.invocation.identifier}" in calls
            ]
            before = f"; it was answered already: {'; '.join(descriptions)}" if descriptions else ""
            raise CallerError(f"the run is {jobs[0].state}, so nothing is asked any more{before}", path="resume")
        what = "several runs" if waiting else "no run of this thread"
        raise CallerError(f"{what} asked for these answers", path="resume", hint="answer the last run")

    async def _find_waiting(self, owner: str, run_input: RunInput) -> DurableJob | None:
        """Return the job of the model's last message, if the job waits."""
        for message in reversed(run_input.messages):
            if isinstance(message, AguiAssistantMessage):
                job = await self._find(message.id.rpartition("-")[0], owner, run_input.thread_id)
                return job if job is not None and job.state == "waiting" else None
        return None

    async def _find(self, name: str, owner: str, thread_id: str) -> DurableJob | None:
        """Return the job with this name, if the caller owns it."""
        if not name:
            return None
        with suppress(CallerError):
            job = await self._store.get(name)
            if job.id == name and job.kind == KIND:
                options = read_options(job)
                return job if (options.owner, options.thread_id) == (owner, thread_id) else None
        return None

    async def _open_approvals(self, job: DurableJob) -> Sequence[Approval]:
        return [each for each in await self._store.read_approvals(job.id) if not each.verdict]


def _encoder(job: DurableJob, run_input: RunInput, canisters: int) -> AguiEncoder:
    return AguiEncoder(
        run_input.thread_id,
        run_input.run_id,
        parent_run_id=run_input.parent_run_id or "",
        job_id=job.id,
        messages=[msgspec.to_builtins(each) for each in run_input.messages],
        client_tools=read_options(job).tool_names,
        canisters=canisters,
    )


def _is_clients(approval: Approval, options: AguiOptions) -> bool:
    """True if the client itself runs the call."""
    return approval.is_question and approval.name in options.tool_names


def _read_answers(
    job: DurableJob, options: AguiOptions, approvals: Sequence[Approval], run_input: RunInput
) -> list[InterruptAnswer]:
    """Return an answer for each approval. Raises CallerError if an approval has no answer."""
    entries = {each.interrupt_id: (place, each) for place, each in enumerate(run_input.resume or ())}
    if len(entries) < len(run_input.resume or ()):
        raise CallerError("an interrupt is answered twice", path="resume")
    results = {each.tool_call_id: each for each in run_input.messages if isinstance(each, AguiToolMessage)}
    calls = _last_calls(run_input.messages)
    answers = []
    for approval in approvals:
        if _is_clients(approval, options):
            result = results.get(_client_call_id(approval, calls))
            if result is None:
                path = "messages"
                raise CallerError(f"there is no result of the call {approval.call_id!r}", path=path)
            answers.append(_read_result(approval, result))
            continue
        place, entry = entries.pop(interrupt_id(approval, job.id), (0, None))
        if entry is None:
            raise CallerError(f"{_UNANSWERED}: {interrupt_id(approval, job.id)}", path="resume")
        answers.append(read_answer(approval, entry.status, entry.payload, f"resume[{place}]"))
    if entries and len(entries) == len(run_input.resume or ()):
        raise CallerError("the run waits for nothing with this identifier", path="resume[0].interruptId")
    if entries:
        log.warning("%d answers of a run match no question", len(entries))
    return answers


def _last_calls(messages: Sequence[AnyMessage]) -> list[AguiToolCall]:
    calls: list[AguiToolCall] = []
    for message in reversed(messages):
        if message.subagent_run_id is not None or isinstance(message, AguiReasoningMessage):
            continue
        if isinstance(message, AguiAssistantMessage):
            calls += message.tool_calls or ()
        elif calls:
            break
    return calls


def _client_call_id(approval: Approval, calls: Sequence[AguiToolCall]) -> str:
    """Return the client's identifier of a call. It differs if the model reused the identifier of an earlier call."""
    names = [each.id for each in calls if each.function.name == approval.name]
    if approval.call_id in names:
        return approval.call_id
    return next((each for each in names if each.rpartition("-")[0] == (approval.call_id or "call")), "")


def _read_result(approval: Approval, message: AguiToolMessage) -> InterruptAnswer:
    call_id, digest = approval.call_id, approval.digest
    if message.error is not None:
        return InterruptAnswer(call_id=call_id, digest=digest, verdict="deny", reason=message.error or "it failed")
    return InterruptAnswer(call_id=call_id, digest=digest, text=message_text(message))
