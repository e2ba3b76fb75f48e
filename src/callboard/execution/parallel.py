"""Run the invocations of one reply in parallel; their results come in the order of the calls."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from callboard.core import Event, InvocationCanister, Note, ResultCanister, ResultReady, ToolProgress
from callboard.core.events import NoteCode
from callboard.core.ports import CallJournal
from callboard.errors import CallerError
from callboard.execution.execute import GRACE, OnError, run_invoker
from callboard.telemetry.counts import DEFERRED, UNKNOWN, count_tool_call
from callboard.tools import Context, Invoker, Policy, check_call

DEFAULT_LIMIT = 16
"""Invocations at once."""

_Before: TypeAlias = InvocationCanister | ResultCanister | None
BeforeCall: TypeAlias = Callable[[InvocationCanister], Awaitable[_Before] | _Before]
"""Looks at an invocation: gives another one to run in its place, a result that spares running it, or None."""

_After: TypeAlias = ResultCanister | None
AfterCall: TypeAlias = Callable[[InvocationCanister, ResultCanister], Awaitable[_After] | _After]
"""Looks at a result: gives another one in its place, or None."""

Enclose: TypeAlias = Callable[[InvocationCanister, Callable[[Event], None]], object]
"""Makes `Context.run` of a call from the invocation and the function that gives the run an event."""
_ALERTED: Final = frozenset({"validation", "timeout"})
"""What is always a result, also where a run fails fast, and so would go unnoticed."""


class ParallelExecutor:
    """Runs groups of invocations over one set of invokers, with the state they share in a run.

    Hooks run inside the concurrency limit, once an invocation, whatever retries follow; what they raise ends
    the run. What tools come upon is theirs as far as the `policy` permits; which calls run is decided elsewhere.
    `enclose` makes what a tool hands to a run that it begins. `journal` is told before a tool begins and as soon as its
    result is there, behind the hooks. `limit` invocations are under way at once, those of one in their order.
    `namespaces` holds one mutable mapping for each ensemble, by its name.
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
        policy: Policy | None = None,
    ) -> None:
        self._invokers = invokers
        self.enclose: Enclose | None = None
        self.journal: CallJournal | None = None
        self._policy = policy or Policy()
        self._auxdata = MappingProxyType(dict(auxdata or {}))
        self._on_error: OnError = on_error
        self._validated = validated
        self._before_call = before_call
        self._after_call = after_call
        if limit < 1:
            raise CallerError(f"calls are under way one at a time at least, not {limit}", path="max_parallel_calls")
        self._limit = limit
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.unseen: list[ResultCanister] = []
        """Results of invocations that had ended when `run` was closed."""

    async def run(
        self, invocations: Sequence[InvocationCanister], answered: Mapping[str, ResultCanister] | None = None
    ) -> AsyncGenerator[Event]:
        """ResultReady for each invocation in their order, in between Notes and, at once, what tools tell of their
        progress. Before a result that arguments did not fit or that time ran out stands an alert. Where a call fails
        fast, those of the calls that had ended by then are given too. Closing it cancels what runs.

        `answered` has the results of those that are not to run, by their identifiers; its owner has found that the
        others can run. Without it each invocation is checked for that.
        """
        gate = asyncio.Semaphore(self._limit)
        news = _Progress()
        known = answered or {}
        is_checked = answered is not None
        tasks = {
            invocation.identifier: asyncio.create_task(self._run_one(invocation, gate, news, is_checked=is_checked))
            for invocation in invocations
            if invocation.identifier not in known
        }
        self.unseen = []
        try:
            if self._on_error == "fail_fast" and tasks:
                ended, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
                failed = [task for task in ended if not _has_succeeded(task)]
                for alert in news.alerts(invocations, {**known, **_results(tasks)}) if failed else ():
                    yield alert
                for task in failed:
                    task.result()
            for invocation in invocations:
                identifier = invocation.identifier
                if identifier in known:
                    result = known[identifier]
                    self._count_refused(invocation.name, result)
                else:
                    task = tasks[identifier]
                    while not task.done():
                        # To await the task itself would be to wait for it even after a cancellation.
                        await asyncio.wait((task, news.arrival()), return_when=asyncio.FIRST_COMPLETED)
                        while news.events:
                            yield news.events.popleft()
                    result = tasks.pop(identifier).result()
                for event in news.alerts([invocation], {identifier: result}):
                    yield event
                yield ResultReady(result)
        finally:
            for task in tasks.values():
                task.cancel()
            try:
                if tasks:
                    await asyncio.wait(tasks.values(), timeout=GRACE)
            finally:
                self.unseen = [*_results(tasks).values()]

    async def _run_one(
        self, invocation: InvocationCanister, gate: asyncio.Semaphore, news: _Progress, *, is_checked: bool
    ) -> ResultCanister:
        async with gate:
            replacement = await _await_hook(self._before_call(invocation)) if self._before_call else None
            _check_hook("before_call", replacement, (InvocationCanister, ResultCanister))
            if isinstance(replacement, ResultCanister):
                result = replacement
            else:
                # It answers the model's call, whichever one the hook made.
                running = invocation if replacement is None else replace(replacement, identifier=invocation.identifier)
                refused = None if is_checked and replacement is None else check_call(running, self._invokers)
                if refused is not None:
                    self._count_refused(running.name, refused)
                early = refused
                if early is None and self.journal is not None:
                    idempotent = self._invokers[running.name].is_idempotent(running.arguments or {})
                    early = await self.journal.begin_call(running, idempotent)
                result = early or await self._execute(running, news)
                changed = await _await_hook(self._after_call(invocation, result)) if self._after_call else None
                _check_hook("after_call", changed, (ResultCanister,))
                result = result if changed is None else changed
                if self.journal is not None and early is None:
                    result = replace(result, invocation_id=invocation.identifier)
                    await self.journal.end_call(invocation, result)
            return replace(result, invocation_id=invocation.identifier)

    async def _execute(self, invocation: InvocationCanister, news: _Progress) -> ResultCanister:
        invoker = self._invokers[invocation.name]
        arguments = invocation.arguments or {}
        return await run_invoker(
            invoker,
            arguments,
            Context(
                self._auxdata,
                self.namespaces.setdefault(invoker.ensemble.name if invoker.ensemble else "", {}),
                invoker,
                partial(news.progress, invocation.identifier),
                self._policy.permits(invoker, arguments),
                self.enclose(invocation, news.emit) if self.enclose else None,
                self.journal.call_key(invocation) if self.journal else "",
            ),
            identifier=invocation.identifier,
            on_error=self._on_error,
            validated=self._validated,
            tell=partial(news.alert, invocation.identifier),
        )

    def _count_refused(self, name: str, result: ResultCanister) -> None:
        """Count a call that did not run, if it failed. Its name may be any text of the model's or a client's."""
        if result.error is not None:
            invoker = self._invokers.get(name)
            label = UNKNOWN if invoker is None else DEFERRED if invoker.deferred else name
            count_tool_call(label, 0.0, result.error.category)


class _Progress:
    """Notes and progress of running tools."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self._alerted: set[str] = set()
        """The invocations that an alert was given of."""
        self._loop = asyncio.get_running_loop()
        self._arrival = self._loop.create_future()

    def alert(self, identifier: str, text: str, *, code: NoteCode = "") -> None:
        self._alerted.add(identifier)
        self.events.append(Note("alert", text, code=code))

    def alerts(
        self, invocations: Iterable[InvocationCanister], results: Mapping[str, ResultCanister]
    ) -> Iterator[Event]:
        """What is left to tell, and an alert for each of the invocations whose result wants one and had none."""
        for each in invocations:
            result = results.get(each.identifier)
            error = None if result is None else result.error
            if error is not None and error.category in _ALERTED and each.identifier not in self._alerted:
                self.alert(each.identifier, f"{each.name}: {error.message}", code="failed_call")
        while self.events:
            yield self.events.popleft()

    def arrival(self) -> asyncio.Future[None]:
        """Done when there is something new."""
        if self._arrival.done():
            self._arrival = self._loop.create_future()
        return self._arrival

    def progress(self, identifier: str, done: float, total: float | None = None, message: str = "", /) -> None:
        self.emit(ToolProgress(identifier, done, total, message))

    def emit(self, event: Event) -> None:
        with suppress(RuntimeError):  # of a thread that outlived the loop
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if not self._arrival.done():
            self._arrival.set_result(None)


async def _await_hook(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _check_hook(hook: str, value: object, kinds: tuple[type, ...]) -> None:
    """Raises CallerError for what a hook may not give: a hook that says False means that the call shall not run."""
    if value is not None and not isinstance(value, kinds):
        names = " or ".join([f"{each.__name__}" for each in kinds])
        raise CallerError(f"{hook} gave a {type(value).__name__}", path=hook, hint=f"give None or a {names}")


def _results(tasks: Mapping[str, asyncio.Task[ResultCanister]]) -> dict[str, ResultCanister]:
    return {identifier: task.result() for identifier, task in tasks.items() if _has_succeeded(task)}


def _has_succeeded(task: asyncio.Task[ResultCanister]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
