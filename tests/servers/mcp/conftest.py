"""Clients of the SDK in both eras, with a user who answers."""

from __future__ import annotations

import asyncio
import queue
from typing import Literal

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from pydantic import ConfigDict

from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.servers.mcp.agent_job_tools import AGENTS, job_ensemble
from callboard.servers.mcp.agent_jobs import AgentJobs
from callboard.servers.mcp.client_proxy import TASKS
from callboard.servers.mcp.server import ToolServer
from callboard.servers.mcp.tasks import TaskHandlers

LIMIT = 60  # seconds; against a test that hangs
ERAS = ["legacy", "2026-07-28"]


class User:
    """Answers what the client is asked with `answers`, in their order; `asked` are the messages."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = iter(answers)

    async def __call__(self, _, params):
        self.asked.append(params.message)
        action, content = next(self._answers)
        return types.ElicitResult(action=action, content=content)


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@pytest.fixture
def talk(era):
    """Runs `scenario(client)` with a client of the server, in this era; gives what it returns."""

    def talk(server, scenario, **callbacks):
        async def talking():
            async with Client(server.protocol, mode=era, **callbacks) as client:
                try:
                    return await scenario(client)
                finally:
                    await server.aclose()

        return asyncio.run(talking())

    return talk


@pytest.fixture
def serving():
    """A server with these ensembles."""
    return ToolServer


@pytest.fixture
def user():
    """A user who gives these answers."""
    return User


class TaskHandle(types.Result):
    """What a call is answered with that goes on as a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: types.InputResponses | None = None


class TaskRequest(types.Request[TaskParams, str]):
    name_param = "taskId"


class TaskAnswer(types.Result):
    model_config = ConfigDict(extra="allow")


class TaskClient(ClientExtension):
    """What a client does that knows tasks: it polls, asks its user, and gives the result. `seen` are the statuses."""

    identifier = TASKS

    def __init__(self, answer=None):
        self.seen = []
        self.asked = []
        self._answer = answer

    def claims(self):
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._resolve)]

    async def _resolve(self, handle, context):
        return await self.follow(context.session, handle.task_id)

    async def follow(self, session, task_id):
        """Asks for the task until it has ended."""
        while True:
            task = await self.request(session, "tasks/get", task_id)
            if task["status"] not in self.seen[-1:]:
                self.seen.append(task["status"])
            if task["status"] == "input_required":
                questions = {key: each for key, each in task["inputRequests"].items() if key not in self.asked}
                self.asked += questions
                for key, question in questions.items():
                    answer = types.ElicitResult.model_validate(self._answer(question["params"]))
                    await self.request(session, "tasks/update", task_id, input_responses={key: answer})
            elif task["status"] == "completed":
                return types.CallToolResult.model_validate(task["result"])
            elif task["status"] != "working":
                return types.CallToolResult(content=[], structured_content=task, is_error=True)
            await asyncio.sleep(0.02)

    async def request(self, session, method, task_id, **values):
        """The answer to one request."""
        request = TaskRequest(method=method, params=TaskParams(task_id=task_id, **values))
        answer = await session.send_request(request, TaskAnswer)
        return answer.model_dump(mode="json", by_alias=True)


@pytest.fixture
def task_client():
    """A client that knows tasks; `answer(params)` is what its user answers to an elicitation."""
    return TaskClient


class Desk:
    """Jobs of agents in a directory, with a worker that does what the test says."""

    def __init__(self, database, directory="/repository"):
        self._queued = queue.SimpleQueue()
        self.store = DurableStore(database, lambda _, job, __: self._queued.put(job))
        self.submitted = []
        self.starts = 0
        self.jobs = AgentJobs(self.store, directory, [*AGENTS], self._submit, self._start_worker)
        self._directory = directory

    async def _submit(self, kind, arguments):
        self.submitted.append((kind, dict(arguments)))
        return await self.store.create(kind, description="do it", directory=self._directory)

    def _start_worker(self):
        self.starts += 1

    async def claim_next(self):
        """The next segment that is queued."""
        job = await asyncio.to_thread(self._queued.get, timeout=LIMIT)
        return await self.store.claim(job.id, job.segment, "worker")

    def serve(self, **options):
        """A server of the agents."""
        return ToolServer([job_ensemble(self.jobs)], tasks=TaskHandlers(self.jobs), **options)


@pytest.fixture
def desk(tmp_path):
    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        yield Desk(database)
