"""The coding agents as tools whose calls are jobs."""

import asyncio
import json

import pytest
from tests.servers.mcp.conftest import User

from callboard.jobs.job import Approval
from callboard.servers.mcp.agent_job_tools import AGENTS, encode_question

BASH = Approval(call_id="c1", name="bash", arguments={"command": "make"}, why="bash asks", digest="d1")
QUESTION = Approval(call_id="q1", name="ask", why="Which one?", is_question=True)


def values_of(result):
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def test_the_agents_and_what_asks_for_their_jobs_are_listed(desk, talk):
    async with talk(desk.serve()) as client:
        tools = (await client.list_tools()).tools
    assert [each.name for each in tools] == [*AGENTS, "get_job", "answer_job", "cancel_job"]
    schemas = {each.name: each.input_schema for each in tools}
    assert [schemas[name]["required"] for name in AGENTS] == [
        ["description"],
        ["symptoms"],
        ["branch"],
        ["description"],
    ]
    # Nothing says where an agent works, with which model, or what it may do.
    names = {name for each in AGENTS for name in schemas[each]["properties"]}
    assert names == {"description", "symptoms", "logs", "branch", "base"}


async def test_a_call_gives_the_job_at_once_and_its_result_later(desk, talk):
    steps: asyncio.Queue[tuple] = asyncio.Queue()

    async def progress(*step):
        await steps.put(step)

    async with talk(desk.serve()) as client:
        begun = values_of(await client.call_tool("triage", {"description": "it hangs"}))
        claim = await desk.claim_next()
        await claim.append((), phase="look", rounds=1)
        running = values_of(await client.call_tool("get_job", {"job": begun["job"], "wait_seconds": 0}))
        waiting = asyncio.create_task(
            client.call_tool("get_job", {"job": begun["job"], "wait_seconds": 60}, progress_callback=progress)
        )
        step = await steps.get()
        await claim.end("completed", output={"summary": "A lock.", "diff": ""})
        ended = values_of(await waiting)
    assert (begun["agent"], begun["state"]) == ("triage", "pending")
    assert (running["state"], running["phase"], running["rounds"]) == ("running", "look", 1)
    assert (ended["state"], ended["result"]) == ("completed", {"summary": "A lock."})
    assert step[2] == "running: look: round 1, 0 calls"
    assert desk.submitted == [("triage", {"description": "it hangs"})]


async def test_a_failed_job_says_why(desk, talk):
    async with talk(desk.serve()) as client:
        begun = values_of(await client.call_tool("build", {"description": "x"}))
        claim = await desk.claim_next()
        await claim.end("failed", "the tests fail", {"missing": ["no test ran"], "branch": "b"})
        ended = values_of(await client.call_tool("get_job", {"job": begun["job"]}))
    assert (ended["state"], ended["reason"]) == ("failed", "the tests fail")
    assert ended["result"] == {"missing": ["no test ran"], "branch": "b"}


async def asking(desk, client, question, waits_for="approval"):
    """The job that asks, as the model sees it."""
    begun = values_of(await client.call_tool("build", {"description": "x"}))
    await (await desk.claim_next()).wait([question], waits_for=waits_for)
    return values_of(await client.call_tool("get_job", {"job": begun["job"]}))


@pytest.mark.parametrize(("said", "verdict"), [(True, "allow"), (False, "deny")])
async def test_an_approval_is_asked_of_the_clients_user(desk, talk, said, verdict):
    asked = User(("accept", {"allow": said}))

    async with talk(desk.serve(), elicitation_callback=asked) as client:
        job = await asking(desk, client, BASH)
        arguments = {"job": job["job"], "call": job["asks"][0]["call"], "digest": job["asks"][0]["digest"]}
        answered = values_of(await client.call_tool("answer_job", arguments))
        (answer,) = await desk.store.read_answers(job["job"])
        assert (answer.verdict, answer.via, answer.by != "") == (verdict, "MCP", True)
        assert answered["answers"] == [f"bash: {answer.describe()}"]
        (approval,) = await desk.store.read_approvals(job["job"])
    assert job["state"] == "waiting"
    assert job["asks"] == [
        {
            "call": "c1",
            "digest": "d1",
            "asks_for": "approval",
            "tool": "bash",
            "arguments": {"command": "make"},
            "why": "bash asks",
        }
    ]
    assert asked.asked == ['bash asks: bash {"command": "make"}']
    assert (answered["state"], approval.verdict) == ("pending", verdict)


async def test_without_a_user_to_ask_nothing_is_allowed_and_anything_denied(desk, talk):
    async with talk(desk.serve()) as client:
        job = await asking(desk, client, BASH)
        arguments = {"job": job["job"], "call": "c1", "digest": "d1"}
        refused = await client.call_tool("answer_job", arguments)
        (left,) = await desk.store.read_approvals(job["job"])
        values_of(await client.call_tool("answer_job", {**arguments, "verdict": "deny", "reason": "no"}))
        denied = (await desk.store.read_approvals(job["job"]))[0]
    assert refused.is_error
    assert "callboard jobs approve" in refused.content[0].text
    assert (left.verdict, denied.verdict, denied.reason) == ("", "deny", "no")


async def test_a_question_is_answered_by_the_client(desk, talk):
    async with talk(desk.serve()) as client:
        job = await asking(desk, client, QUESTION, "question")
        arguments = {"job": job["job"], "call": "q1"}
        empty = await client.call_tool("answer_job", arguments)
        values_of(await client.call_tool("answer_job", {**arguments, "text": "the second"}))
        answered = (await desk.store.read_approvals(job["job"]))[0]
    assert job["asks"][0]["asks_for"] == "answer"
    assert empty.is_error
    assert (answered.verdict, answered.text) == ("allow", "the second")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"call": "c1", "digest": "other"}, "not the one of this digest"),
        ({"call": "c1"}, "not the one of this digest"),
        ({"call": "c2", "digest": "d1"}, "does not ask about this call"),
    ],
)
async def test_an_answer_to_another_call_is_refused(desk, talk, arguments, why):
    async with talk(desk.serve(), elicitation_callback=User()) as client:
        job = await asking(desk, client, BASH)
        refused = await client.call_tool("answer_job", {"job": job["job"], **arguments})
        left = (await desk.store.read_approvals(job["job"]))[0]
    assert refused.is_error
    assert why in refused.content[0].text
    assert left.verdict == ""


async def test_a_job_is_cancelled(desk, talk):
    async with talk(desk.serve()) as client:
        begun = values_of(await client.call_tool("build", {"description": "x"}))
        ended = values_of(await client.call_tool("cancel_job", {"job": begun["job"]}))
        late = await client.call_tool("answer_job", {"job": begun["job"], "call": "c1"})
    assert (ended["state"], ended["reason"]) == ("cancelled", "cancelled by an MCP client")
    assert late.is_error


@pytest.mark.parametrize("tool", ["get_job", "cancel_job"])
async def test_no_other_job_is_reached(desk, talk, tool):
    async with talk(desk.serve()) as client:
        other = await desk.store.create("chat", directory="/repository")
        refused = await client.call_tool(tool, {"job": other.id})
        other = await desk.store.get(other.id)
    assert refused.is_error
    assert "no such job" in refused.content[0].text
    assert other.state == "pending"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("build", {}),
        ("build", {"description": ""}),
        ("build", {"description": "x", "directory": "/etc"}),
        ("build", {"description": "x", "model": "other"}),
        ("review", {"branch": "--upload-pack=touch x"}),
        ("review", {"branch": "-b"}),
        ("review", {"branch": "HEAD:secret"}),
        ("review", {"branch": "main", "base": "--output=x"}),
    ],
)
async def test_wrong_arguments_begin_no_job(desk, talk, tool, arguments):
    async with talk(desk.serve()) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert desk.submitted == []


def test_a_question_to_the_user_hides_nothing():
    """A model chooses these names and arguments; nothing of them turns the text round or overwrites it."""
    sly = Approval(
        call_id="c", name="ba\u202esh", arguments={"command": "rm \u202e\x1b[2K"}, why="it asks\r", digest="d"
    )
    asked = encode_question(sly).params
    assert asked.message == 'it asks\\r: ba\\u202esh {"command": "rm \\u202e\\u001b[2K"}'
    assert asked.requested_schema["properties"]["allow"]["title"] == "Run ba\\u202esh"


async def test_who_asks_for_a_job_that_should_run_has_a_worker_started_but_not_each_time(desk, talk):
    async with talk(desk.serve()) as client:
        ended = await desk.store.create("build", directory="/repository")
        await (await desk.claim_next()).end("completed")
        left = await desk.store.create("build", directory="/repository")
        starts = []
        for each in (ended, left, left):
            await client.call_tool("get_job", {"job": each.id, "wait_seconds": 0})
            starts.append(desk.starts)
        assert starts == [0, 1, 1]
