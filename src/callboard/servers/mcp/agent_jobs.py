"""The jobs of the coding agents that the clients of an MCP server may see and change.

The jobs run in a worker, a separate process that is started if none runs. They continue after the client and the
server have ended.

Laws: a client reaches only jobs of the served agents in the operator's directory, by their full names. The operator
chooses the directory, the model and the access of a job, never the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from callboard.coding.agents.job_request import MAX_LOGS, JobRequest
from callboard.configuration import Settings
from callboard.core import ApprovalAnswered
from callboard.errors import CallerError
from callboard.jobs.coding_kind import KINDS, settle_cancelled, submit_request
from callboard.jobs.database import Database
from callboard.jobs.job import Approval, DurableJob
from callboard.jobs.store import DurableStore
from callboard.servers.mcp.agent_job_tools import JobAnswer, decode_answer, encode_question, question_key
from callboard.servers.mcp.client_proxy import KEY, McpClientProxy
from callboard.tools import Context

SubmitJob: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[DurableJob]]
"""Queues a job of an agent, by name, with the arguments of a client."""

PEOPLE: Final = frozenset({"approval", "question"})
"""Kinds of waiting that a person can end."""

LOOK_SECONDS: Final = 0.25
"""Seconds between polls of a job."""
START_SECONDS: Final = 45.0
"""Seconds that a worker gets to start before another one is started. Shorter than a worker waits for jobs."""

_OMITTED: Final = frozenset({"diff", "turns", "text"})
"""Fields of an output that are omitted: they are in the job's branch, patch or summary."""
_NEXT: Final[Mapping[str, str]] = {
    "pending": "it waits for its turn: get_job waits for it and tells more",
    "running": "it runs: get_job waits for it and tells more",
    "waiting": "answer_job answers what it asks; a person can do so with callboard jobs, too",
    "interrupted": "a person can let it go on: callboard jobs resume",
}


class AgentJobs:
    """The jobs of the served agents in one directory.

    Args:
        store: The store of the jobs.
        directory: Directory of the operator.
        agents: Names of the agents, which are also the kinds of their jobs.
        submit: Queues a job.
        start_worker: Starts a worker unless one runs. Called in a thread.
    """

    def __init__(
        self,
        store: DurableStore,
        directory: str,
        agents: Sequence[str],
        submit: SubmitJob,
        start_worker: Callable[[], object],
    ) -> None:
        self._store = store
        self._directory = directory
        self.agents = tuple(agents)
        self._submit = submit
        self._start_worker = start_worker
        self._next_start = 0.0

    async def submit(self, agent: str, arguments: Mapping[str, Any]) -> DurableJob:
        """Queue a job of an agent with the arguments of a client. Raises CallerError."""
        return await self._serve(await self._submit(agent, arguments))

    async def get(self, identifier: str) -> DurableJob:
        """Return the job with this full name. Raises CallerError if it does not exist or clients may not see it."""
        job = await self._store.get(identifier)
        # The store also accepts a prefix of a name; with it, a client could find jobs that it does not know.
        if job.id != identifier or job.kind not in self.agents or job.directory != self._directory:
            raise CallerError("no such job", path=identifier, hint="give the whole name that its tool gave you")
        return await self._serve(job)

    async def cancel(self, job: DurableJob) -> DurableJob:
        """Cancel a job, unless it has ended. If no worker has the job, its worktree is removed here."""
        cancelled = await self._store.request_cancel(job.id, "cancelled by an MCP client")
        with suppress(CallerError):  # its repository may be gone, and its worker may be about to do the same
            await settle_cancelled(cancelled)
        return cancelled

    async def describe(self, job: DurableJob) -> dict[str, Any]:
        """Describe the job for the client's model, with its questions and the answers of people."""
        return describe_job(job, await self._read_questions(job), await self._store.read_answers(job.id))

    # The tools

    async def get_job(self, context: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until the job has ended or asks something, and describe it."""
        peer: McpClientProxy = context.auxdata[KEY]
        loop = asyncio.get_running_loop()
        end = loop.time() + arguments["wait_seconds"]
        entries = -1
        while True:
            job = await self.get(arguments["job"])
            if job.has_ended or await self._read_questions(job) or loop.time() >= end:
                return await self.describe(job)
            if job.entries > entries:
                entries = job.entries
                await peer.progress(entries, message=describe_progress(job))
            await asyncio.sleep(LOOK_SECONDS)

    async def answer_job(self, context: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the job's question after the client's user agrees."""
        job = await self.get(arguments["job"])
        questions = await self._read_questions(job)
        question = next((each for each in questions if each.call_id == arguments["call"]), None)
        if question is None:
            hint = f"it is {job.state}; get_job tells what it asks"
            raise CallerError("the job does not ask about this call", path=arguments["call"], hint=hint)
        if question.digest != arguments["digest"]:
            hint = "get_job tells what it asks, and the digest of it"
            raise CallerError("the call is not the one of this digest", path=question.call_id, hint=hint)
        answer = JobAnswer(arguments["verdict"], arguments["reason"], arguments["text"])
        peer: McpClientProxy = context.auxdata[KEY]
        if answer.verdict == "allow":
            answer = await _confirm(peer, job, question, answer)
        answered = await self._store.answer(
            job.id, question.call_id, **answer._asdict(), digest=question.digest, by=peer.name, via="MCP"
        )
        return await self.describe(await self._serve(answered))

    async def cancel_job(self, _: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Cancel a job."""
        return await self.describe(await self.cancel(await self.get(arguments["job"])))

    async def _read_questions(self, job: DurableJob) -> list[Approval]:
        if job.state != "waiting" or job.waits_for not in PEOPLE:
            return []
        return [each for each in await self._store.read_approvals(job.id) if not each.verdict]

    async def _serve(self, job: DurableJob) -> DurableJob:
        """Return the job, and start a worker if its worker has died."""
        now = asyncio.get_running_loop().time()
        if job.state in {"pending", "running"} and now >= self._next_start:
            self._next_start = now + START_SECONDS
            await asyncio.to_thread(self._start_worker)
        return job


async def _confirm(peer: McpClientProxy, job: DurableJob, question: Approval, answer: JobAnswer) -> JobAnswer:
    """Ask the client's user about a call before it is allowed. A text may come from the model. Raises CallerError."""
    if question.is_question:
        if not answer.text:
            raise CallerError("a question is answered by a text", path="text")
        return answer
    if "elicitation" not in peer.can:
        hint = f"a person can: callboard jobs approve {job.id} {question.call_id}"
        raise CallerError("this client cannot ask its user, so nothing is allowed here", path=job.id, hint=hint)
    key = question_key(job.id, question)
    return decode_answer(question, (await peer.ask({key: encode_question(question)}))[key])


def describe_job(
    job: DurableJob, questions: Sequence[Approval] = (), answers: Sequence[ApprovalAnswered] = ()
) -> dict[str, Any]:
    """Describe the job for the client's model. Empty fields are omitted."""
    output = job.output or {}
    described = {
        "job": job.id,
        "agent": job.kind,
        "state": job.state,
        "reason": job.reason,
        "error": job.error,
        "phase": job.phase,
        "rounds": job.rounds,
        "calls": job.calls,
        "result": {name: value for name, value in output.items() if value and name not in _OMITTED},
        "asks": [_describe_question(each) for each in questions],
        "answers": [f"{each.invocation.name}: {each.describe()}" for each in answers],
        "next": "" if job.state == "waiting" and not questions else _NEXT.get(job.state, ""),
    }
    return {name: value for name, value in described.items() if value not in ("", 0, [], {})}


def describe_progress(job: DurableJob) -> str:
    """Describe the job's progress in one line."""
    rounds = f"round {job.rounds}, {job.calls} calls" if job.rounds else ""
    return ": ".join([each for each in (job.state, job.reason or job.error, job.phase, rounds) if each])


def _describe_question(question: Approval) -> dict[str, Any]:
    described = {
        "call": question.call_id,
        "digest": question.digest,
        "asks_for": "answer" if question.is_question else "approval",
        "tool": question.name,
        "arguments": question.arguments,
        "why": question.why,
    }
    return {name: value for name, value in described.items() if value}


_FIELDS: Final[Mapping[str, str]] = {"symptoms": "description"}
"""Fields of a request, by the tool arguments with a different name."""


@asynccontextmanager
async def open_agents(
    directory: Path,
    read_settings: Callable[[], Settings],
    start_worker: Callable[[Database], object],
    *,
    url: str = "",
) -> AsyncIterator[AgentJobs]:
    """Open the jobs of the agents in a directory.

    Args:
        directory: The operator's repository, or a folder without git.
        read_settings: Returns the settings of the directory. Called for each job.
        start_worker: Starts a worker of the database unless one runs. Called in a thread.
        url: The database; see `Database.open`.

    Raises:
        CallerError: The database belongs to another program or a newer version.
        DatabaseUnavailable: The database cannot be opened.
    """
    database = await asyncio.to_thread(Database.open, url)
    try:
        store = DurableStore(database)

        async def submit(kind: str, arguments: Mapping[str, Any]) -> DurableJob:
            request = make_request(kind, arguments, directory, await asyncio.to_thread(read_settings))
            return await submit_request(store, request, request.settings.model)

        yield AgentJobs(store, str(directory), KINDS, submit, lambda: start_worker(database))
    finally:
        await asyncio.to_thread(database.close)


def make_request(kind: str, arguments: Mapping[str, Any], directory: Path, settings: Settings) -> JobRequest:
    """Convert a client's request for an agent, within the operator's settings. Raises CallerError."""
    fields = {_FIELDS.get(name, name): value for name, value in arguments.items()}
    if "logs" in fields:
        fields["logs"] = fields["logs"][-MAX_LOGS:]
    return JobRequest(kind=kind, directory=directory, settings=settings, **fields)  # type: ignore[arg-type]  # it is one
