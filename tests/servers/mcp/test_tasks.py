"""Jobs as tasks, for a client that knows them, over the official SDK."""

import asyncio
from datetime import UTC, datetime

import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.servers.mcp.conftest import TaskClient

from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.job import Approval, DurableJob
from callboard.servers.mcp.client_proxy import TASKS
from callboard.servers.mcp.job_questions import encode_question
from callboard.servers.mcp.tasks import STATUSES, encode_task

MODERN = "2026-07-28"
BASH = Approval(call_id="c1", name="bash", arguments={"command": "make"}, why="bash asks", digest="d1")
NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)


def job_in(state, **fields):
    return DurableJob(id="j1", kind="build", state=state, created_at=NOW, updated_at=NOW, **fields)


@pytest.mark.parametrize("state", STATUSES)
def test_each_state_of_a_job_is_one_of_a_task(state):
    task = encode_task(job_in(state, reason="so it is"))
    assert task["status"] == STATUSES[state]
    assert task["taskId"] == "j1"
    assert task["createdAt"] == "2026-11-23T09:00:00Z"
    assert "so it is" in task["statusMessage"]
    assert task["ttlMs"] is None
    payloads = {"completed": {"result"}, "failed": {"error"}}
    assert task.keys() & {"result", "error", "inputRequests"} == payloads.get(task["status"], set())


def test_a_job_that_failed_is_a_result_with_an_error_and_a_lost_one_a_failed_task():
    failed = encode_task(job_in("failed", error="no model", output={"summary": "", "branch": "b"}))
    assert failed["result"]["isError"]
    assert failed["result"]["structuredContent"]["error"] == "no model"
    assert failed["result"]["structuredContent"]["result"] == {"branch": "b"}
    lost = encode_task(job_in("interrupted", reason="given up after 5 attempts"))
    assert lost["error"]["message"].startswith("given up after 5 attempts; callboard jobs resume j1")


def test_the_server_says_that_it_has_tasks(desk):
    async def scenario():
        async with Client(desk.serve().protocol) as client:
            return client.server_capabilities.extensions

    assert asyncio.run(scenario()) == {TASKS: {}}


async def test_a_call_is_a_task_whose_name_is_the_jobs(desk, task_client):
    knows = task_client()
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        calling = asyncio.create_task(client.call_tool("build", {"description": "a parser"}))
        claim = await desk.claim_next()
        await claim.append((), phase="plan", rounds=2, calls=3)
        task = await knows.request(client.session, "tasks/get", claim.job.id)
        await claim.end("completed", output={"summary": "It is built.", "branch": "b", "diff": "long"})
        result = await calling
    assert desk.submitted == [("build", {"description": "a parser"})]
    assert (task["status"], task["statusMessage"]) == ("working", "running: plan: round 2, 3 calls")
    assert (task["resultType"], task["ttlMs"]) == ("complete", None)
    assert result.structured_content["result"] == {"summary": "It is built.", "branch": "b"}
    assert not result.is_error
    assert knows.seen[-1] == "completed"


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        ({"action": "accept", "content": {"allow": True}}, "allow", ""),
        ({"action": "accept", "content": {"allow": False, "reason": "not now"}}, "deny", "not now"),
        ({"action": "accept", "content": {"allow": "true"}}, "deny", "the user said no"),
        ({"action": "accept", "content": {}}, "deny", "the user said no"),
        ({"action": "decline", "content": {"allow": True}}, "deny", "the user said no"),
        ({"action": "cancel"}, "deny", "the user said no"),
    ],
)
def test_an_approval_is_input_that_the_clients_user_gives(desk, answer, verdict, reason):
    asked = []

    def user(params):
        asked.append(params)
        return answer

    knows = TaskClient(user)

    async def nobody(*_):
        raise AssertionError("a task's questions are not requests")

    async def scenario():
        options = {"extensions": [knows], "elicitation_callback": nobody}
        async with Client(desk.serve().protocol, mode=MODERN, **options) as client:
            calling = asyncio.create_task(client.call_tool("build", {"description": "a parser"}))
            claim = await desk.claim_next()
            await claim.wait([BASH])
            claim = await desk.claim_next()
            await claim.end("completed", output={"summary": "done"})
            await calling
            return claim.answers

    (taken,) = asyncio.run(scenario())
    assert (taken.verdict, taken.reason) == (verdict, reason)
    assert [each["message"] for each in asked] == ['bash asks: bash {"command": "make"}']
    assert "input_required" in knows.seen
    assert knows.seen[-1] == "completed"


def test_what_a_user_is_asked_hides_nothing():
    """A model chooses these names and arguments; nothing of them turns the text round or overwrites it."""
    sly = Approval(
        call_id="c", name="ba\u202esh", arguments={"command": "rm \u202e\x1b[2K"}, why="it asks\r", digest="d"
    )
    asked = encode_question(sly).params
    assert asked.message == 'it asks\\r: ba\\u202esh {"command": "rm \\u202e\\u001b[2K"}'
    assert asked.requested_schema["properties"]["allow"]["title"] == "Run ba\\u202esh"


async def test_a_question_is_answered_in_words(desk):
    knows = TaskClient(lambda _: {"action": "accept", "content": {"answer": "the second"}})
    question = Approval(call_id="q1", name="ask", why="Which one?", is_question=True)
    job = await desk.jobs.submit("triage", {})
    await (await desk.claim_next()).wait([question], waits_for="question")
    options = {"extensions": [knows], "elicitation_callback": lambda *_: None}
    async with Client(desk.serve().protocol, mode=MODERN, **options) as client:
        following = asyncio.create_task(knows.follow(client.session, job.id))
        await (await desk.claim_next()).end("completed")
        await following
        (taken,) = await desk.store.read_approvals(job.id)
    assert (taken.verdict, taken.text) == ("allow", "the second")


async def test_a_client_that_cannot_ask_sees_a_task_that_works_on(desk, task_client):
    knows = task_client()
    job = await desk.jobs.submit("build", {})
    await (await desk.claim_next()).wait([BASH], reason="bash asks for approval")
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        task = await knows.request(client.session, "tasks/get", job.id)
    assert task["status"] == "working"
    assert task["statusMessage"].startswith("waiting: bash asks for approval; callboard jobs show ")
    assert "inputRequests" not in task


async def test_an_answer_to_what_is_asked_no_longer_is_passed_over(desk, task_client):
    """The same call with other arguments has another key."""
    knows = task_client()
    allow = types.ElicitResult(action="accept", content={"allow": True})
    job = await desk.jobs.submit("build", {})
    await (await desk.claim_next()).wait([BASH])
    options = {"extensions": [knows], "elicitation_callback": lambda *_: None}
    async with Client(desk.serve().protocol, mode=MODERN, **options) as client:
        (old,) = (await knows.request(client.session, "tasks/get", job.id))["inputRequests"]
        await desk.store.answer(job.id, "c1", "deny", digest="d1")
        again = Approval(call_id="c1", name="bash", arguments={"command": "rm -r ."}, digest="d2")
        await (await desk.claim_next()).wait([again])
        answered = await knows.request(client.session, "tasks/update", job.id, input_responses={old: allow})
        task = await knows.request(client.session, "tasks/get", job.id)
        assert set(answered) == {"_meta", "resultType"}
        assert [*task["inputRequests"]] != [old]
        (approval,) = await desk.store.read_approvals(job.id)
    assert (approval.digest, approval.verdict) == ("d2", "")


async def test_a_task_is_cancelled(desk, task_client):
    knows = task_client()
    running = await desk.jobs.submit("build", {})
    await desk.claim_next()
    job = await desk.jobs.submit("build", {})
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        await knows.request(client.session, "tasks/cancel", job.id)
        await knows.request(client.session, "tasks/cancel", job.id)
        await knows.request(client.session, "tasks/cancel", running.id)
        task, running = [
            await knows.request(client.session, "tasks/get", job.id),
            await desk.store.get(running.id),
        ]
    assert task["status"] == "cancelled"
    assert "cancelled by an MCP client" in task["statusMessage"]
    assert (running.state, running.cancel_requested) == ("running", True)


async def test_another_server_knows_the_task(desk, task_client):
    """As after a restart: nothing of it is in the server."""
    knows = task_client()
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        handle = await client.session.call_tool("review", {"branch": "b"}, allow_claimed=True)
    claim = await desk.claim_next()
    await claim.end("completed", output={"summary": "No findings."})
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        result = await knows.follow(client.session, handle.task_id)
    assert handle.status == "working"
    assert result.structured_content["result"] == {"summary": "No findings."}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_who_does_not_say_that_it_knows_tasks_is_told_so(desk, method, era):
    job = await desk.jobs.submit("build", {})
    async with Client(desk.serve().protocol, mode=era) as client:
        with pytest.raises(MCPError) as refused:
            await TaskClient().request(client.session, method, job.id, input_responses={})
        assert (await desk.store.get(job.id)).state == "pending"
        error = refused.value
    assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("which", ["unknown", "beginning", "elsewhere", "other kind", ""])
async def test_no_other_job_is_reached(desk, task_client, method, which):
    knows = task_client()
    mine = await desk.jobs.submit("build", {})
    elsewhere = await desk.store.create("build", directory="/elsewhere")
    other = await desk.store.create("agent", directory="/repository")
    names = {"unknown": "j9", "beginning": mine.id[:-1], "elsewhere": elsewhere.id, "other kind": other.id, "": ""}
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        with pytest.raises(MCPError) as refused:
            await knows.request(client.session, method, names[which], input_responses={})
    states = {each.state for each in await desk.store.list()}
    error = refused.value
    assert (error.code, states) == (types.INVALID_PARAMS, {"pending"})
    assert "no such job" in error.message


async def test_a_database_that_is_away_is_an_error_of_the_server(desk, task_client, monkeypatch):
    knows = task_client()

    async def away(_):
        raise DatabaseUnavailable("the database cannot be reached", path="postgresql://host/jobs")

    monkeypatch.setattr(desk.store, "get", away)
    async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
        with pytest.raises(MCPError) as refused:
            await knows.request(client.session, "tasks/get", "j1")
        error = refused.value
    assert error.code == types.INTERNAL_ERROR
    assert "the database cannot be reached" in error.message


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
def test_there_is_no_list_of_tasks(desk, task_client, method):
    knows = task_client()

    async def scenario():
        async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
            with pytest.raises(MCPError) as refused:
                await knows.request(client.session, method, "j1")
            return refused.value.code

    assert asyncio.run(scenario()) == types.METHOD_NOT_FOUND


def test_who_asks_for_a_job_that_should_run_has_a_worker_started_but_not_each_time(desk, task_client):
    knows = task_client()

    async def scenario():
        ended = await desk.store.create("build", directory="/repository")
        await (await desk.claim_next()).end("completed")
        left = await desk.store.create("build", directory="/repository")
        async with Client(desk.serve().protocol, mode=MODERN, extensions=[knows]) as client:
            starts = []
            for each in (ended, left, left):
                await knows.request(client.session, "tasks/get", each.id)
                starts.append(desk.starts)
            return starts

    assert asyncio.run(scenario()) == [0, 1, 1]
