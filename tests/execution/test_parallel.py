from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest
from tests.tables import table

from callboard import Agent, Context, Ensemble, tool
from callboard.core import InvocationCanister, Note, ResultCanister, ResultReady, ToolProgress
from callboard.errors import ToolExecutionFailure
from callboard.execution import ParallelExecutor
from callboard.testing import Call, ScriptedModel
from callboard.tools import InvokerRegistry


def call(name, identifier=None, **arguments):
    return InvocationCanister(identifier or name, name, arguments)


def local(*functions):
    return InvokerRegistry([Ensemble("local", functions)])


async def run(group, *invocations, answered=None):
    return [event async for event in group.run(invocations, answered)]


def results(events):
    return [event.canister for event in events if isinstance(event, ResultReady)]


def test_results_come_in_the_order_of_the_calls():
    async def scenario():
        second_ended = asyncio.Event()

        async def first() -> str:
            """End after the second."""
            await second_ended.wait()
            return "1"

        async def second() -> str:
            """End before the first."""
            second_ended.set()
            return "2"

        return await run(ParallelExecutor(local(first, second)), call("first"), call("second"))

    given = results(asyncio.run(scenario()))
    assert [(each.invocation_id, each.text) for each in given] == [("first", "1"), ("second", "2")]


async def test_a_result_is_given_while_others_still_run():
    first_given = asyncio.Event()

    async def quick() -> str:
        """Be quick."""
        return "quick"

    async def slow() -> str:
        """Wait until the first was given."""
        await first_given.wait()
        return "slow"

    given = []
    async for event in ParallelExecutor(local(quick, slow)).run([call("quick"), call("slow")]):
        given.append(event.canister.text)
        first_given.set()
    assert given == ["quick", "slow"]


@table("limit", [1, 2, 5])
async def test_so_many_run_at_once_and_no_more(limit):
    running, peak, full = [], [], asyncio.Event()

    async def work(number: int) -> None:
        """Work until as many are running as may."""
        running.append(number)
        peak.append(len(running))
        if len(running) == limit:
            full.set()
        await full.wait()
        await asyncio.sleep(0)  # whoever could begin now has begun
        running.remove(number)

    group = ParallelExecutor(local(work), limit=limit)
    await run(group, *(call("work", f"call_{number}", number=number) for number in range(10)))
    assert (max(peak), len(peak)) == (limit, 10)


def test_blocking_tools_run_at_once():
    barrier = threading.Barrier(3)

    def meet(number: int) -> int:
        """Wait for the others."""
        barrier.wait()
        return number

    given = asyncio.run(
        run(ParallelExecutor(local(meet)), *(call("meet", str(number), number=number) for number in range(3)))
    )
    assert [each.text for each in results(given)] == ["0", "1", "2"]


def test_what_is_answered_already_does_not_run():
    ran = []

    def act(number: int) -> str:
        ran.append(number)
        return "acted"

    denied = ResultCanister(invocation_id="a", content="no")
    given = asyncio.run(
        run(
            ParallelExecutor(local(act)), call("act", "a", number=1), call("act", "b", number=2), answered={"a": denied}
        )
    )
    assert [each.text for each in results(given)] == ["no", "acted"]
    assert ran == [2]


def test_failures_are_results_among_others():
    def good() -> str:
        """Work."""
        return "good"

    def bad() -> str:
        """Fail."""
        raise ValueError("no luck")

    invocations = [
        call("bad"),
        call("goood"),
        InvocationCanister("cut", "good", None, '{"a'),
        call("good", surplus=1),
        call("good", "fine"),
    ]
    given = results(asyncio.run(run(ParallelExecutor(local(good, bad)), *invocations)))
    assert [each.error and each.error.category for each in given] == [
        "execution",
        "not_found",
        "validation",
        "validation",
        None,
    ]
    assert given[1].text == "Error: no tool 'goood'; did you mean 'good'?"
    assert given[4] == ResultCanister(invocation_id="fine", content="good")


async def test_failing_fast_ends_the_others():
    ended = []

    started = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def bad() -> None:
        """Fail when the other runs."""
        await started.wait()
        raise ValueError("no luck")

    with pytest.raises(ToolExecutionFailure, match="Tool 'bad' failed: ValueError: no luck"):
        await run(ParallelExecutor(local(wait, bad), on_error="fail_fast"), call("bad"), call("wait"))
    assert ended == [True]


def test_an_abandoned_thread_is_told_of_before_its_result():
    release = threading.Event()

    @tool(timeout=0.5)
    def wait() -> None:
        """Wait for the test."""
        release.wait()

    try:
        note, ready = asyncio.run(run(ParallelExecutor(local(wait)), call("wait")))
    finally:
        release.set()
    assert note == Note("alert", "wait did not return within 0.5 s; its thread was left running")
    assert ready.canister.error.category == "timeout"


@table("how", ["cancel", "close"])
async def test_ending_it_early_cancels_what_runs(how):
    ended = []

    started = asyncio.Event()

    async def quick() -> str:
        """Be quick."""
        return "quick"

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    group = ParallelExecutor(local(quick, wait))
    if how == "cancel":
        task = asyncio.create_task(run(group, call("wait")))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with aclosing(group.run([call("quick"), call("wait")])) as events:
            assert (await anext(events)).canister.text == "quick"
            await started.wait()
    assert ended == [True]


async def test_a_call_that_will_not_be_cancelled_is_left_alone(monkeypatch):
    monkeypatch.setattr("callboard.execution.parallel.GRACE", 0.01)

    begun, over = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        """Heed no cancellation."""
        begun.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return "over"

    async def quick() -> str:
        """End at once."""
        await begun.wait()
        return "quick"

    group = ParallelExecutor(local(stubborn, quick))
    running = asyncio.create_task(run(group, call("stubborn"), call("quick")))
    await begun.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    over.set()
    assert [each.text for each in group.unseen] == ["quick"]


async def test_what_a_tool_sees_of_its_run():
    def count(context: Context) -> str:
        """Count the calls."""
        context.namespace["calls"] = context.namespace.get("calls", 0) + 1
        return f"{context.namespace['calls']} for {context.auxdata['user']} by {context.invoker.name}"

    here = Ensemble("here", [count, tool(name="also")(count)])
    there = Ensemble("there", [tool(name="other")(count)])
    group = ParallelExecutor(InvokerRegistry([here, there]), auxdata={"user": "ada"})

    assert [(await run(group, call(name)))[0].canister.text for name in ("count", "also", "other", "count")] == [
        "1 for ada by count",
        "2 for ada by also",
        "1 for ada by other",
        "3 for ada by count",
    ]
    assert group.namespaces == {"here": {"calls": 3}, "there": {"calls": 1}}


def test_arguments_as_they_are_where_the_mode_does_not_validate():
    def double(number: int) -> int:
        return number * 2

    group = ParallelExecutor(local(double), validated=False)
    assert results(asyncio.run(run(group, call("double", number="21"))))[0].text == "2121"


def test_nothing_to_run():
    assert asyncio.run(run(ParallelExecutor({}))) == []


# What tools tell while they run.


def events_of(*tools, calls):
    async def run():
        agent = Agent(ScriptedModel([calls, "Done."]), tools)
        return [event async for event in agent.stream("Go.") if isinstance(event, (ToolProgress, ResultReady))]

    return asyncio.run(run())


def test_progress_is_told_before_the_result():
    @tool
    async def work(context: Context) -> str:
        context.progress(1, 2, "halfway")
        await asyncio.sleep(0)
        context.progress(2, 2)
        return "done"

    first, second, ready = events_of(work, calls=[Call("work", identifier="c")])
    assert (first, second) == (ToolProgress("c", 1, 2, "halfway"), ToolProgress("c", 2, 2))
    assert ready.canister.text == "done"


async def test_it_comes_at_once_and_of_all_calls():
    """The first call ends only when the progress of the second has reached whoever listens."""
    heard = {}

    @tool
    async def waits() -> str:
        await heard["event"].wait()
        return "waited"

    @tool
    async def tells(context: Context) -> str:
        context.progress(1)
        await heard["event"].wait()
        return "told"

    heard["event"] = asyncio.Event()
    agent = Agent(ScriptedModel([[Call("waits"), Call("tells", identifier="t")], "Done."]), [waits, tells])
    seen = []
    async for event in agent.stream("Go."):
        if isinstance(event, ToolProgress):
            heard["event"].set()
        seen.append(event)
    told, *results = [event for event in seen if isinstance(event, (ToolProgress, ResultReady))]
    assert told == ToolProgress("t", 1)
    assert [each.canister.text for each in results] == ["waited", "told"]


async def test_what_comes_while_the_listener_is_busy_is_told_before_the_call_ends():
    heard = [asyncio.Event(), asyncio.Event()]

    @tool
    async def work(context: Context) -> str:
        for number, event in enumerate([*heard]):
            context.progress(number)
            await event.wait()
        return "done"

    agent = Agent(ScriptedModel([[Call("work", identifier="w")], "Done."]), [work])
    async for event in agent.stream("Go."):
        if isinstance(event, ToolProgress):
            heard.pop(0).set()
            for _ in range(9):  # until the tool has told the next
                await asyncio.sleep(0)
    assert heard == []


def test_a_thread_may_tell_too():
    @tool
    def work(context: Context) -> str:
        context.progress(1, None, threading.current_thread().name)
        return "done"

    told, ready = events_of(work, calls=[Call("work")])
    assert told.progress == 1
    assert told.message != threading.current_thread().name
    assert ready.canister.text == "done"
