"""Run one invocation: validate, time, retry, and turn its value or failure into a result.

Laws:
- The invoker validates the arguments, once. Each call has exactly one result.
- A timeout always takes effect: a thread that does not return is abandoned. A coroutine that swallows its cancellation
  is abandoned too. So each tool runs in its own task: a coroutine that awaits the tool could not leave it.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args
from weakref import WeakValueDictionary

from msgspec.structs import replace

from callboard.core import Approve, Category, InvocationCanister, ResultCanister, error_result
from callboard.errors import CallerError, NoSuchTool, ToolExecutionFailure
from callboard.execution.approval import permit
from callboard.execution.result_content import cut, make_result
from callboard.execution.thread_pool import ThreadPool
from callboard.schema import ArgumentsInvalid
from callboard.telemetry import switch
from callboard.telemetry.counts import count_tool_call
from callboard.tools import Context, Invoker, Policy, ToolLike, as_invoker, edited_result, is_seconds

DEFAULT_TIMEOUT = 30.0
"""Default timeout of a call, in seconds."""

GRACE = 2.0
"""Seconds that a cancelled tool gets to clean up before it is abandoned."""

OnError: TypeAlias = Literal["fail_fast", "feedback"]
Tell: TypeAlias = Callable[[str], None]

_RETRIED = frozenset({"network", "timeout"})
_ALWAYS_RESULTS = frozenset({"validation", "timeout"})
_FIRST_DELAY = 0.2
_LOCKS: Final = "callboard.locks"
"""Key of the locks of equal calls in the namespace of a run's ensemble."""
_T = TypeVar("_T")
_log = logging.getLogger("callboard.execution")
_threads = ThreadPool()
_BY_ITSELF: Final = Policy()
"""The policy without rules: tools that want approval are asked about."""
_abandoned: set[asyncio.Task[Any]] = set()
"""Abandoned tasks. Without a reference the event loop may drop a task before it ends."""

_CATEGORIES: tuple[tuple[type[BaseException], Category], ...] = (
    (ArgumentsInvalid, "validation"),
    (NoSuchTool, "not_found"),
    (asyncio.CancelledError, "cancelled"),
    (TimeoutError, "timeout"),
    (PermissionError, "permission"),
    (ConnectionError, "network"),
    (socket.gaierror, "network"),
    (ssl.SSLError, "network"),
)

# Errors of tools' own clients and processes, by name, so that none of these modules is imported.
_NAMED: Mapping[str, Category] = MappingProxyType(
    {
        "subprocess.TimeoutExpired": "timeout",
        "requests.exceptions.Timeout": "timeout",
        "urllib3.exceptions.TimeoutError": "timeout",
        "aiohttp.client_exceptions.ClientError": "network",
        "http.client.IncompleteRead": "network",
        "httpx.TransportError": "network",
        "httpx2.TransportError": "network",
        "requests.exceptions.ConnectionError": "network",
        "smtplib.SMTPServerDisconnected": "network",
        "urllib.error.URLError": "network",
        "urllib3.exceptions.MaxRetryError": "network",
        "urllib3.exceptions.ProtocolError": "network",
        "websockets.exceptions.ConnectionClosed": "network",
    }
)
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


async def execute_invoker(
    invoker: ToolLike,
    arguments: Mapping[str, Any],
    context: Context | None = None,
    *,
    identifier: str | None = None,
    on_error: OnError = "fail_fast",
    approve: Approve | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  # seconds as data: call, invoker, ensemble, default
    alert: Tell = _log.error,
) -> ResultCanister:
    """Ask for approval if the tool wants it, validate the arguments, and run the tool.

    Args:
        invoker: The tool, as an Invoker, a Tool or a function.
        arguments: The arguments of the call.
        context: The tool's view of its run; by default an empty one.
        identifier: Identifier of the invocation; by default the invoker's name.
        on_error: With "fail_fast" a failure of the tool raises; with "feedback" it is a result with an error.
        approve: Callback if the tool wants approval. Without it such a tool does not run.
        timeout: Timeout in seconds; overrides the invoker's, the ensemble's and the default of 30.
        alert: With "fail_fast", receives a line for the user about a failed call; by default the logger
            `callboard.execution`.

    Returns:
        The result, with its time. A call without approval, invalid arguments, and a timeout are always results with an
        error. If the invoker is idempotent, network failures and timeouts are retried `max_retries` times (from the
        ensemble's configuration).

    Raises:
        ToolExecutionFailure: The tool failed, and `on_error` is "fail_fast".
        CallerError: The invoker is not a tool, or another argument has the wrong type.
    """
    invoker = as_invoker(invoker)
    check_on_error(on_error)
    for name, value, fits, expected in (
        ("context", context, isinstance(context, Context), "not a Context; give Context(auxdata={...})"),
        ("approve", approve, callable(approve), "not a function; give a function of the invocation and the reason"),
    ):
        if value is not None and not fits:
            raise CallerError(f"a {type(value).__name__} is {expected}", path=name)
    if timeout is not None and not is_seconds(timeout):
        raise CallerError(f"{timeout!r} is not a number of seconds above zero", path="timeout")
    identifier = identifier or invoker.name
    edited = None
    if invoker.approval:
        called = InvocationCanister(identifier, invoker.name, arguments, "")
        allowed = await permit(invoker, called, _BY_ITSELF, approve)
        if isinstance(allowed, ResultCanister):
            return replace(allowed, timestamp=datetime.now(UTC))
        if allowed is not called:
            edited, arguments = allowed, allowed.arguments or {}
    try:
        result = await run_invoker(
            invoker, arguments, context, identifier=identifier, on_error=on_error, timeout=timeout
        )
    except ToolExecutionFailure as failure:
        alert(failure.message)
        raise
    if result.error is not None and on_error == "fail_fast":
        alert(f"Tool '{invoker.name}' failed: {result.error.message}")
    return replace(edited_result(edited, result) if edited else result, timestamp=datetime.now(UTC))


def check_on_error(on_error: str) -> None:
    """Raise CallerError for an unknown word: a misspelled one would act as "feedback"."""
    if on_error not in get_args(OnError):
        raise CallerError(f"no {on_error!r}", path="on_error", hint=f"there are {', '.join(get_args(OnError))}")


async def run_invoker(
    invoker: Invoker,
    arguments: Mapping[str, Any],
    context: Context | None = None,
    *,
    identifier: str | None = None,
    on_error: OnError = "fail_fast",
    validated: bool = True,
    timeout: float | None = None,  # noqa: ASYNC109  # seconds as data: call, invoker, ensemble, default
    tell: Tell = _log.warning,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    grace: float = GRACE,
) -> ResultCanister:
    """Run a permitted call like `execute_invoker`, without asking anybody.

    Args:
        invoker: The tool.
        arguments: The arguments of the call.
        context: The tool's view of its run.
        identifier: Identifier of the invocation.
        on_error: See `execute_invoker`.
        validated: False passes the arguments as they are (mode parsed).
        timeout: See `execute_invoker`.
        tell: Receives warnings, such as about an abandoned tool.
        sleep: Waits before a retry.
        grace: Seconds that a cancelled tool gets before it is abandoned.

    Returns:
        The result.

    Raises:
        ToolExecutionFailure: The tool failed, and `on_error` is "fail_fast".
    """
    context = context or Context(invoker=invoker)
    identifier = identifier or invoker.name
    defaults = invoker.ensemble.configuration if invoker.ensemble else {}
    candidates = (timeout, invoker.timeout, defaults.get("timeout"), DEFAULT_TIMEOUT)
    seconds = float(next(each for each in candidates if each is not None))  # math.inf means no limit

    async def run_with_retries() -> ResultCanister:
        tries = 1 + (int(defaults.get("max_retries", 0)) if invoker.is_idempotent(arguments) else 0)
        delay = _FIRST_DELAY
        while True:
            tries -= 1
            try:
                call = partial(invoker.call, context, arguments, validated=validated)
                attempt = partial(_run, invoker, call, seconds, grace)
                key = invoker.key(invoker.coerce(arguments)) if invoker.key else None
                return make_result(identifier, await (attempt() if key is None else _in_turn(context, key, attempt)))
            except ArgumentsInvalid as invalid:
                return error_result(identifier, "validation", str(invalid))
            except (Exception, asyncio.CancelledError) as error:
                if _is_ours(error):
                    raise
                if isinstance(error, _OutOfTime) and error.still_running:
                    tell(f"{invoker.name} {error.still_running}")
                category = find_category(error)
                if tries > 0 and category in _RETRIED:
                    await sleep(delay)
                    delay *= 2
                    continue
                if isinstance(error, _OutOfTime):
                    return error_result(identifier, "timeout", f"Tool execution timed out. {error}")
                if on_error == "fail_fast" and category not in _ALWAYS_RESULTS:
                    raise ToolExecutionFailure(f"Tool '{invoker.name}' failed: {_describe_error(error)}") from error
                return error_result(identifier, category, _describe_error(error))

    run: Callable[[], Awaitable[ResultCanister]] = run_with_retries
    if invoker.cache is not None and invoker.is_idempotent(arguments):
        from callboard.execution.result_cache import answer_from_cache, identify_call  # noqa: PLC0415  # it imports sqlite3

        if (cache_key := identify_call(invoker, arguments, context)) is not None:
            answer = partial(answer_from_cache, invoker, cache_key, identifier, run, tell)
            run = partial(_in_turn, context, cache_key, answer)
    if switch.recorder is not None:
        from callboard.execution.tool_span import run_in_span  # noqa: PLC0415  # it imports this module

        run = partial(run_in_span, invoker, arguments, identifier, run)
    begun = perf_counter()
    try:
        result = await run()
    except BaseException as failure:
        count_tool_call(invoker.name, perf_counter() - begun, failure_category(failure))
        raise
    count_tool_call(invoker.name, perf_counter() - begun, result.error.category if result.error else "")
    return result


def failure_category(failure: BaseException) -> Category:
    """Return the category of a call's exception; for ToolExecutionFailure, of the tool's exception."""
    cause = failure.__cause__ if isinstance(failure, ToolExecutionFailure) else None
    return find_category(cause or failure)


class _OutOfTime(TimeoutError):
    """Our own time limit, not a timeout of the tool. `still_running` says what was abandoned."""

    def __init__(self, message: str, still_running: str = "") -> None:
        super().__init__(message)
        self.still_running = still_running


def find_category(error: BaseException) -> Category:
    """Return the category of an exception, or of all exceptions of a group. The default is `execution`."""
    if isinstance(error, BaseExceptionGroup):
        members = {find_category(each) for each in error.exceptions}
        return members.pop() if len(members) == 1 else "execution"
    for kind, category in _CATEGORIES:
        if isinstance(error, kind):
            return category
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return "network"
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    return next((_NAMED[each] for each in names if each in _NAMED), "execution")


async def _in_turn(context: Context, key: bytes, run: Callable[[], Awaitable[_T]]) -> _T:
    """Run when no call with the same key is under way, so that the cache may answer an equal call."""
    # A lock exists as long as a call holds it or waits for it.
    locks = context.namespace.setdefault(_LOCKS, WeakValueDictionary())
    lock = locks.get(key)
    if lock is None:
        lock = locks[key] = asyncio.Lock()
    async with lock:
        return await run()


async def _run(invoker: Invoker, call: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> Any:
    if not invoker.blocking:

        async def wait() -> Any:
            value = await call()
            return await value if inspect.isawaitable(value) else value

        return await _in_task(wait, seconds, grace)
    clock = asyncio.get_running_loop().time
    begun = clock()
    value = await _on_thread(call, seconds)
    if inspect.isawaitable(value):
        # The value of a plain function that wraps an async function.
        return await _in_task(lambda: value, max(0.0, seconds - (clock() - begun)), grace)
    return value


async def _on_thread(call: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    begun = over = False
    made: Any = None

    def work() -> Any:
        nonlocal begun, made
        begun = True
        made = _drive(call())
        if over:
            _discard(made)
        return made

    limit = asyncio.timeout(_bound(seconds))
    try:
        async with limit:
            return await _contain(_threads.run(work))
    except (TimeoutError, asyncio.CancelledError) as error:
        # The thread may return its value later, or has just returned it.
        over = True
        _discard(made)
        if isinstance(error, asyncio.CancelledError):
            raise
        if not limit.expired():
            raise
        if not begun:
            message = f"No thread was free within {seconds:g} s: tools that did not return hold all {_threads.limit}."
            raise _OutOfTime(message, "did not start, because no thread was free") from error
        still_running = f"did not return within {seconds:g} s; its thread was left running"
        raise _OutOfTime(f"It had {seconds:g} s.", still_running) from error


def _discard(value: Any) -> None:
    """Close a coroutine that nobody will await, to avoid Python's warning."""
    if inspect.iscoroutine(value):
        value.close()


async def _in_task(call: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> Any:
    task = asyncio.create_task(_contain(call()))
    task.add_done_callback(_forget)
    try:
        await asyncio.wait((task,), timeout=_bound(seconds))
        timed_out = not task.done()
    finally:
        # The time is used up, or the task was cancelled from outside.
        if not task.done():
            _abandoned.add(task)
            task.cancel()
            await asyncio.wait((task,), timeout=grace)
    if not timed_out:
        return task.result()
    if task.done():
        raise _OutOfTime(f"It had {seconds:g} s.")
    raise _OutOfTime(f"It had {seconds:g} s.", f"did not end when it was cancelled after {seconds:g} s; it was left")


def _bound(seconds: float) -> float | None:
    """Return the seconds as asyncio takes them: uvloop does not accept infinity."""
    return None if seconds == math.inf else seconds


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the outcome of an abandoned task, so that the event loop does not report it."""
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()


async def _contain(call: Awaitable[Any]) -> Any:
    """Await a tool. Turn exceptions that would end the process or our generators into failures of the tool."""
    try:
        return await call
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _drive(call: Awaitable[Any]) -> Any:
    """Run a call to its end that never waits for an event loop."""
    steps = call.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("a blocking tool waited for an event loop; declare it with async def")


def _is_ours(error: BaseException) -> bool:
    """Whether this task itself is being cancelled, and not something that the tool awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _describe_error(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as worse:  # noqa: BLE001  # the text comes from the tool and may fail too
        text = f"its text cannot be had: {type(worse).__name__}"
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)
