"""Run one invocation: validate, time, retry, and make a result of its value or failure.

Laws:
- The tool's arguments are validated by its invoker, once; what comes back is always one result.
- A timeout is one: a thread that does not return is left alone, and so is a coroutine that swallows its cancellation.
  A tool runs in a task of its own for that reason, since nobody can stop to wait for a coroutine that he awaits.
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
"""Seconds."""

GRACE = 2.0
"""Seconds that a cancelled tool has to clean up; after that nobody waits for it."""

OnError: TypeAlias = Literal["fail_fast", "feedback"]
Tell: TypeAlias = Callable[[str], None]

_RETRIED = frozenset({"network", "timeout"})
_ALWAYS_RESULTS = frozenset({"validation", "timeout"})
_FIRST_DELAY = 0.2
_LOCKS: Final = "callboard.locks"
"""Where the namespace of a run's ensemble has the locks of equal calls."""
_T = TypeVar("_T")
_log = logging.getLogger("callboard.execution")
_threads = ThreadPool()
_BY_ITSELF: Final = Policy()
"""What a tool says of itself: one that wants approval is asked about."""
_abandoned: set[asyncio.Task[Any]] = set()
"""Tasks that nobody waits for; without a reference the event loop may drop them in the middle."""

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

# What tools' own clients and processes raise, by name: none of these modules is imported for this.
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
    timeout: float | None = None,  # noqa: ASYNC109  # the seconds are data: call, invoker, ensemble, default
    alert: Tell = _log.error,
) -> ResultCanister:
    """Ask where the tool wants approval, validate, run.

    Args:
        invoker: The tool, as an Invoker, a Tool or a function.
        arguments: What it is called with.
        context: What the tool sees of its run; by default an empty one.
        identifier: The invocation's; by default the invoker's name.
        on_error: With "fail_fast" a failure of the tool raises, with "feedback" it is a result with an error.
        approve: Asked where the tool wants approval; without it such a tool does not run.
        timeout: Seconds; overrides the invoker's, the ensemble's and 30.
        alert: With "fail_fast", takes a line for the user about a call that failed; by default a record of the log
            `callboard.execution`.

    Returns:
        The result, with the time when it was made. A call that was not approved, arguments that do not fit, and a
        timeout are always results with an error. Failures of the network and timeouts are tried again `max_retries`
        times (from the ensemble's configuration) if the invoker is idempotent.

    Raises:
        ToolExecutionFailure: The tool failed, and `on_error` is "fail_fast".
        CallerError: The invoker is no tool, or another argument is of the wrong kind.
    """
    invoker = as_invoker(invoker)
    check_on_error(on_error)
    for name, value, fits, expected in (
        ("context", context, isinstance(context, Context), "no Context; give Context(auxdata={...})"),
        ("approve", approve, callable(approve), "no function; give a function of the invocation and the reason"),
    ):
        if value is not None and not fits:
            raise CallerError(f"a {type(value).__name__} is {expected}", path=name)
    if timeout is not None and not is_seconds(timeout):
        raise CallerError(f"{timeout!r} is no number of seconds above zero", path="timeout")
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
    """Raises CallerError for no word of `OnError`: a misspelled one would act as the other."""
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
    timeout: float | None = None,  # noqa: ASYNC109  # the seconds are data: call, invoker, ensemble, default
    tell: Tell = _log.warning,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    grace: float = GRACE,
) -> ResultCanister:
    """`execute_invoker` for a call that was permitted: nobody is asked.

    Args:
        invoker: The tool.
        arguments: What it is called with.
        context: What the tool sees of its run.
        identifier: The invocation's.
        on_error: As of `execute_invoker`.
        validated: False hands the arguments over as they are (mode parsed).
        timeout: As of `execute_invoker`.
        tell: Takes what somebody may want to know, such as a tool that was left running.
        sleep: Waits before another try.
        grace: Seconds that a cancelled tool has before it is left.

    Returns:
        The result.

    Raises:
        ToolExecutionFailure: The tool failed, and `on_error` is "fail_fast".
    """
    context = context or Context(invoker=invoker)
    identifier = identifier or invoker.name
    defaults = invoker.ensemble.configuration if invoker.ensemble else {}
    candidates = (timeout, invoker.timeout, defaults.get("timeout"), DEFAULT_TIMEOUT)
    seconds = float(next(each for each in candidates if each is not None))  # math.inf is no limit

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
    """The category of what a call raised: where it failed fast, of what its tool raised."""
    cause = failure.__cause__ if isinstance(failure, ToolExecutionFailure) else None
    return find_category(cause or failure)


class _OutOfTime(TimeoutError):
    """Our own limit, not one of the tool's. `left` says what goes on all the same."""

    def __init__(self, message: str, still_running: str = "") -> None:
        super().__init__(message)
        self.still_running = still_running


def find_category(error: BaseException) -> Category:
    """The category of an exception, or of all in a group of them; what is in no row is `execution`."""
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
    """Runs when no equal call of the run is under way: it may then be answered with that one's result."""
    # A lock is there for as long as a call holds it or waits for it.
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
        # A plain function that wraps an async one.
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
        # The thread may return its value a moment later, or just has.
        over = True
        _discard(made)
        if isinstance(error, asyncio.CancelledError):
            raise
        if not limit.expired():
            raise
        if not begun:
            message = f"No thread was free within {seconds:g} s: tools that did not return hold all {_threads.limit}."
            raise _OutOfTime(message, "was not begun, for no thread was free") from error
        still_running = f"did not return within {seconds:g} s; its thread was left running"
        raise _OutOfTime(f"It had {seconds:g} s.", still_running) from error


def _discard(value: Any) -> None:
    """Closes a coroutine that nobody will await, so that Python does not warn of it."""
    if inspect.iscoroutine(value):
        value.close()


async def _in_task(call: Callable[[], Awaitable[Any]], seconds: float, grace: float) -> Any:
    task = asyncio.create_task(_contain(call()))
    task.add_done_callback(_forget)
    try:
        await asyncio.wait((task,), timeout=_bound(seconds))
        timed_out = not task.done()
    finally:
        # Its time is over, or it is cancelled from outside.
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
    """The seconds as asyncio has them; uvloop cannot count to infinity."""
    return None if seconds == math.inf else seconds


def _forget(task: asyncio.Task[Any]) -> None:
    """Takes what a task ended with, so that the event loop does not report it where nobody waits for it any more."""
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()


async def _contain(call: Awaitable[Any]) -> Any:
    """Awaits a tool. What would end the process or our own generators is a failure of the tool."""
    try:
        return await call
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


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


def _describe_error(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as worse:  # noqa: BLE001  # it is the tool's own text, and may fail as the tool did
        text = f"its text cannot be had: {type(worse).__name__}"
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)
