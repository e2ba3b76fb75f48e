import asyncio
import os
import signal

import pytest
from tests.tables import table

from callboard.coding.cancellation import cancel_on_signals, finish_despite_cancellation


def test_it_gives_what_it_came_to():
    async def work():
        await asyncio.sleep(0)
        return 1

    assert asyncio.run(finish_despite_cancellation(work())) == 1


@table("times", [1, 3])
async def test_it_is_over_before_a_cancellation_goes_on(times):
    done = []

    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        await may_end.wait()
        done.append("work")

    async def waits():
        try:
            await finish_despite_cancellation(work())
        finally:
            done.append("who waits")

    task = asyncio.create_task(waits())
    await begun.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        assert done == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work", "who waits"]


@table("cancels", [False, True])
async def test_what_it_raises_is_not_lost(cancels):
    async def work():
        await asyncio.sleep(0)
        raise OSError("full")

    task = asyncio.create_task(finish_despite_cancellation(work()))
    await asyncio.sleep(0)
    if cancels:
        task.cancel()
    with pytest.raises(OSError, match="full"):
        await task


@table(("number", "ends"), [(signal.SIGTERM, True), (signal.SIGHUP, False)])
def test_nohup_keeps_its_meaning(number, ends):
    async def work():
        with cancel_on_signals() as received:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 600 if ends else 0.01)
            except (asyncio.CancelledError, TimeoutError):
                return received

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert asyncio.run(work()) == [number] * ends
    finally:
        signal.signal(signal.SIGHUP, before)
