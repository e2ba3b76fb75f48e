"""What tools tell while they run."""

import asyncio
import threading

from callboard import Agent, Context, tool
from callboard.core import ResultReady, ToolProgress
from callboard.testing import Call, ScriptedModel


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


def test_a_thread_may_tell_too():
    @tool
    def work(context: Context) -> str:
        context.progress(1, None, threading.current_thread().name)
        return "done"

    told, ready = events_of(work, calls=[Call("work")])
    assert told.progress == 1
    assert told.message != threading.current_thread().name
    assert ready.canister.text == "done"
