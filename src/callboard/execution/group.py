"""The invocations of one reply, run together.

Owns their concurrency and their order: they run at once, results come in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from callboard.core import Event, InvocationCanister, Note, ResultCanister, ResultReady
from callboard.execution.execute import OnError, execute_invoker
from callboard.tools import Context, Invoker, refusal

DEFAULT_LIMIT = 16
"""Invocations at once."""

GRACE = 2.0
"""Seconds that cancelled invocations have to clean up; after that nobody waits for them."""

BeforeCall: TypeAlias = Callable[[InvocationCanister], Awaitable[InvocationCanister | ResultCanister | None]]
"""Looks at an invocation: gives another one to run in its place, a result that spares running it, or None."""

AfterCall: TypeAlias = Callable[[InvocationCanister, ResultCanister], Awaitable[ResultCanister | None]]
"""Looks at a result: gives another one in its place, or None."""


class Group:
    """Runs groups of invocations over one set of invokers, with the state they share in a run.

    Hooks run inside the concurrency limit, once an invocation, whatever retries follow; what they raise ends
    the run. `namespaces` holds one mutable mapping for each ensemble, by its name.
    """

    def __init__(
        self,
        invokers: Mapping[str, Invoker],
        *,
        auxdata: Mapping[str, Any] | None = None,
        on_error: OnError = "feedback",
        validated: bool = True,
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._invokers = invokers
        self._auxdata = auxdata or {}
        self._on_error: OnError = on_error
        self._validated = validated
        self._before_call = before_call
        self._after_call = after_call
        self._limit = limit
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.unseen: list[ResultCanister] = []
        """Results of invocations that had ended when `run` was closed."""

    async def run(
        self, invocations: Sequence[InvocationCanister], answered: Mapping[str, ResultCanister] | None = None
    ) -> AsyncGenerator[Event]:
        """ResultReady for each invocation in their order, Notes in between. Closing it cancels what runs.

        `answered` has the results of those that are not to run, by their identifiers.
        """
        gate = asyncio.Semaphore(self._limit)
        notes: deque[Note] = deque()
        given = answered or {}
        tasks = {
            invocation.identifier: asyncio.create_task(self._one(invocation, gate, notes))
            for invocation in invocations
            if invocation.identifier not in given
        }
        self.unseen = []
        try:
            if self._on_error == "fail_fast" and tasks:
                ended, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
                for task in ended:
                    task.result()
            for invocation in invocations:
                identifier = invocation.identifier
                if identifier in given:
                    result = given[identifier]
                else:
                    # To await the task itself would be to wait for it even after a cancellation.
                    await asyncio.wait((tasks[identifier],))
                    result = tasks.pop(identifier).result()
                while notes:
                    yield notes.popleft()
                yield ResultReady(result)
        finally:
            for task in tasks.values():
                task.cancel()
            try:
                if tasks:
                    await asyncio.wait(tasks.values(), timeout=GRACE)
            finally:
                self.unseen = [task.result() for task in tasks.values() if _succeeded(task)]

    async def _one(self, invocation: InvocationCanister, gate: asyncio.Semaphore, notes: deque[Note]) -> ResultCanister:
        async with gate:
            asked = await self._before_call(invocation) if self._before_call else None
            if isinstance(asked, ResultCanister):
                result = asked
            else:
                result = await self._execute(asked or invocation, notes)
                changed = await self._after_call(invocation, result) if self._after_call else None
                result = changed or result
            return replace(result, invocation_id=invocation.identifier)

    async def _execute(self, invocation: InvocationCanister, notes: deque[Note]) -> ResultCanister:
        refused = refusal(invocation, self._invokers)
        if refused is not None:
            return refused
        invoker = self._invokers[invocation.name]
        return await execute_invoker(
            invoker,
            invocation.arguments or {},
            Context(self._auxdata, self._namespace(invoker), invoker),
            identifier=invocation.identifier,
            on_error=self._on_error,
            validated=self._validated,
            tell=lambda text: notes.append(Note("alert", text)),
        )

    def _namespace(self, invoker: Invoker) -> MutableMapping[str, Any]:
        return self.namespaces.setdefault(invoker.ensemble.name if invoker.ensemble else "", {})


def _succeeded(task: asyncio.Task[ResultCanister]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
