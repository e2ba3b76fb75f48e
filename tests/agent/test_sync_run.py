"""A run, event by event, without an event loop."""

import asyncio
import threading

import pytest
from tests.agent.runs import add
from tests.tables import table

from callboard import Agent, tool
from callboard.core import InvocationEnded, ResultReady, TextPiece
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel

SCRIPT = [["I add.", Call("add", {"a": 2, "b": 3})], "5"]


def events_of(agent):
    async def follow():
        return [event async for event in agent.stream("2 and 3?")]

    return asyncio.run(follow())


def test_the_events_are_those_of_an_asynchronous_run():
    run = Agent(ScriptedModel(SCRIPT), [add]).stream_sync("2 and 3?")
    assert [type(event) for event in run] == [type(event) for event in events_of(Agent(ScriptedModel(SCRIPT), [add]))]
    assert (run.ended, run.result.output, run.failure) == (True, "5", None)


def test_nothing_happens_between_two_events():
    called = []

    @tool
    def touch() -> None:
        called.append(True)

    with Agent(ScriptedModel([Call("touch"), "Done."]), [touch]).stream_sync("Go.") as run:
        for event in run:
            if isinstance(event, InvocationEnded):
                break
    assert (called, run.result.state) == ([], "cancelled")


@table("entered", [True, False])
def test_leaving_cancels_what_is_under_way(entered):
    ended = []

    @tool
    async def wait() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    run = Agent(ScriptedModel([[Call("add", {"a": 1, "b": 1}), Call("wait")]]), [add, wait]).stream_sync("Go.")
    threads = threading.active_count()

    def follow():
        for event in run:
            if isinstance(event, ResultReady):
                return

    if entered:
        with run:
            follow()
    else:
        follow()
    assert (ended, run.result.state) == ([True], "cancelled")
    assert [each.text for each in run.result.canisters[-2:]] == ["2", "Error: the run was cancelled"]
    assert threading.active_count() <= threads + 1  # the thread of `add` may wait for more


def test_what_a_run_raises_is_raised():
    class Broken:
        name = "broken"

        def batches(self, request):
            raise RuntimeError("no luck")

    run = Agent(Broken()).stream_sync("?")
    with pytest.raises(RuntimeError, match="no luck"):
        for _ in run:
            pass
    assert run.result.state == "failed"


def test_an_exception_of_the_caller_leaves_the_run():
    run = Agent(ScriptedModel(["Hello."])).stream_sync("?")

    def follow():
        with run:
            for event in run:
                if isinstance(event, TextPiece):
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        follow()
    assert run.result.state == "cancelled"


async def test_where_an_event_loop_runs_it_is_refused():
    with pytest.raises(CallerError, match="async for event in agent"):
        Agent(ScriptedModel([])).stream_sync("?")


def test_a_run_goes_only_once():
    run = Agent(ScriptedModel(["Hello."])).stream_sync("?")
    assert [*run]
    with pytest.raises(CallerError, match="only once"):
        next(iter(run))
