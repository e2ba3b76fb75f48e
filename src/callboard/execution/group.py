"""The invocations of one reply, run together.

Owns their concurrency and their order: they run at once, results come in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from typing import Any

from callboard.core import Event, InvocationCanister, Note, ResultCanister, ResultReady
from callboard.execution.execute import OnError, execute_invoker
from callboard.tools import Context, Invoker, refusal

DEFAULT_LIMIT = 16
"""Invocations at once."""


class Group:
    """Runs groups of invocations over one set of invokers, with the state they share in a run.

    `namespaces` holds one mutable mapping for each ensemble, by its name.
    """

    def __init__(
        self,
        invokers: Mapping[str, Invoker],
        *,
        auxdata: Mapping[str, Any] | None = None,
        on_error: OnError = "feedback",
        validated: bool = True,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._invokers = invokers
        self._auxdata = auxdata or {}
        self._on_error: OnError = on_error
        self._validated = validated
        self._limit = limit
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}

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
        try:
            for invocation in invocations:
                identifier = invocation.identifier
                result = given[identifier] if identifier in given else await tasks[identifier]
                while notes:
                    yield notes.popleft()
                yield ResultReady(result)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _one(self, invocation: InvocationCanister, gate: asyncio.Semaphore, notes: deque[Note]) -> ResultCanister:
        refused = refusal(invocation, self._invokers)
        if refused is not None:
            return refused
        invoker = self._invokers[invocation.name]
        async with gate:
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
