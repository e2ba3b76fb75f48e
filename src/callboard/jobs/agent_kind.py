"""The kind "agent": a job is one run of an agent.

A job names its agent by reference: `module:attribute` or `path.py:attribute`. An import runs code, and others may write
to the database, so no reference from a row is imported. A worker imports the agents that it was started with, and the
process that submits a job imports its agent. The agent's limits apply to the whole job. If the agent has no `approve`,
a call that needs approval waits for an answer. A call whose result comes from outside also waits.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Container, Mapping
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from callboard import core
from callboard.agent import Agent
from callboard.agent.resume import find_waiting_calls
from callboard.agent.run import Run
from callboard.errors import CallerError
from callboard.jobs.job import Completed, DurableJob, Failed, GoesOn, JobKind, Outcome, Waits, WaitsFor
from callboard.jobs.journal import JobJournal
from callboard.jobs.segment import JobSegment, may_pass
from callboard.loop import GO_ON, Limits, ends_with_model
from callboard.providers import open_model

KIND: Final = "agent"
_HINT: Final = "write module:attribute or path.py:attribute, such as my_app.agents:reviewer"


class AgentInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Input of an agent's job. `limits` and the name of a `model` replace those of the agent."""

    agent: str
    prompt: core.UserCanister
    history_length: int = 0
    """Number of leading entries from an earlier conversation."""
    auxdata: dict[str, Any] = {}
    limits: Limits | None = None
    model: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the input as JSON for the job's row. Raises CallerError if the auxdata is not JSON."""
        try:
            values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        except (TypeError, ValueError, RecursionError) as error:
            raise CallerError(f"it is not JSON: {error}", path="auxdata") from None
        return values


class AgentKind(JobKind):
    """Runs the jobs of `agents`, a mapping from references to agents."""

    name = KIND

    def __init__(self, agents: Mapping[str, Agent[Any]]) -> None:
        self.agents = agents

    def find_obstacle(self, job: DurableJob) -> str:
        reference = job.input.get("agent", "")
        if reference in self.agents:
            return ""
        return f"the worker that took it does not know its agent; start: callboard worker --agents {reference}"

    def find_model(self, job: DurableJob) -> str:
        """Return the model of the agent, because the submitter may know only the agent's reference."""
        agent = self.agents.get(job.input.get("agent", ""))
        return agent.model.name if agent is not None else ""

    async def run(self, segment: JobSegment) -> Outcome:
        job_input = msgspec.convert(segment.job.input, AgentInput)
        agent = self.agents[job_input.agent]
        if not job_input.model:
            return await self._run(segment, job_input, agent, agent.model)
        from callboard.jobs.shared_database import check_options  # noqa: PLC0415  # it imports the coding agents

        check_options({"model": job_input.model}, segment.claim.database)
        async with aclosing(await asyncio.to_thread(open_model, job_input.model)) as model:
            return await self._run(segment, job_input, agent, model)

    async def _run(
        self, segment: JobSegment, job_input: AgentInput, agent: Agent[Any], model: core.Model | None
    ) -> Outcome:
        if model is not None:
            segment.check_price(model)
        history = [*segment.conversation]
        prompt: core.UserCanister | str = job_input.prompt
        start = None
        if len(history) > job_input.history_length:
            # A run that was rolled back to its history starts again. The copied entries of a fork are its rounds.
            prompt = ""
            start = core.RunProgress(history_length=job_input.history_length, rounds=segment.job.rounds)
        journal = JobJournal(segment, start=start)
        if start is None:
            journal.progress = None
        elif journal.is_reopened and ends_with_model(history):
            history.append(core.UserCanister(GO_ON))
            await segment.claim.append(history[-1:])
        approvals, results = journal.answers(find_waiting_calls(history))
        run = agent.stream(
            prompt,
            model=model if job_input.model else None,
            history=history,
            journal=journal,
            approvals=approvals,
            results=results,
            auxdata=job_input.auxdata,
            limits=job_input.limits,
            approve=agent.approve or (lambda *_: "defer"),
        )
        return await _drive(run, segment, journal, approvals)


async def _drive(run: Run[Any], segment: JobSegment, journal: JobJournal, recorded: Container[str]) -> Outcome:
    """Drive the run. Record the answers of the agent's callback, except answers to the `recorded` calls."""
    reasons: dict[str, str] = {}
    rounds = 0
    async with run:
        async for event in run:
            segment.publish(event)
            answer = event
            while isinstance(answer, core.Nested):
                answer = answer.event
            if isinstance(answer, core.ApprovalAnswered) and answer.verdict != "defer":
                if answer.invocation.identifier not in recorded or answer is not event:
                    await segment.claim.append([answer])
            elif isinstance(event, core.ApprovalAsked):
                reasons[event.invocation.identifier] = event.why
            elif isinstance(event, core.RoundStarted):
                # All earlier rounds are committed, and the next request is not sent yet.
                if segment.should_leave(rounds):
                    return GoesOn()
                rounds += 1
            elif run.failure is not None and may_pass(run.failure):
                # Nothing of the reply is committed, so the next segment asks for it again.
                return await segment.wait_for_provider(run.failure)
    result = run.result
    if result.state == "pending":
        approvals = journal.ask(result.pending, reasons, run.find_schema)
        waits_for: WaitsFor = "question" if all(each.is_question for each in approvals) else "approval"
        return Waits(approvals=approvals, waits_for=waits_for, reason=result.why)
    if result.state == "completed":
        return Completed({"text": result.text})
    failure = run.failure
    error = "" if failure is None else str(failure)
    return Failed("" if error else result.why, error, {"text": result.text})


def load_agent(reference: str) -> Agent[Any]:
    """Import the agent of a reference.

    Raises:
        CallerError: The module or attribute does not exist, the import fails, or the attribute is not an Agent.
    """
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute:
        raise CallerError("not a reference to an agent", path=reference, hint=_HINT)
    try:
        module = _import_path(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise CallerError(f"its module cannot be imported: {type(error).__name__}: {error}", path=reference) from error
    agent = getattr(module, attribute, None)
    if not isinstance(agent, Agent):
        is_there = hasattr(module, attribute)
        problem = f"a {type(agent).__name__} is not an Agent" if is_there else f"its module has no {attribute}"
        raise CallerError(problem, path=reference, hint=_HINT)
    return agent


def _import_path(path: Path) -> ModuleType:
    """Import the module of a file. Do not import the file of the running script again."""
    resolved = path.resolve()
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == resolved:
        return main
    name = f"callboard_agents_{resolved.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
