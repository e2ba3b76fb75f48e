"""The kind "agui": a job is one conversation's turn of an agent that a client of AG-UI asks.

The agent is one that this server was told. What the client offers beside it, its own tools and what the model should
know, is in the job's input, so that the job survives the client, the connection and this process.

The budgets of a gateway, for the jobs that its clients began: that of the key, and that of the day.

They are compared before a segment and before each round, and what a reply cost is added when it has ended. So a run that
finds them spent fails, as a request is refused, after the reply that spent them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.agent import Agent
from callboard.core import Canister, UserCanister
from callboard.jobs.agent_kind import AgentInput, AgentKind
from callboard.jobs.job import QUEUE, CallIntent, DurableJob
from callboard.jobs.kinds import Failed, Outcome
from callboard.jobs.segment import JobSegment
from callboard.servers.agui.run_input import (
    AguiTool,
    AguiUserMessage,
    RunInput,
    client_ensemble,
    read_context,
    read_messages,
)
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.spending import Spending


class KeyBudget:
    """What is left to one key."""

    setting = "budget_per_day, key_budgets"

    def __init__(self, spending: Spending, owner: str) -> None:
        self.refusal = ""
        """Why nothing may be asked for, as of the last look."""
        self._spending = spending
        self._owner = owner

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, or the store does not tell."""
        return bool(self.refusal)

    async def add(self, dollars: float) -> None:
        """Add what a reply cost, and look what is left."""
        self._spending.charge(self._owner, dollars)
        await self.look()

    async def look(self) -> None:
        """Look what is left."""
        try:
            await self._spending.check(self._owner)
        except HttpError as error:
            self.refusal = error.failure.message
        else:
            self.refusal = ""


KIND: Final = "agui"
_OPTIONS: Final = "agui"
"""Where the input of a job, and the auxdata of its tools, have what is the client's."""


class AguiOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the input of a job says of its client."""

    owner: str
    """Who asked: nobody else may go on with it."""
    thread_id: str
    tools: list[AguiTool] = []

    @property
    def tool_names(self) -> frozenset[str]:
        """The tools that the client runs itself."""
        return frozenset([each.name for each in self.tools])


def agui_queue(agent: str) -> str:
    """The queue of the jobs of an agent; it is served by servers of AG-UI alone."""
    return f"{QUEUE}-agui:{agent}"


def thread_partition(owner: str, thread_id: str) -> str:
    """Of the jobs of a thread one runs at a time."""
    return f"agui-{hashlib.sha256(msgspec.json.encode([owner, thread_id])).hexdigest()}"


def read_options(job: DurableJob) -> AguiOptions:
    """What the input of a job says of its client."""
    return msgspec.convert(job.input.get(_OPTIONS, {}), AguiOptions)


def split_conversation(run_input: RunInput) -> tuple[list[Canister], UserCanister]:
    """What was said before, and what is asked now, which is nothing where the client's last word is a result.

    Raises:
        CallerError: As `read_messages`.
    """
    messages: Sequence[Any] = run_input.messages
    prompt = UserCanister(())
    if messages and isinstance(messages[-1], AguiUserMessage) and messages[-1].subagent_run_id is None:
        (prompt,) = read_messages(messages[-1:])  # type: ignore[assignment]  # one message of the user
        messages = messages[:-1]
    return [*read_context(run_input.context or ()), *read_messages(messages)], prompt


def job_input(agent: str, owner: str, run_input: RunInput, prompt: UserCanister, history_length: int) -> dict[str, Any]:
    """The input of a job. Raises CallerError where what the client sent is no JSON."""
    shared = {"threadId": run_input.thread_id, "state": run_input.state, "forwardedProps": run_input.forwarded_props}
    fields = AgentInput(agent=agent, prompt=prompt, history_length=history_length, auxdata={_OPTIONS: shared})
    options = AguiOptions(owner=owner, thread_id=run_input.thread_id, tools=run_input.tools or [])
    return {**fields.to_json(), _OPTIONS: msgspec.to_builtins(options)}


class AguiKind:
    """Runs jobs of the agents that it is given, by what the server calls them; `spending` bounds what they cost."""

    name = KIND

    def __init__(self, agents: Mapping[str, Agent[Any]], spending: Spending | None = None) -> None:
        self._agents = agents
        self._spending = spending

    def find_obstacle(self, job: DurableJob) -> str:
        """That its agent is none of those that are served here."""
        agent = job.input.get("agent", "")
        return "" if agent in self._agents else f"the server that took it does not serve {agent!r} as --agui"

    def find_model(self, _job: DurableJob) -> str:
        """None: a row of the kind says so."""
        return ""

    async def run(self, segment: JobSegment) -> Outcome:
        """Go on with the run until it ends, waits, or gives way to the next segment."""
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

    async def describe_interruption(self, segment: JobSegment, call: CallIntent) -> str:
        """Nothing can be seen of what a function did."""
        return ""
