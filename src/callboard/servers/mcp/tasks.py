"""Jobs as tasks of MCP: the extension `io.modelcontextprotocol/tasks` (SEP-2663), from protocol 2026-07-28 on.

A call of an agent's tool is answered with a task, whose name is the job's. The client asks for it with `tasks/get`,
answers what it asks with `tasks/update`, and cancels it with `tasks/cancel`, at this process or at a later one.

Laws: a task is given to no client that does not say in the same request that it knows tasks; a task is there when its name
is given; `failed` is a task that Callboard could not bring to its end, and a job that failed is a result with an error,
as the extension wants it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server

from callboard.errors import CallboardError, CallerError
from callboard.jobs.job import Approval, DurableJob, DurableState
from callboard.servers.mcp.agent_jobs import PEOPLE, AgentJobs, describe_job, describe_progress
from callboard.servers.mcp.call import Incoming
from callboard.servers.mcp.client_proxy import TASKS, find_askable, knows_tasks, name_client
from callboard.servers.mcp.job_questions import decode_answer, encode_question, question_key
from callboard.servers.mcp.results import encode_json_result

POLL_MILLISECONDS: Final = 2000
"""Between two looks of a client."""

STATUSES: Final[Mapping[DurableState, types.TaskStatus]] = {
    "pending": "working",
    "running": "working",
    "waiting": "working",
    "completed": "completed",
    "failed": "completed",
    "cancelled": "cancelled",
    "interrupted": "failed",
}
"""Of a job's state. A job that waits for the user of a client that can ask is `input_required`."""


class TaskParams(types.RequestParams):
    """Of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Of `tasks/update`."""

    input_responses: types.InputResponses


class TaskHandlers:
    """Answers what clients ask about tasks."""

    def __init__(self, jobs: AgentJobs) -> None:
        self._jobs = jobs

    def add_to(self, server: Server[Any]) -> None:
        """Let the server say that it has tasks, and answer for them."""
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskUpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def _get(self, incoming: Incoming, params: TaskParams) -> dict[str, Any]:
        with _answering(incoming):
            job = await self._jobs.get(params.task_id)
            questions = await self._jobs.read_questions(job)
        return encode_task(job, questions if "elicitation" in find_askable(incoming) else ())

    async def _update(self, incoming: Incoming, params: TaskUpdateParams) -> dict[str, Any]:
        """Answers to what is not asked, or no longer, are passed over, as the extension wants it."""
        with _answering(incoming):
            job = await self._jobs.get(params.task_id)
            for question in await self._jobs.read_questions(job):
                answer = params.input_responses.get(question_key(job.id, question))
                if isinstance(answer, types.ElicitResult):
                    await self._jobs.answer(
                        job, question, name_client(incoming), **decode_answer(question, answer)._asdict()
                    )
        return {}

    async def _cancel(self, incoming: Incoming, params: TaskParams) -> dict[str, Any]:
        with _answering(incoming):
            await self._jobs.cancel(await self._jobs.get(params.task_id))
        return {}


def encode_task(job: DurableJob, questions: Sequence[Approval] = ()) -> dict[str, Any]:
    """The job as a task; `questions` are those that the client can be asked."""
    status = "input_required" if questions else STATUSES[job.state]
    task: dict[str, Any] = {
        "taskId": job.id,
        "status": status,
        "statusMessage": describe_progress(job) if questions or job.waits_for not in PEOPLE else _ask_a_person(job),
        "createdAt": _format_time(job.created_at),
        "lastUpdatedAt": _format_time(job.updated_at),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    match status:
        case "input_required":
            task["inputRequests"] = {question_key(job.id, each): _dump(encode_question(each)) for each in questions}
        case "completed":
            task["result"] = _dump(encode_json_result(describe_job(job), is_error=job.state == "failed"))
        case "failed":
            message = job.error or job.reason or "the job was interrupted"
            hint = f"callboard jobs resume {job.id} lets it go on"
            task["error"] = {"code": types.INTERNAL_ERROR, "message": f"{message}; {hint}"}
    return task


def _ask_a_person(job: DurableJob) -> str:
    return f"{describe_progress(job)}; callboard jobs show {job.id} tells what it asks, and how a person answers"


@contextmanager
def _answering(incoming: Incoming) -> Generator[None]:
    """Refuse a client that does not know tasks, and say what goes wrong as the protocol does."""
    if not knows_tasks(incoming):
        needed = types.ClientCapabilities(extensions={TASKS: {}})
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client has not said that it knows {TASKS}", _dump(data)
        )
    try:
        yield
    except CallerError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    except CallboardError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from None


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _dump(value: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
