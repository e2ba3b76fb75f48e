import asyncio

import pytest
from tests.servers.mcp.conftest import User

from callboard import Agent, tool
from callboard.errors import CallerError
from callboard.servers.mcp.server import ToolServer, agent_ensemble
from callboard.testing import Call, ScriptedModel


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval=True)
def deploy() -> str:
    """Deploy."""
    return "deployed"


async def test_a_run_is_one_call(talk):
    model = ScriptedModel([Call("add", {"a": 1, "b": 2}), "It is 3."])
    steps, logged = [], []

    async def progress(*step):
        steps.append(step)

    async def log(params):
        logged.append(params.data)

    server = ToolServer([agent_ensemble(Agent(model, [add]))])
    async with talk(server, logging_callback=log, log_level="info") as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("run", {"prompt": "1 + 2?"}, progress_callback=progress)
        names = [each.name for each in tools]
    assert names == ["run"]
    assert (result.content[0].text, result.is_error) == ("It is 3.", False)
    assert [step[0] for step in steps] == [1, 2]
    assert logged == [{"call": "add", "arguments": '{"a":1,"b":2}'}, {"result": "3", "error": False}]
    assert model.requests[0].canisters[-1].text == "1 + 2?"


@pytest.mark.parametrize(("answer", "result"), [(True, "deployed"), (False, "Error: deploy may not run")])
async def test_its_approvals_are_asked_of_the_clients_user(talk, answer, result):
    model = ScriptedModel([Call("deploy"), "Done."])
    asked = User(("accept", {"allow": answer}))
    server = ToolServer([agent_ensemble(Agent(model, [deploy]))])
    async with talk(server, elicitation_callback=asked) as client:
        await client.call_tool("run", {"prompt": "go"})
    assert asked.asked == ["deploy always needs approval: deploy {}"]
    assert model.requests[1].canisters[-1].text.startswith(result)


async def test_an_agent_that_asks_somebody_else_still_does(talk):
    seen = []

    async def approve(invocation, _why):
        seen.append(invocation.name)
        return "allow"

    model = ScriptedModel([Call("deploy"), "Done."])
    server = ToolServer([agent_ensemble(Agent(model, [deploy], approve=approve))])
    async with talk(server, elicitation_callback=User()) as client:
        await client.call_tool("run", {"prompt": "go"})
    assert seen == ["deploy"]


async def test_each_client_is_asked_about_its_own_run(era):
    """Two runs at once, of one agent."""
    from mcp import Client

    def scripted(request):
        return Call("deploy") if len(request.canisters) == 1 else "Done."

    server = ToolServer([agent_ensemble(Agent(ScriptedModel([scripted] * 4), [deploy]))])
    asked = {"a": [], "b": []}

    async def one(name):
        async def callback(_, params):
            from mcp_types import ElicitResult

            asked[name].append(params.message)
            return ElicitResult(action="accept", content={"allow": True})

        async with Client(server.protocol, mode=era, elicitation_callback=callback) as client:
            await client.call_tool("run", {"prompt": name})

    await asyncio.gather(one("a"), one("b"))
    assert [len(each) for each in asked.values()] == [1, 1]


async def test_a_run_that_fails_is_a_result_that_the_model_reads(talk):
    def broken(_request):
        raise CallerError("no model here")

    server = ToolServer([agent_ensemble(Agent(ScriptedModel([broken]), [add]))])
    async with talk(server) as client:
        result = await client.call_tool("run", {"prompt": "go"})
    assert result.is_error
    assert "no model here" in result.content[0].text


async def test_a_run_without_an_answer_says_why(talk):
    server = ToolServer([agent_ensemble(Agent(ScriptedModel(["", ""]), [add]))])
    async with talk(server) as client:
        result = await client.call_tool("run", {"prompt": "go"})
    assert result.is_error
    assert "the agent gave no answer: the model replied nothing" in result.content[0].text


async def test_a_cancelled_call_cancels_its_run(talk):
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with talk(ToolServer([agent_ensemble(Agent(ScriptedModel([Call("wait")]), [wait]))])) as client:
        task = asyncio.create_task(client.call_tool("run", {"prompt": "go"}))
        await begun.wait()
        task.cancel()
        await ended.wait()
    assert ended.is_set()
