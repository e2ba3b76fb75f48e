"""One invocation, run.

Owns timeouts, retries and the way from exceptions to results. Knows nothing of models.
Law: the tool's arguments are validated by its invoker, once; what comes back is always one result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

from callboard.core import ResultCanister, error_result
from callboard.errors import ToolExecutionFailure
from callboard.execution.categories import category_of
from callboard.execution.results import cut, result_of
from callboard.execution.threads import Threads
from callboard.schema import ArgumentsInvalid
from callboard.tools import Context, Invoker

DEFAULT_TIMEOUT = 30.0
"""Seconds."""

OnError: TypeAlias = Literal["fail_fast", "feedback"]
Tell: TypeAlias = Callable[[str], None]

_RETRIED = frozenset({"network", "timeout"})
_ALWAYS_RESULTS = frozenset({"validation", "timeout"})
_FIRST_DELAY = 0.2
_log = logging.getLogger("callboard.execution")
_threads = Threads()


async def execute_invoker(
    invoker: Invoker,
    arguments: Mapping[str, Any],
    context: Context | None = None,
    *,
    identifier: str | None = None,
    on_error: OnError = "fail_fast",
    validated: bool = True,
    timeout: float | None = None,  # noqa: ASYNC109  # the seconds are data: call, invoker, ensemble, default
    tell: Tell = _log.warning,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ResultCanister:
    """Validates, runs and gives the result (seed 000).

    Arguments that do not fit, and a timeout, are results with an error. Any other failure raises
    ToolExecutionFailure with on_error="fail_fast", and is a result with an error with "feedback".
    `timeout` in seconds overrides the invoker's, the ensemble's and 30. Failures of the network and
    timeouts are tried again `max_retries` times (from the ensemble's configuration) if the invoker is
    idempotent. `identifier` is the invocation's, by default the invoker's name; `validated` False hands the
    arguments over as they are (mode parsed).
    """
    identifier = identifier or invoker.name
    context = context or Context(invoker=invoker)
    defaults = invoker.ensemble.configuration if invoker.ensemble else {}
    seconds = _first(timeout, invoker.timeout, defaults.get("timeout"), DEFAULT_TIMEOUT)
    tries = 1 + (int(defaults.get("max_retries", 0)) if invoker.is_idempotent(arguments) else 0)
    delay = _FIRST_DELAY
    act = invoker if validated else invoker.unvalidated
    while True:
        tries -= 1
        try:
            return result_of(identifier, await _run(invoker, lambda: act(context, arguments), seconds))
        except ArgumentsInvalid as invalid:
            return error_result(identifier, "validation", str(invalid))
        except (Exception, asyncio.CancelledError) as error:
            if _is_ours(error):
                raise
            category = category_of(error)
            timed_out = isinstance(error, _OutOfTime)
            if timed_out and invoker.blocking:
                tell(f"{invoker.name} did not return within {seconds:g} s; its thread was left running")
            if tries > 0 and category in _RETRIED:
                await sleep(delay)
                delay *= 2
                continue
            if timed_out:
                return error_result(identifier, "timeout", f"Tool execution timed out. It had {seconds:g} s.")
            if on_error == "fail_fast" and category not in _ALWAYS_RESULTS:
                raise ToolExecutionFailure(f"Tool '{invoker.name}' failed: {_told(error)}") from error
            return error_result(identifier, category, _told(error))


class _OutOfTime(TimeoutError):
    """Our own limit, not one of the tool's."""


async def _run(invoker: Invoker, call: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            if invoker.blocking:
                return await _threads.run(lambda: _drive(call()))
            return await call()
    except TimeoutError as error:
        if limit.expired():
            raise _OutOfTime from error
        raise
    except SystemExit as error:
        # A tool does not end the process that runs it.
        raise RuntimeError(f"SystemExit: {error}") from error


def _drive(call: Awaitable[Any]) -> Any:
    """Runs a call that never waits for an event loop to its end."""
    steps = call.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("a blocking tool waited for an event loop; declare it with async def")


def _is_ours(error: BaseException) -> bool:
    """Whether it is this very task that is being cancelled, not something that the tool awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _told(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as worse:  # noqa: BLE001  # it is the tool's own text, and may fail as the tool did
        text = f"its text cannot be had: {type(worse).__name__}"
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _first(*seconds: Any) -> float:
    return float(next(each for each in seconds if each is not None))
