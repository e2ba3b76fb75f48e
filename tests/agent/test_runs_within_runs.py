"""An agent as a tool: what the inner run takes from the outer one, and gives to it."""

import asyncio
import gc

import pytest
from tests.agent.runs import follow, result_texts
from tests.tables import table

from callboard import Agent, Context, Limits, core, tool
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble, Invoker

ASK = Call("ask", {"prompt": "6 and 7?"})
TOKENS = core.Usage(100, 10)


@tool(approval=True)
def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


@tool
def look(context: Context) -> str:
    """Look."""
    return str(sorted(context.auxdata.items()))


def asking(inner, *replies, **options):
    """An agent that asks the inner one once."""
    return Agent(ScriptedModel(replies or [ASK, "Done."]), [inner.as_tool("ask", "Asks.")], **options)


# Usage and limits.


def priced(*replies, price=1.0):
    return ScriptedModel(
        [[core.Usage(1_000_000, 0), *(each if isinstance(each, list) else [each])] for each in replies],
        profile={"prices": {"input": price, "output": 0.0}},
    )


def test_what_an_inner_run_takes_is_counted_in_the_outer_result():
    inner = Agent(priced(Call("look"), "13", price=3.0), [look])
    result = Agent(priced(ASK, "Done."), [inner.as_tool("ask", "Asks.")]).run_sync("?")
    assert result.usage == core.Usage(4_000_000, 0)
    assert result.cost == pytest.approx(8.0)
    assert result.rounds == 2


def test_a_cost_that_is_not_known_makes_the_sum_unknown_and_is_no_way_round_a_limit():
    def asked():
        return [Agent(ScriptedModel([[TOKENS, "13"]])).as_tool("ask", "Asks.")]

    result = Agent(priced(ASK, "Done."), asked()).run_sync("?")
    assert (result.state, result.cost) == ("completed", None)
    result = Agent(priced(ASK, "Done."), asked(), limits=Limits(cost=100)).run_sync("?")
    assert (result.state, result.cost) == ("completed", 2.0)
    assert result_texts(result)[0].startswith("Error: CallerError: budget: a budget needs the price of scripted")
    agent = Agent(priced(ASK, ASK), asked(), limits=Limits(cost=0.5))
    assert agent.run_sync("?").why == "the budget is spent: $1 of $0.5"


def test_a_run_within_one_whose_budget_is_spent_asks_for_nothing():
    inner = Agent(priced("13", "13"))
    tools = [inner.as_tool("ask", "Asks.")]
    calls = [Call("ask", {"prompt": "?"}, identifier) for identifier in ("c1", "c2")]
    agent = Agent(priced(calls, "Done."), tools, limits=Limits(cost=1.5), max_parallel_calls=1)
    result = agent.run_sync("?")
    assert (result.state, result.cost, len(inner.model.requests)) == ("incomplete", 2.0, 1)
    assert "the budget is spent: $2 of $1.5" in result_texts(result)[1]


@table(
    ("limits", "why"),
    [(Limits(tokens=150), "220 tokens are used, of 150"), (Limits(calls=2), "no answer within 2 calls")],
)
def test_the_limits_of_the_outer_run_end_the_inner_one(limits, why):
    calls = [[TOKENS, Call("look")] for _ in range(9)]
    inner = Agent(ScriptedModel(calls), [look])
    agent = asking(inner, [TOKENS, ASK], "Done.", limits=limits)
    result = agent.run_sync("?")
    assert result_texts(result)[0].startswith(f"Error: CallerError: ask gave no answer: {why}")
    assert result.state == "incomplete"


def test_the_inner_run_keeps_its_own_limits():
    inner = Agent(ScriptedModel([Call("look"), "Perhaps."]), [look], limits=Limits(rounds=1))
    result = asking(inner).run_sync("?")
    assert result_texts(result)[0].startswith("Error: CallerError: ask gave no answer: no answer within 1 rounds")
    assert result.state == "completed"


def test_an_agent_that_asks_itself_for_ever_is_stopped():
    desk = Ensemble("desk")
    agent = Agent(ScriptedModel([ASK] * 17 + ["up"] * 17), ensembles=[desk])
    desk.add_invoker(agent.as_tool("ask", "Asks itself."))
    assert agent.run_sync("?").output == "up"


async def test_an_inner_run_that_is_cut_has_been_counted():
    inner = Agent(ScriptedModel([[TOKENS, Call("wait")]]), [])
    run = asking(inner, [TOKENS, ASK]).stream("?")

    async with run:
        async for event in run:
            if isinstance(event, core.Nested) and isinstance(event.event, core.InvocationEnded):
                break
    assert run.result.usage == core.Usage(200, 20)


# Auxdata.


def test_auxdata_of_the_outer_run_reaches_the_inner_tools():
    inner = Agent(ScriptedModel([Call("look"), "Done."]), [look], auxdata={"a": 1, "b": 1})
    run = asking(inner, auxdata={"b": 2}).stream("?", auxdata={"c": 3})
    events = follow(run)
    (result,) = [
        each.event.canister for each in events if isinstance(each, core.Nested) and hasattr(each.event, "canister")
    ]
    assert result.text == "[('a', 1), ('b', 2), ('c', 3)]"


# Approvals.


def deleting(**options):
    return Agent(ScriptedModel([Call("delete", {"path": "a"}), "Done."]), [delete], **options)


@table(
    ("answer", "text"),
    [
        ("allow", "deleted a"),
        ("deny", "Error: delete may not run: the answer was no"),
        ("defer", "Error: delete may not run: the answer was defer, and a run within another one waits for no later"),
        ("yes", "Error: delete may not run: the approval answered 'yes'"),
    ],
)
@table("of_run", [False, True])
def test_the_outer_runs_approve_is_asked_about_inner_calls(answer, text, of_run):
    asked = []

    def approve(invocation, _why):
        asked.append(invocation.name)
        return answer

    inner = deleting()
    options = {"approve": approve}
    run = asking(inner, **({} if of_run else options)).stream("?", **(options if of_run else {}))
    events = [each.event for each in follow(run) if isinstance(each, core.Nested)]
    assert asked == ["delete"]
    assert inner.model.requests[1].canisters[-1].text.startswith(text)
    assert [type(each) for each in events if isinstance(each, (core.ApprovalAsked, core.ApprovalAnswered))] == [
        core.ApprovalAsked,
        core.ApprovalAnswered,
    ]


def test_without_a_person_to_ask_inner_calls_do_not_run():
    inner = deleting()
    asking(inner).run_sync("?")
    assert inner.model.requests[1].canisters[-1].text == "Error: delete may not run: nobody can be asked"


def test_an_inner_agent_with_an_approve_of_its_own_asks_that():
    inner = deleting(approve=lambda *_: "deny")
    asking(inner, approve=lambda *_: "allow").run_sync("?")
    assert inner.model.requests[1].canisters[-1].error.category == "permission"


def test_inner_runs_that_go_at_once_put_their_questions_one_after_another():
    open_questions, most = 0, 0

    async def approve(_invocation, _why):
        nonlocal open_questions, most
        open_questions += 1
        most = max(most, open_questions)
        await asyncio.sleep(0)
        open_questions -= 1
        return "allow"

    tools = [deleting().as_tool(name, "Deletes.") for name in ("one", "two", "three")]
    calls = [Call(name, {"prompt": "?"}) for name in ("one", "two", "three")]
    result = Agent(ScriptedModel([calls, "Done."]), tools, approve=approve).run_sync("?")
    assert result_texts(result) == ["Done."] * 3
    assert most == 1


# Events.


def test_inner_events_stand_in_the_outer_stream_and_say_whose_they_are():
    inner = Agent(ScriptedModel([["Thirteen.", TOKENS]]))
    events = follow(asking(inner).stream("?"))
    nested = [each for each in events if isinstance(each, core.Nested)]
    (called,) = [each for each in events if isinstance(each, core.InvocationEnded)]
    assert {(each.identifier, each.name) for each in nested} == {(called.identifier, "ask")}
    assert [each.event.text for each in nested if isinstance(each.event, core.TextPiece)] == ["Thirteen."]
    assert isinstance(nested[-1].event, core.RunEnded)
    assert [each.text for each in events if isinstance(each, core.TextPiece)] == ["Done."]
    assert [core.decode_event(core.encode_line(each)) for each in nested] == nested


def test_events_of_a_run_within_an_inner_run_are_nested_twice():
    innermost = Agent(ScriptedModel(["deep"]))
    events = follow(asking(asking(innermost)).stream("?"))
    (text,) = [
        each.event.event.text
        for each in events
        if isinstance(each, core.Nested)
        and isinstance(each.event, core.Nested)
        and isinstance(each.event.event, core.TextPiece)
    ]
    assert text == "deep"


async def test_inner_events_come_while_the_tool_runs():
    answered = asyncio.Event()

    @tool
    async def wait(context: Context) -> str:
        """Wait."""
        context.progress(1)
        await answered.wait()
        return "waited"

    inner = Agent(ScriptedModel([Call("wait"), "Done."]), [wait])
    async for event in asking(inner).stream("?"):
        if isinstance(event, core.Nested) and isinstance(event.event, core.ToolProgress):
            answered.set()
    assert answered.is_set()


# Time and cancellation.


def test_an_inner_run_has_no_time_but_its_limits():
    agent = asking(Agent(ScriptedModel([])))
    tools = Ensemble("desk", [Agent(ScriptedModel([])).as_tool("ask", "Asks.")], {"timeout": 0.01})
    assert agent.registry["ask"].timeout == tools.access_invoker("ask").timeout == float("inf")


def test_a_tool_without_a_time_limit_runs_in_a_thread_too():
    @tool(timeout=float("inf"))
    def add(a: int) -> int:
        """Add."""
        return a

    agent = Agent(ScriptedModel([Call("add", {"a": 3}), "Done."]), [add])
    assert result_texts(agent.run_sync("?")) == ["3"]


async def test_what_ends_the_outer_run_ends_the_inner_one():
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(asking(Agent(ScriptedModel([Call("wait")]), [wait])).run("?"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    gc.collect()


def test_the_seconds_of_the_outer_run_bound_the_inner_one():
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()

    inner = Agent(ScriptedModel([Call("wait")]), [wait])
    result = asking(inner, limits=Limits(seconds=0.05)).run_sync("?")
    assert (result.state, result.why) == ("incomplete", "0.05 seconds are over")


# Tools of one's own.


@table("in_thread", [False, True])
def test_a_tool_of_ones_own_begins_a_run_within_the_run(in_thread):
    asked = []

    async def approve(invocation, _why):
        asked.append(invocation.name)
        return "allow"

    inner = deleting()

    @tool
    async def ask(prompt: str, context: Context) -> str:
        """Ask."""
        return (await inner.run(prompt, context=context)).output

    @tool
    def ask_in_thread(prompt: str, context: Context) -> str:
        """Ask."""
        return inner.run_sync(prompt, context=context).output

    mine = ask_in_thread if in_thread else ask
    model = ScriptedModel([Call(mine.name, {"prompt": "?"}), "Done."])
    events = follow(Agent(model, [mine], approve=approve).stream("?"))
    assert asked == ["delete"]
    assert inner.model.requests[1].canisters[-1].text == "deleted a"
    assert isinstance([each for each in events if isinstance(each, core.Nested)][-1].event, core.RunEnded)


def test_an_inner_call_whose_result_comes_from_outside_is_an_error_of_the_tool():
    inner = Agent(ScriptedModel([Call("delete", {"path": "a"})]), [Invoker.of(delete).replace(deferred=True)])
    result = asking(inner, approve=lambda *_: "allow").run_sync("?")
    assert result_texts(result)[0].startswith("Error: CallerError: ask gave no answer: 1 call waits")


def test_a_tool_that_is_an_agent_is_called_like_a_function():
    ask = Agent(ScriptedModel(["13"])).as_tool("ask", "Asks.")
    assert asyncio.run(ask("6 and 7?", Context())) == "13"
    assert ask.description == "Asks."
    with pytest.raises(CallerError):
        asyncio.run(ask("6 and 7?", context={}))
