from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest
from tests.tables import table

from callboard.execution.thread_pool import ThreadPool

WHO = contextvars.ContextVar("WHO", default="nobody")


@pytest.fixture
def release():
    """What stuck work waits for; released at the latest when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def start(threads, function):
    """The work, handed over but not awaited."""

    async def run():
        return await threads.run(function)

    return asyncio.create_task(run())


def fail(error):
    raise error


async def test_what_is_returned_and_what_is_raised():
    threads = ThreadPool()
    assert await threads.run(lambda: 6 * 7) == 42
    with pytest.raises(LookupError, match="not there"):
        await threads.run(lambda: fail(LookupError("not there")))


@table("error", [StopIteration("no"), SystemExit("no"), KeyboardInterrupt("no")])
async def test_what_would_end_more_than_the_work(error):
    with pytest.raises(RuntimeError, match=f"^{type(error).__name__}: no$"):
        await ThreadPool().run(lambda: fail(error))


async def test_work_runs_in_a_thread_of_its_own_that_is_used_again():
    threads = ThreadPool()
    first = await threads.run(threading.current_thread)
    assert first is not threading.current_thread()
    assert (first.name, first.daemon) == ("callboard-1", True)
    assert await threads.run(threading.current_thread) is first


async def test_work_sees_its_callers_context():
    WHO.set("ada")
    assert await ThreadPool().run(WHO.get) == "ada"


async def test_works_at_once_have_threads_of_their_own():
    threads, barrier = ThreadPool(2), threading.Barrier(2)
    # Both pass the barrier only if both are running.
    await asyncio.gather(threads.run(barrier.wait), threads.run(barrier.wait))


async def test_beyond_the_limit_work_waits(release):
    before = threading.active_count()
    threads, done = ThreadPool(1), []

    def slow():
        release.wait()
        done.append("slow")

    first = start(threads, slow)
    second = start(threads, lambda: done.append("quick"))
    while threading.active_count() < before + 1:  # noqa: ASYNC110 - a thread's start sets no event
        await asyncio.sleep(0)
    release.set()
    await asyncio.gather(first, second)
    assert done == ["slow", "quick"]
    assert threading.active_count() == before + 1


async def test_a_thread_that_does_not_come_back_takes_no_other_work(release):
    threads, started = ThreadPool(2), threading.Event()

    def stuck():
        started.set()
        release.wait()

    waiting = start(threads, stuck)
    await asyncio.to_thread(started.wait)
    waiting.cancel()
    names = {(await threads.run(threading.current_thread)).name for _ in range(5)}
    assert names == {"callboard-2"}


async def test_what_is_cancelled_before_it_began_never_begins(release):
    threads, did = ThreadPool(1), []
    stuck = start(threads, release.wait)
    cancelled = start(threads, lambda: did.append("cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    release.set()
    await stuck
    await threads.run(lambda: did.append("after"))
    assert did == ["after"]


def test_a_thread_may_outlive_the_event_loop_that_asked_it(release):
    threads, started = ThreadPool(1), threading.Event()

    async def leave():
        def stuck():
            started.set()
            release.wait()

        waiting = start(threads, stuck)
        await asyncio.to_thread(started.wait)
        waiting.cancel()

    async def come_back():
        return await threads.run(lambda: "back")

    asyncio.run(leave())
    release.set()
    assert asyncio.run(come_back()) == "back"


def test_the_process_ends_without_waiting_for_a_stuck_thread():
    program = """
import asyncio, threading
from callboard import Ensemble, execute_invoker, tool

@tool(timeout=0.01)
def stuck() -> None:
    "Wait for ever."
    threading.Event().wait()

invoker = Ensemble("local", [stuck]).access_invoker("stuck")
print(asyncio.run(execute_invoker(invoker, {})).error.category)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "timeout\n"
