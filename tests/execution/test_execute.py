from __future__ import annotations

import asyncio
import errno
import http.client
import inspect
import json
import smtplib
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial, wraps

import aiohttp
import httpx2
import pytest
from tests.tables import table

from callboard import Agent, Context, Ensemble, Invoker, execute_invoker, tool
from callboard.core import Note, PictureContent, ResultCanister, ToolError
from callboard.errors import CallboardError, CallerError, NoSuchTool, ToolExecutionFailure
from callboard.execution import run_invoker
from callboard.execution.execute import find_category
from callboard.execution.thread_pool import ThreadPool
from callboard.schema import ArgumentsInvalid
from callboard.testing import Call, ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


class Naps(list):
    async def __call__(self, seconds):
        self.append(seconds)


def in_ensemble(function, configuration=None, **options):
    """The invoker of a function, in an ensemble."""
    ensemble = Ensemble("local", [tool(**options)(function)], configuration)
    return next(iter(ensemble.invokers.values()))


def raising(error, *, is_async):
    """A tool that raises it, and the list that grows by each of its calls."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise error

    async def fail_async() -> None:
        fail()

    return (fail_async if is_async else fail), calls


def execute(invoker, arguments=None, context=None, **options):
    run = run_invoker if options.keys() & {"validated", "tell", "sleep", "grace"} else execute_invoker
    return asyncio.run(run(invoker, arguments or {}, context, **options))


def test_the_seeds_invoker():
    # Seed 000, example 1.
    async def get_weather(context, arguments):
        assert context.invoker is invoker
        return {"temperature": 62, "conditions": "Partly cloudy", "at": arguments["location"]}

    io_ensemble = Ensemble("io")
    invoker = Invoker(
        name="get_weather",
        invocable=get_weather,
        arguments_schema={
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City and state"},
            },
            "required": ["location"],
        },
        ensemble=io_ensemble,
    )
    result = execute(invoker, {"location": "San Francisco, CA"}, identifier="call_abc123")
    assert (result.invocation_id, result.error) == ("call_abc123", None)
    assert json.loads(result.text) == {
        "temperature": 62,
        "conditions": "Partly cloudy",
        "at": "San Francisco, CA",
    }
    missing = execute(invoker, {}, identifier="call_abc124")
    assert missing == ResultCanister(
        invocation_id="call_abc124",
        content="Error: ArgValidationError: location\n  Field required",
        error=ToolError("validation", "ArgValidationError: location\n  Field required"),
    )


def test_without_an_identifier_it_is_the_tools_name():
    def hello() -> str:
        """Greet."""
        return "hello"

    assert execute(in_ensemble(hello)) == ResultCanister(invocation_id="hello", content="hello")


@table(
    ("value", "text"),
    [(None, "null"), (2**100, "1267650600228229401496703205376"), ({"a": [1]}, '{"a":[1]}'), ("x", "x")],
)
@table("is_async", [False, True])
def test_what_a_tool_returns(value, text, is_async):
    def give() -> object:
        return value

    async def give_async() -> object:
        return value

    assert execute(in_ensemble(give_async if is_async else give)).text == text


def test_a_picture():
    def draw() -> bytes:
        return PNG

    assert execute(in_ensemble(draw)).content == (PictureContent(PNG, "image/png"),)


CATEGORIES = [
    (NoSuchTool("no tool 'x'"), "not_found", "NoSuchTool: no tool 'x'"),
    (asyncio.CancelledError(), "cancelled", "CancelledError"),
    (PermissionError(13, "denied"), "permission", "PermissionError: [Errno 13] denied"),
    (ConnectionRefusedError("nobody there"), "network", "ConnectionRefusedError: nobody there"),
    (ValueError("negative"), "execution", "ValueError: negative"),
    (ValueError(), "execution", "ValueError"),
    (SystemExit(3), "execution", "RuntimeError: SystemExit: 3"),
    (StopIteration(), "execution", "RuntimeError: coroutine raised StopIteration"),
    (OSError("of \udcff"), "execution", "OSError: of \ufffd"),
]


@table("is_async", [False, True])
@table(("error", "category", "message"), CATEGORIES)
def test_failures_as_feedback(error, category, message, is_async):
    fail, calls = raising(error, is_async=is_async)
    result = execute(in_ensemble(fail), identifier="call_1", on_error="feedback")
    assert result == ResultCanister(
        invocation_id="call_1", content=f"Error: {message}", error=ToolError(category, message)
    )
    assert len(calls) == 1


@table("is_async", [False, True])
@table(("error", "message"), [(error, message) for error, _, message in CATEGORIES])
def test_failures_raise_where_the_caller_wants_to_fail_fast(error, message, is_async):
    fail, _ = raising(error, is_async=is_async)
    invoker = in_ensemble(fail)
    with pytest.raises(ToolExecutionFailure) as caught:
        execute(invoker)
    assert str(caught.value) == f"Tool '{invoker.name}' failed: {message}"
    assert caught.value.__cause__ is not None


@table("on_error", ["fail_fast", "feedback"])
@table("is_async", [False, True])
def test_what_is_always_a_result(is_async, on_error):
    fail, calls = raising(TimeoutError("upstream took too long"), is_async=is_async)
    invoker = in_ensemble(fail)
    timeout = execute(invoker, on_error=on_error)
    assert timeout.error == ToolError("timeout", "TimeoutError: upstream took too long")
    invalid = execute(invoker, {"surplus": 1}, on_error=on_error)
    assert invalid.error == ToolError("validation", "ArgValidationError: surplus\n  Extra inputs are not permitted")
    assert len(calls) == 1


def test_a_value_that_no_text_can_say():
    def power() -> int:
        """More digits than Python prints."""
        return 10 ** (sys.get_int_max_str_digits() + 1)

    assert execute(in_ensemble(power), on_error="feedback").error.category == "execution"


def test_arguments_are_validated_unless_the_mode_does_not():
    async def double(_, arguments):
        return arguments["number"] * 2

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    invoker = Invoker("double", double, schema)
    assert execute(invoker, {"number": "21"}).text == "42"
    assert execute(invoker, {"number": "21"}, validated=False).text == "2121"
    assert execute(invoker, {}, validated=False, on_error="feedback").error.category == "execution"


def test_the_context_is_the_callers():
    def remember(context: Context, text: str) -> str:
        context.namespace["text"] = text
        return f"for {context.auxdata['user']}"

    context = Context(auxdata={"user": "ada"})
    assert execute(in_ensemble(remember), {"text": "x"}, context).text == "for ada"
    assert context.namespace == {"text": "x"}


def test_an_async_tool_that_takes_too_long_is_cancelled():
    ended = []

    async def wait() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    result = execute(in_ensemble(wait, timeout=0.01))
    assert result.error == ToolError("timeout", "Tool execution timed out. It had 0.01 s.")
    assert result.text == "Error: Tool execution timed out. It had 0.01 s."
    assert ended == [True]


def test_the_thread_of_a_blocking_tool_that_takes_too_long_is_left_alone():
    release, told = threading.Event(), []

    def wait() -> None:
        """Wait for the test."""
        release.wait()

    try:
        result = execute(in_ensemble(wait, timeout=0.5), tell=told.append)
    finally:
        release.set()
    assert result.error == ToolError("timeout", "Tool execution timed out. It had 0.5 s.")
    assert told == ["wait did not return within 0.5 s; its thread was left running"]


@table(
    ("given", "own", "ensembles", "message"),
    [
        (0.01, 60, 60, "It had 0.01 s."),
        (None, 0.02, 60, "It had 0.02 s."),
        (None, None, 0.03, "It had 0.03 s."),
    ],
)
def test_whose_timeout_it_is(given, own, ensembles, message):
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    result = execute(in_ensemble(wait, {"timeout": ensembles}, timeout=own), timeout=given)
    assert result.text.endswith(message)


@table(
    ("error", "idempotent", "retries", "naps", "category"),
    [
        (ConnectionError(), True, 2, [0.2, 0.4], "network"),
        (TimeoutError(), True, 3, [0.2, 0.4, 0.8], "timeout"),
        (ConnectionError(), False, 2, [], "network"),
        (TimeoutError(), False, 2, [], "timeout"),
        (ConnectionError(), True, 0, [], "network"),
        (ConnectionError(), True, None, [], "network"),
        (ValueError(), True, 2, [], "execution"),
        (PermissionError(), True, 2, [], "permission"),
        (asyncio.CancelledError(), True, 2, [], "cancelled"),
    ],
)
def test_what_is_tried_again(error, idempotent, retries, naps, category):
    fail, calls = raising(error, is_async=True)
    configuration = {} if retries is None else {"max_retries": retries}
    invoker = in_ensemble(fail, configuration, idempotent=idempotent)
    slept = Naps()
    assert execute(invoker, on_error="feedback", sleep=slept).error.category == category
    assert slept == naps
    assert len(calls) == 1 + len(naps)


def test_our_own_timeout_is_tried_again_too():
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    slept = Naps()
    invoker = in_ensemble(wait, {"max_retries": 1}, idempotent=True, timeout=0.01)
    assert execute(invoker, sleep=slept).error.category == "timeout"
    assert slept == [0.2]


def test_what_succeeds_the_second_time_is_a_result():
    calls = []

    def flaky() -> str:
        """Fail once."""
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionResetError
        return "there"

    assert execute(in_ensemble(flaky, {"max_retries": 5}, idempotent=True), sleep=Naps()).text == "there"
    assert len(calls) == 2


async def test_cancelling_the_task_cancels_the_tool():
    ended = []

    started = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = asyncio.create_task(execute_invoker(in_ensemble(wait), {}, on_error="feedback"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


def test_a_blocking_tool_has_no_event_loop_to_wait_for():
    async def nap(_, __):
        await asyncio.sleep(0)

    invoker = Invoker("nap", nap, {"type": "object"}, blocking=True)
    result = execute(invoker, on_error="feedback")
    assert "declare it with async def" in result.text


# Bounds.


def swallowing(ends):
    """An async tool that does not end when it is cancelled, but when `ends` is set."""

    async def stay() -> str:
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()
        return "late"

    return stay


def test_an_async_tool_that_swallows_its_cancellation_is_left_with_a_note():
    told = []

    async def scenario():
        ends = asyncio.Event()
        invoker = in_ensemble(swallowing(ends))
        result = await run_invoker(invoker, {}, timeout=0.01, grace=0.01, tell=told.append)
        (left,) = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        ends.set()
        await left
        return result

    assert asyncio.run(scenario()).error == ToolError("timeout", "Tool execution timed out. It had 0.01 s.")
    assert told == ["stay did not end when it was cancelled after 0.01 s; it was left"]


async def test_a_run_goes_on_after_a_tool_that_swallows_its_cancellation():
    ends = asyncio.Event()
    stay = tool(timeout=0.01)(swallowing(ends))
    run = Agent(ScriptedModel([Call("stay"), "It did not end."]), [stay]).stream("?")
    events = [event async for event in run]
    ends.set()
    result = run.result
    assert Note("alert", "stay did not end when it was cancelled after 0.01 s; it was left") in events
    assert (result.state, result.output) == ("completed", "It did not end.")


async def test_an_execution_that_is_cancelled_does_not_wait_for_such_a_tool():
    ends = asyncio.Event()
    task = asyncio.create_task(run_invoker(in_ensemble(swallowing(ends)), {}, grace=0.01))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ends.set()


def test_a_tool_that_cleans_up_when_it_is_cancelled_is_waited_for():
    cleaned = []

    async def scenario():
        async def tidy() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(1)

        return await run_invoker(in_ensemble(tidy), {}, timeout=0.01)

    assert asyncio.run(scenario()).error.category == "timeout"
    assert cleaned == [1]


@table("is_async", [False, True])
@table("error", [GeneratorExit(), BaseException("odd")], ids=["GeneratorExit", "BaseException"])
def test_a_tool_cannot_end_the_run_with_an_odd_exception(error, is_async):
    fail, _ = raising(error, is_async=is_async)
    model = ScriptedModel([Call(fail.__name__), "So."])
    result = Agent(model, [tool(fail)]).run_sync("?")
    assert (result.state, result.output) == ("completed", "So.")
    assert result.canisters[2].error.message.startswith(f"RuntimeError: {type(error).__name__}")


async def test_a_blocking_tool_that_found_no_thread_is_told_apart(monkeypatch):
    threads = ThreadPool(1)
    monkeypatch.setattr("callboard.execution.execute._threads", threads)
    ends = threading.Event()

    def stuck() -> None:
        ends.wait()

    told = []
    results = [
        await run_invoker(in_ensemble(stuck), {}, timeout=0.5, tell=told.append),
        await run_invoker(in_ensemble(stuck), {}, timeout=0.5, tell=told.append),
    ]
    ends.set()
    messages = [each.error.message for each in results]
    assert messages == [
        "Tool execution timed out. It had 0.5 s.",
        "Tool execution timed out. No thread was free within 0.5 s: tools that did not return hold all 1.",
    ]
    assert told == [
        "stuck did not return within 0.5 s; its thread was left running",
        "stuck did not start, because no thread was free",
    ]


# Plain functions around async ones.


def logged(function):
    """An ordinary decorator that knows nothing of async functions."""

    @wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


async def fetch(page: str) -> str:
    """Fetch a page."""
    await asyncio.sleep(0)
    return f"the page {page}"


async def hang(page: str) -> str:
    await asyncio.Event().wait()
    return page


@table("wrap", [logged, lru_cache, partial], ids=["decorated", "cached", "partial"])
def test_what_a_plain_function_gives_to_be_awaited_is_awaited(wrap):
    wrapped = wrap(fetch)
    invoker = in_ensemble(wrapped, name="fetch")
    assert execute(invoker, {"page": "a"}).text == "the page a"
    assert asyncio.run(invoker(Context(), {"page": "b"})) == "the page b"


def test_a_timeout_ends_what_a_plain_function_gives_to_be_awaited():
    result = execute(in_ensemble(logged(hang)), {"page": "a"}, timeout=0.01)
    assert result.error.category == "timeout"


def test_what_a_plain_function_gives_too_late_is_closed_and_no_warning_speaks_of_it():
    late, made = threading.Event(), []

    def slow(page: str):
        """Fetch a page, and think before it."""
        late.wait()
        made.append(fetch(page))
        return made[0]

    async def run():
        result = await execute_invoker(in_ensemble(slow), {"page": "a"}, timeout=0.01)
        late.set()
        while not made or inspect.getcoroutinestate(made[0]) != inspect.CORO_CLOSED:  # noqa: ASYNC110 - by a thread
            await asyncio.sleep(0)
        return result

    assert asyncio.run(asyncio.wait_for(run(), 30)).error.category == "timeout"


def plus(number: int) -> int:
    """Add one."""
    return number + 1


@table("given", [plus, tool(plus), Invoker.of(tool(plus)), in_ensemble(plus)])
def test_a_function_and_a_tool_are_executed_as_their_invokers_are(given):
    result = asyncio.run(execute_invoker(given, {"number": "1"}))
    assert (result.text, result.invocation_id) == ("2", "plus")


def test_a_result_says_when_it_was_made():
    begun = datetime.now(UTC)
    for arguments in ({"number": 1}, {"number": "one"}):
        result = asyncio.run(execute_invoker(plus, arguments))
        assert begun <= result.timestamp <= datetime.now(UTC)


@table("arguments", [None, [1], "text", 5])
def test_arguments_that_are_no_object_are_a_result_as_of_any_model(arguments):
    result = asyncio.run(execute_invoker(plus, arguments))
    assert result.text == "Error: ArgValidationError: arguments\n  Input should be a JSON object"


@table(
    ("options", "said"),
    [
        ({"invoker": None}, "None is not a tool; pass a function, a Tool or an Invoker"),
        ({"invoker": [plus]}, "is not a tool; pass a function, a Tool or an Invoker"),
        ({"context": {"user": 1}}, "context: a dict is not a Context; give Context(auxdata={...})"),
        ({"on_error": "failfast"}, "on_error: no 'failfast'; there are fail_fast, feedback"),
        *[({"timeout": each}, f"timeout: {each!r} is not a number of seconds") for each in (0, -1, "5", True)],
        ({"approve": "allow"}, "approve: a str is not a function; give a function of the invocation and the reason"),
    ],
)
def test_what_cannot_be_executed_is_refused(options, said):
    with pytest.raises(CallerError) as caught:
        asyncio.run(execute_invoker(**{"invoker": plus, "arguments": {"number": 1}, **options}))
    assert said in str(caught.value)


@tool
async def break_down(n: int) -> int:
    raise ValueError(f"no {n}")


@pytest.mark.parametrize(
    ("arguments", "on_error", "told"),
    [
        ({"n": 1}, "fail_fast", "Tool 'break_down' failed: ValueError: no 1"),
        ({"n": "x"}, "fail_fast", "Tool 'break_down' failed: ArgValidationError: n"),
        ({"n": 1}, "feedback", ""),
    ],
)
@pytest.mark.parametrize("hooked", [True, False])
def test_a_call_that_fails_fast_alerts_the_user(arguments, on_error, told, hooked, caplog):
    lines = []
    options = {"alert": lines.append} if hooked else {}
    with suppress(ToolExecutionFailure):
        asyncio.run(execute_invoker(break_down, arguments, on_error=on_error, **options))
    lines = lines if hooked else [each.getMessage() for each in caplog.records if each.name == "callboard.execution"]
    assert [line.startswith(told) for line in lines] == [True] * bool(told)


# Clients that are not installed here; they are known by their names alone.
Requests = type("ConnectionError", (OSError,), {"__module__": "requests.exceptions"})
ReadTimeout = type(
    "ReadTimeout", (type("Timeout", (OSError,), {"__module__": "requests.exceptions"}),), {"__module__": "requests"}
)
Httpx = type("ConnectError", (type("TransportError", (Exception,), {"__module__": "httpx"}),), {"__module__": "httpx"})


@table(
    ("error", "category"),
    [
        (ArgumentsInvalid([(("query",), "Field required")]), "validation"),
        (NoSuchTool("no tool 'x'"), "not_found"),
        (asyncio.CancelledError(), "cancelled"),
        (TimeoutError(), "timeout"),
        (aiohttp.ServerTimeoutError(), "timeout"),
        (PermissionError(13, "denied"), "permission"),
        (ConnectionError(), "network"),
        (ConnectionRefusedError(), "network"),
        (BrokenPipeError(), "network"),
        (socket.gaierror(-2, "Name or service not known"), "network"),
        (ssl.SSLError(), "network"),
        (ssl.SSLCertVerificationError(), "network"),
        (aiohttp.ClientPayloadError(), "network"),
        (httpx2.ConnectError("refused"), "network"),
        (Httpx("refused"), "network"),
        (urllib.error.URLError("refused"), "network"),
        (Requests(), "network"),
        (subprocess.TimeoutExpired("sleep", 1), "timeout"),
        (ReadTimeout(), "timeout"),
        (http.client.RemoteDisconnected(), "network"),
        (http.client.IncompleteRead(b""), "network"),
        (smtplib.SMTPServerDisconnected(), "network"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "network"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network"),
        (ExceptionGroup("two", [ConnectionError(), ConnectionResetError()]), "network"),
        (ExceptionGroup("one", [ExceptionGroup("inner", [TimeoutError()])]), "timeout"),
        (ExceptionGroup("mixed", [ConnectionError(), ValueError()]), "execution"),
        (ExceptionGroup("mixed", [ConnectionError(), TimeoutError()]), "execution"),
        (ValueError("no"), "execution"),
        (LookupError("no"), "execution"),
        (OSError(28, "No space left on device"), "execution"),
        (FileNotFoundError(2, "No such file"), "execution"),
        (CallboardError("no"), "execution"),
        (Exception(), "execution"),
        (SystemExit(1), "execution"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_exception_has_a_category(error, category):
    assert find_category(error) == category
