"""Run the invocations of one reply in parallel, and return their results in the order of the calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
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
"""Maximum invocations at the same time."""

_Before: TypeAlias = InvocationCanister | ResultCanister | None
BeforeCall: TypeAlias = Callable[[InvocationCanister], Awaitable[_Before] | _Before]
"""Sees an invocation before it runs. Returns a replacement, a result to use instead of running it, or None."""

_After: TypeAlias = ResultCanister | None
AfterCall: TypeAlias = Callable[[InvocationCanister, ResultCanister], Awaitable[_After] | _After]
"""Sees a result. Returns a replacement or None."""

Enclose: TypeAlias = Callable[[InvocationCanister, Callable[[Event], None]], object]
"""Makes `Context.run` of a call from the invocation and a function that sends events to the run."""
_ALERTED: Final = frozenset({"validation", "timeout"})
"""Errors that are results even if a run fails fast, and would otherwise go unnoticed."""


class ParallelExecutor:
    """Run groups of invocations over one set of `invokers`, with the state that they share in a run.

    The hooks `before_call` and `after_call` run once per invocation, inside the concurrency limit and without retries;
    their exceptions end the run. The `policy` limits what tools may read of the files that they find; it does not
    decide which calls run. With `keep_order`, a call that is not idempotent runs alone: after the calls before it, and
    before those after it. `enclose` makes what a tool needs for nested runs. `journal` records when a tool begins, and
    its result as soon as it is there, after the hooks. At most `limit` invocations run at the same time; with 1 they
    run in order. `namespaces` holds one mutable mapping for each ensemble, by name. `auxdata` is for the tools'
    contexts. `on_error` says whether a tool's failure ends the run, and `validated` whether arguments are validated.
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
        keep_order: bool = False,
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
        self._keep_order = keep_order
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.unseen: list[ResultCanister] = []
        """Results of invocations that had ended when `run` was closed."""

    async def run(
        self, invocations: Sequence[InvocationCanister], answered: Mapping[str, ResultCanister] | None = None
    ) -> AsyncGenerator[Event]:
        """Yield a ResultReady for each of the `invocations`, in order. Yield Notes and the progress of tools at once.

        An alert precedes a result with invalid arguments or a timeout. If a call fails fast, the calls that have ended
        still yield their results. Closing the generator cancels running calls. `answered` has results of invocations
        that must not run, by identifier; its caller has checked the others. Without it each invocation is checked.
        """
        gate = asyncio.Semaphore(self._limit)
        news = _Progress()
        known = answered or {}
        is_checked = answered is not None
        tasks: dict[str, asyncio.Task[ResultCanister]] = {}
        alone: list[asyncio.Task[ResultCanister]] = []  # the last call that runs alone
        after: list[asyncio.Task[ResultCanister]] = []  # the calls after it
        for invocation in invocations:
            if invocation.identifier in known:
                continue
            is_alone = self._keep_order and not self._is_idempotent(invocation)
            before = [*alone, *after] if is_alone else alone
            task = asyncio.create_task(self._run_one(invocation, before, gate, news, is_checked=is_checked))
            task.add_done_callback(news.wake)
            tasks[invocation.identifier] = task
            if is_alone:
                alone, after = [task], []
            else:
                after.append(task)
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
                        # Awaiting the task itself would mean waiting for it even after a cancellation.
                        await news.arrival()
                        for event in news.take():
                            yield event
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

    def _is_idempotent(self, invocation: InvocationCanister) -> bool:
        invoker = self._invokers.get(invocation.name)
        return invoker is not None and invoker.is_idempotent(invocation.arguments or {})

    async def _run_one(
        self,
        invocation: InvocationCanister,
        before: Collection[asyncio.Task[ResultCanister]],
        gate: asyncio.Semaphore,
        news: _Progress,
        *,
        is_checked: bool,
    ) -> ResultCanister:
        if before:
            await asyncio.wait(before)
            for each in before:
                each.result()  # no call runs after one that ended the run
        async with gate:
            replacement = await _await_hook(self._before_call(invocation)) if self._before_call else None
            _check_hook("before_call", replacement, (InvocationCanister, ResultCanister))
            if isinstance(replacement, ResultCanister):
                result = replacement
            else:
                # The result answers the model's call, even if the hook replaced the call.
                running = invocation if replacement is None else replace(replacement, identifier=invocation.identifier)
                refused = None if is_checked and replacement is None else check_call(running, self._invokers)
                if refused is not None:
                    self._count_refused(running.name, refused)
                early = refused
                if early is None and self.journal is not None:
                    early = await self.journal.begin_call(running, self._is_idempotent(running))
                result = early or await self._execute(running, news)
                changed = await _await_hook(self._after_call(invocation, result)) if self._after_call else None
                _check_hook("after_call", changed, (ResultCanister,))
                result = result if changed is None else changed
                if self.journal is not None and early is None:
                    result = replace(result, invocation_id=invocation.identifier)
                    await self.journal.end_call(invocation, result)
            is_own = result.invocation_id == invocation.identifier
            return result if is_own else replace(result, invocation_id=invocation.identifier)

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
        """Count a call that did not run, if it failed. Its name may be any text of the model or a client."""
        if result.error is not None:
            invoker = self._invokers.get(name)
            label = UNKNOWN if invoker is None else DEFERRED if invoker.deferred else name
            count_tool_call(label, 0.0, result.error.category)


class _Progress:
    """Notes and progress of running tools."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._alerted: set[str] = set()
        """Invocations that already had an alert."""
        self._loop = asyncio.get_running_loop()
        self._arrival = self._loop.create_future()

    def alert(self, identifier: str, text: str, *, code: NoteCode = "") -> None:
        self._alerted.add(identifier)
        self._events.append(Note("alert", text, code=code))

    def alerts(
        self, invocations: Iterable[InvocationCanister], results: Mapping[str, ResultCanister]
    ) -> Iterator[Event]:
        """Yield the remaining events, and an alert for each invocation whose result still needs one."""
        for each in invocations:
            result = results.get(each.identifier)
            error = None if result is None else result.error
            if error is not None and error.category in _ALERTED and each.identifier not in self._alerted:
                self.alert(each.identifier, f"{each.name}: {error.message}", code="failed_call")
        while self._events:
            yield from self.take()

    def take(self) -> list[Event]:
        """Return the events that have come, once."""
        events, self._events = self._events, []
        return events

    def arrival(self) -> asyncio.Future[None]:
        """Return a future that is done when there is an event to take, or a call has ended."""
        if self._arrival.done() and not self._events:
            self._arrival = self._loop.create_future()
        return self._arrival

    def progress(self, identifier: str, done: float, total: float | None = None, message: str = "", /) -> None:
        self.emit(ToolProgress(identifier, done, total, message))

    def emit(self, event: Event) -> None:
        with suppress(RuntimeError):  # from a thread that outlived the loop
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self.wake()

    def wake(self, _: object = None) -> None:
        """Make the future of `arrival` done."""
        if not self._arrival.done():
            self._arrival.set_result(None)


async def _await_hook(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _check_hook(hook: str, value: object, kinds: tuple[type, ...]) -> None:
    """Raise CallerError for an invalid value of a hook, such as False, which may mean that a call must not run."""
    if value is not None and not isinstance(value, kinds):
        names = " or ".join([f"{each.__name__}" for each in kinds])
        raise CallerError(f"{hook} gave a {type(value).__name__}", path=hook, hint=f"give None or a {names}")


def _results(tasks: Mapping[str, asyncio.Task[ResultCanister]]) -> dict[str, ResultCanister]:
    return {identifier: task.result() for identifier, task in tasks.items() if _has_succeeded(task)}


def _has_succeeded(task: asyncio.Task[ResultCanister]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
