"""A run for callers without an event loop, event by event.

The run has its own event loop, which runs only while the caller waits for the next event, as in an asynchronous `for`.
One task drives the whole run, because a resource may belong to its task (an MCP server's connection does).
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
    """The `run` of an agent: iterate over it for its events, then read `result`.

    If you may leave a run early, enter it first (`with agent.stream_sync(...) as run`). Leaving the block cancels the
    run, as with `Run`.
    """

    def __init__(self, run: Run[OutputT_co]) -> None:
        self._run = run
        self._block: ExitStack | None = None

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def ended(self) -> bool:
        """Whether the run has ended and `result` is available."""
        return self._run.ended

    @property
    def result(self) -> RunResult[OutputT_co]:
        """The result of the run. Raises CallerError while the run is under way."""
        return self._run.result

    @property
    def partial_output(self) -> Any:
        """The output while the model writes it, like `Run.partial_output`."""
        return self._run.partial_output

    @property
    def failure(self) -> CallboardError | None:
        """The error that ended a failed run."""
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

        # If the generator is closed, the runner cancels the task and waits for its end.
        with asyncio.Runner() as runner:
            driving = runner.run(begin())
            while (event := runner.run(arrived.get())) is not None:
                yield event
                requested.release()
            runner.run(asyncio.wait_for(driving, None))  # raises what the run raised
