"""More tools than a model takes."""

from __future__ import annotations

import asyncio
import json

from callboard import Agent, Ensemble, tool
from callboard.core import InvocationEnded, InvocationStarted, NamedTool, ReplyEnded, ReplyStarted
from callboard.testing import Call, FakeBackend, ScriptedModel
from callboard.tools import Invoker, Policy

FLIGHT = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def act(_context, arguments):
    return f"booked {arguments}"


@tool
def remember(text: str) -> str:
    """Keep a note."""
    return text


def servers():
    """Two of 150 tools each."""
    return [
        Ensemble(
            name,
            [Invoker(f"{name}_{each}", act, FLIGHT, description=f"number {each} of {name}") for each in range(150)],
        )
        for name in ("hotels", "flights")
    ]


def declared(backend):
    return [[each["function"]["name"] for each in asked.body["tools"]] for asked in backend.requests]


def replies(*calls):
    events = [
        [
            ReplyStarted(),
            InvocationStarted(0, f"c_{name}", name),
            InvocationEnded(0, f"c_{name}", name, said, json.dumps(said)),
            ReplyEnded("invocations"),
        ]
        for name, said in calls
    ]
    return [*events, "Done."]


async def test_azure_mcp_372_three_hundred_tools_are_searched_for_where_the_endpoint_takes_128():
    script = replies(("search_tools", {"query": "flights number 77"}), ("flights_77", {"city": "Oslo"}))
    async with FakeBackend(script, strict="openai") as backend:
        agent = Agent("openai:gpt-5", [remember], ensembles=servers(), base_url=backend.url)
        result = await agent.run("Book flight 77.")
        again = FakeBackend(["Yes."], strict="openai")
        async with again:
            later = Agent("openai:gpt-5", [remember], ensembles=servers(), base_url=again.url)
            await later.run("Did it work?", history=[*result.canisters])
        (first, second, third), (resumed,) = declared(backend), declared(again)
    assert result.state == "completed"
    assert "booked {'city': 'Oslo'}" in [each.text for each in result.canisters]
    assert first == ["remember", "search_tools"]
    assert second[:2] == first
    assert "flights_77" in second
    assert third == second == resumed  # the prefix stays, and a resumed conversation has what was found


def test_azure_mcp_372_as_many_as_the_endpoint_takes_are_all_declared():
    model = ScriptedModel(["Yes."])
    asyncio.run(Agent(model, ensembles=servers()).run("?"))
    assert len(model.requests[0].tools) == 300


def test_copilot_intellij_1842_ones_own_tools_are_not_crowded_out():
    async def scenario():
        async with FakeBackend(["Yes."], strict="openai") as backend:
            own = [tool(name=f"own_{each}")(lambda: "") for each in range(40)]
            await Agent("openai:gpt-5", own, ensembles=servers(), base_url=backend.url).run("?")
            return declared(backend)

    assert asyncio.run(scenario()) == [[*[f"own_{each}" for each in range(40)], "search_tools"]]


async def test_a_tool_that_has_to_be_called_is_declared():
    async with FakeBackend(replies(("flights_77", {"city": "Oslo"})), strict="openai") as backend:
        agent = Agent("openai:gpt-5", ensembles=servers(), base_url=backend.url)
        result = await agent.run("?", tool_choice=NamedTool("flights_77"))
        outcome = result.state, declared(backend)[0]
    assert outcome == ("completed", ["flights_77", "search_tools"])


def test_a_tool_that_is_forbidden_is_not_found():
    model = ScriptedModel([Call("search_tools", {"query": "flights"}), "No."])
    ensembles = [Ensemble(each.name, each.invokers.values(), {"search": True}) for each in servers()]
    result = Agent(model, ensembles=ensembles, policy=Policy([("*", "allow"), ("flights_*", "deny")])).run_sync("?")
    assert '{"tools":[]' in result.canisters[-2].text.replace(" ", "")
