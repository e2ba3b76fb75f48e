"""A run, event by event, where no event loop runs.

The event loop is the run's own and goes only while the next event is waited for: between two events nothing happens,
as in an asynchronous `for`. One task drives the whole run, since what a run awaits may belong to its task (an MCP
server's connection does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Generic, Self

from callboard.agent.output_type import OutputT_co
from callboard.agent.run import Run, RunResult
from callboard.core import Event
from callboard.errors import CallboardError


class SyncRun(Generic[OutputT_co]):
    """A run of an agent: iterate over it for its events, then `result` is there.

    A run that may be left early is entered first (`with agent.stream_sync(...) as run`): where the block is left, what
    is under way is cancelled, as with `Run`.
    """

    def __init__(self, run: Run[OutputT_co]) -> None:
        self._run = run
        self._block: ExitStack | None = None

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def ended(self) -> bool:
        """Whether it is over, and `result` can be read."""
        return self._run.ended

    @property
    def result(self) -> RunResult[OutputT_co]:
        """The result of the run. Raises CallerError while it is not over."""
        return self._run.result

    @property
    def partial_output(self) -> Any:
        """The output while it is written, as `Run.partial_output`."""
        return self._run.partial_output

    @property
    def failure(self) -> CallboardError | None:
        """The error that ended a run which failed."""
        return self._run.failure

    def __enter__(self) -> Self:
        self._block = ExitStack()
        return self

    def __exit__(self, *_: object) -> None:
        if self._block is not None:
            self._block.close()

    def __iter__(self) -> Generator[Event]:
        events = self._go()
        if self._block is not None:
            self._block.callback(events.close)
        return events

    def _go(self) -> Generator[Event]:
        arrived: asyncio.Queue[Event | None] = asyncio.Queue()
        requested = asyncio.Semaphore(0)

        async def drive() -> None:
            try:
                async with self._run:
                    async for event in self._run:
                        arrived.put_nowait(event)
                        await requested.acquire()
            finally:
                arrived.put_nowait(None)

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(drive())

        # Where the generator is closed the runner cancels the task, and waits until it has ended.
        with asyncio.Runner() as runner:
            driving = runner.run(begin())
            while (event := runner.run(arrived.get())) is not None:
                yield event
                requested.release()
            runner.run(asyncio.wait_for(driving, None))  # raises what the run raised
