from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest
from tests.agent import runs
from tests.agent.runs import multiply, result_texts, results
from tests.tables import table

from callboard import Agent, core, tool
from callboard.errors import CallerError
from callboard.loop import Limits
from callboard.profiles import resolve
from callboard.testing import Call, ScriptedModel
from callboard.tools import Policy


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool
def broken() -> str:
    """Fail."""
    raise OSError("no luck")


SIX = Call("multiply", {"a": 2, "b": 3})
TWELVE = Call("multiply", {"a": 3, "b": 4})
READ = Call("read_file", {"path": "a.txt"})
EARLIER = "This call was not run again. It is the same as in round 1, and this is its earlier result:"


def follow(script, tools=(multiply, read_file, broken), prompt="Go.", **options):
    """The events of a run, its result, and the model that was asked."""
    model = ScriptedModel(script)
    run = Agent(model, tools, **options).stream(prompt)
    return runs.follow(run), run.result, model


def assert_paired(canisters):
    """Every invocation has one result."""
    asked = [each.identifier for each in canisters if isinstance(each, core.InvocationCanister)]
    assert [each.invocation_id for each in results(canisters)] == asked


def test_the_events_of_a_run():
    events, result, _ = follow([["A product: ", SIX], "6"])
    kinds = [type(event) for event in events]
    assert kinds == [
        core.RoundStarted, core.ReplyStarted, core.TextPiece, core.InvocationStarted, kinds[4], core.InvocationEnded, core.ReplyEnded,
        core.ResultReady, core.RoundStarted, core.ReplyStarted, core.TextPiece, core.ReplyEnded, core.RunEnded,
    ]  # fmt: skip
    assert [event.number for event in events if isinstance(event, core.RoundStarted)] == [1, 2]
    assert events[7] == core.ResultReady(core.ResultCanister(invocation_id="call_1_0", content="6"))
    assert events[-1] == core.RunEnded("completed", "6", result.usage)
    assert [core.decode_event(core.encode_line(event)) for event in events] == events


def test_text_before_a_call_does_not_end_the_run():
    _, result, model = follow([["The answer is 7. ", SIX, " Or is it?"], "It is 6."])
    assert (result.output, result.state) == ("It is 6.", "completed")
    assert [type(each) for each in result.canisters] == [
        core.UserCanister,
        core.AssistantCanister,
        core.InvocationCanister,
        core.AssistantCanister,
        core.ResultCanister,
        core.AssistantCanister,
    ]
    model.assert_complete()


def test_several_calls_at_once():
    barrier = threading.Barrier(2)

    @tool
    def meet(name: str) -> str:
        """Wait for the other."""
        barrier.wait()
        return name

    _, result, model = follow([[Call("meet", {"name": "a"}), Call("meet", {"name": "b"}), SIX], "ok"], (meet, multiply))
    assert result_texts(result) == ["a", "b", "6"]
    assert_paired(result.canisters)
    assert [*model.requests[1].canisters] == [*result.canisters[:-1]]


@table(
    ("call", "category", "message"),
    [
        (Call("read", {"path": "a.txt"}), "not_found", "no tool 'read'; did you mean 'read_file'?"),
        (Call("zzz"), "not_found", "no tool 'zzz'; there are multiply, read_file, broken"),
        (Call("read_file"), "validation", "ArgValidationError: path\n  Field required"),
        (Call("broken"), "execution", "OSError: no luck"),
        (
            core.InvocationEnded(0, "call_1", "read_file", None, '"a.txt"'),
            "validation",
            "ArgValidationError: arguments\n  Input should be a JSON object, not '\"a.txt\"'",
        ),
        (
            core.InvocationIncomplete(0, "call_1", "read_file", '{"pa', "length"),
            "validation",
            (
                "the call was cut at the reply's length limit before its arguments ended; make it shorter; "
                "you wrote '{\"pa'"
            ),
        ),
    ],
)
def test_what_the_model_gets_wrong_it_is_told(call, category, message):
    _, result, model = follow([[call, core.ReplyEnded("invocations")], READ, "the text"])
    assert (result.output, result.state, result.rounds) == ("the text", "completed", 3)
    wrong, right = results(model.requests[2].canisters)
    assert wrong.error == core.ToolError(category, message)
    assert wrong.text == f"Error: {message}"
    assert right.text == "the text of a.txt"
    assert_paired(result.canisters)


@tool
def poll(job: str) -> str:
    """How a job goes."""
    return job


@tool(idempotent=True)
def next_page(query: str) -> str:
    """The next page of what was found."""
    return query


@tool
def roll() -> str:
    """Roll a die."""
    return ""


@tool
def append(line: str) -> str:
    """Append a line."""
    return line


@table(
    "call",
    [Call("poll", {"job": "1"}), Call("next_page", {"query": "x"}), Call("roll"), Call("append", {"line": "-"})],
    ids=lambda call: call.name,
)
def test_a_call_that_is_made_again_runs_again(call):
    counted = []

    async def count(invocation, _):
        counted.append(invocation.identifier)
        return core.ResultCanister(invocation_id="", content=str(len(counted)))

    _, result, model = follow([call, call, [call, call], "Done."], (poll, next_page, roll, append), after_call=count)
    one, two, *both = result_texts(result)
    assert (one, two, sorted(both)) == ("1", "2", ["3", "4"])  # the calls of one round may end in any order
    assert {request.tool_choice for request in model.requests} == {"auto"}
    assert (result.output, result.state) == ("Done.", "completed")


@table("name", ["local:qwen2.5-coder-0.5b", "local:qwen2.5-coder-1.5b", "local:smollm2-135m"])
def test_the_embedded_models_get_the_earlier_result_and_then_the_last_word(name):
    ran = []

    @tool
    def count(step: int, of: str = "x") -> int:
        ran.append((step, of))
        return len(ran)

    call, turned = Call("count", {"step": 1, "of": "y"}), Call("count", {"of": "y", "step": 1})
    repeats = resolve(name).profile.on_repeated_call
    model = ScriptedModel([call, turned, "Once."], profile={"on_repeated_call": repeats})
    result = Agent(model, [count]).run_sync("?")
    assert ran == [(1, "y")]
    first, again = result_texts(result)
    assert (first, again) == ("1", f"{EARLIER}\n1")
    assert [request.tool_choice for request in model.requests] == ["auto", "auto", "none"]
    assert (result.output, result.state, result.rounds) == ("Once.", "completed", 3)
    assert_paired(result.canisters)


def test_an_agent_may_decide_otherwise_than_the_profile():
    model = ScriptedModel([SIX, SIX, "ok"], profile={"on_repeated_call": "final_answer"})
    result = Agent(model, [multiply], on_repeated_call="run").run_sync("?")
    assert result_texts(result) == ["6", "6"]
    assert {request.tool_choice for request in model.requests} == {"auto"}


def test_a_model_that_calls_even_when_it_has_the_last_word():
    _, result, model = follow([SIX, SIX, ["Hm. ", SIX]], on_repeated_call="final_answer")
    assert (result.state, result.why) == ("incomplete", "the model called instead of answering")
    assert result.text == "Hm. "
    assert results(result.canisters)[-1].error.category == "cancelled"
    assert_paired(result.canisters)
    model.assert_complete()


def test_too_many_rounds():
    script = [Call("multiply", {"a": number, "b": 1}) for number in range(3)]
    events, result, model = follow([*script, "So far 2."], limits=Limits(rounds=3))
    assert [request.tool_choice for request in model.requests] == ["auto", "auto", "auto", "none"]
    assert (result.text, result.state, result.rounds) == ("So far 2.", "incomplete", 4)
    assert result.why == "no answer within 3 rounds"
    assert events[-1].state == "incomplete"
    model.assert_complete()


@table(
    ("script", "state", "output", "why"),
    [
        ([["Hel", core.ReplyEnded("length")]], "incomplete", "Hel", "the reply reached its length limit"),
        ([["Hel", core.ReplyEnded("filter")]], "incomplete", "Hel", "the provider's filter ended the reply"),
        ([["I cannot.", core.ReplyEnded("refusal")]], "completed", "I cannot.", ""),
        ([[], [], []], "incomplete", "", "the model replied nothing"),
        ([[], "Hello."], "completed", "Hello.", ""),
        ([["Hel", core.ReplyEnded("retry"), core.ReplyStarted(), "Hello."]], "completed", "Hello.", ""),
    ],
)
def test_how_replies_end(script, state, output, why):
    _, result, _ = follow(script)
    assert (result.state, result.text, result.why) == (state, output, why)


def test_a_reply_that_fails_inside_a_call():
    failed = core.ReplyFailed("provider", "cut", "the connection broke")
    script = [["Let me see. ", core.InvocationIncomplete(0, "call_1", "read_file", '{"pa', "cut"), failed]]
    events, result, _ = follow(script)
    assert events[-1] == core.RunEnded("failed", "Let me see. ")
    assert (result.state, result.why) == ("failed", "the connection broke")
    assert_paired(result.canisters)
    assert result.canisters[-1].error == core.ToolError("cancelled", "the reply failed before the call could run")


async def test_a_model_whose_reply_has_no_end():
    class Mute:
        name = "mute"

        async def batches(self, _):
            yield [core.TextPiece("Hel")]

    run = Agent(Mute()).stream("Hi")
    events = [event async for event in run]
    assert events[-2:] == [core.ReplyFailed("provider", "cut", "the reply has no end"), core.RunEnded("failed", "Hel")]


def test_a_model_may_be_any_async_iterator():
    class Pieces:
        name = "pieces"

        def batches(self, _):
            return self

        def __aiter__(self):
            self.left = [core.TextPiece("Hello."), core.ReplyEnded("stop")]
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            return [self.left.pop(0)]

    assert Agent(Pieces()).run_sync("Hi").output == "Hello."


def test_what_a_caller_got_wrong_is_raised_and_what_was_said_is_kept():
    model = ScriptedModel([SIX])
    run = Agent(model, [multiply]).stream("Go.")

    async def scenario():
        async for _ in run:
            pass

    with pytest.raises(CallerError, match="the script has no reply 2"):
        asyncio.run(scenario())
    assert (run.result.state, run.result.why) == ("failed", "scripted: the script has no reply 2")
    assert [each.text for each in results(run.result.canisters)] == ["6"]


@table("on_error", ["feedback", "fail_fast"])
@table(
    ("call", "alert", "category"),
    [
        (
            Call("multiply", {"a": "x", "b": 3}),
            "multiply: ArgValidationError: a\n  Input should be a valid integer",
            "validation",
        ),
        (Call("multiply", "2, 3"), "multiply: ArgValidationError: arguments\n  Input should be a JSON", "validation"),
        (Call("sleep"), "sleep: Tool execution timed out. It had 0.01 s.", "timeout"),
    ],
)
def test_a_call_that_fails_without_an_exception_is_an_alert_and_a_result(call, alert, category, on_error):
    @tool(timeout=0.01)
    async def sleep() -> None:
        await asyncio.Event().wait()

    events, result, _ = follow([[call, SIX], "Hm."], (multiply, sleep), on_error=on_error)
    (note,) = [each for each in events if isinstance(each, core.Note)]
    assert (note.kind, note.code, note.text[: len(alert)]) == ("alert", "failed_call", alert)
    assert events[events.index(note) + 1] == core.ResultReady(results(result.canisters)[0])
    assert [each.error and each.error.category for each in results(result.canisters)] == [category, None]
    assert result.state == "completed"


def test_what_was_wrong_beside_a_failure_that_ends_the_run_is_an_alert_too():
    refused = asyncio.Event()

    @tool
    async def fail_later() -> None:
        """Fail when the other call has its result."""
        await refused.wait()
        raise OSError("no luck")

    wrong = Call("multiply", {"a": "x", "b": 3})
    events, result, _ = follow(
        [[wrong, Call("fail_later")]],
        (multiply, fail_later),
        on_error="fail_fast",
        after_call=lambda call, result: refused.set(),
    )
    alerts = [each.text for each in events if isinstance(each, core.Note)]
    assert [each.partition(":")[0] for each in alerts] == ["multiply", "Tool 'fail_later' failed"]
    assert result.state == "failed"


def test_an_abandoned_thread_is_told_of():
    release = threading.Event()

    @tool(timeout=0.5)
    def wait() -> None:
        """Wait for the test."""
        release.wait()

    try:
        events, result, _ = follow([Call("wait"), "It takes too long."], (wait,))
    finally:
        release.set()
    left = core.Note("alert", "wait did not return within 0.5 s; its thread was left running")
    assert [each for each in events if isinstance(each, core.Note)] == [left]
    assert results(result.canisters)[0].error.category == "timeout"
    assert result.state == "completed"


async def test_a_run_goes_once():
    run = Agent(ScriptedModel(["Hello.", "Again."])).stream("Hi")
    events = [event async for event in run]
    with pytest.raises(CallerError, match=r"^a run can be iterated over only once; make another with Agent.stream$"):
        aiter(run)
    assert run.result.output == events[-1].output == "Hello."


# Approvals.


@table(
    ("verdict", "text"),
    [
        ("allow", "the text of a.txt"),
        ("deny", "Error: read_file may not run: the answer was no"),
        (None, "Error: read_file may not run: nobody can be asked"),
    ],
)
def test_a_person_is_asked(verdict, text):
    asked = []

    async def approve(invocation, why):
        asked.append((invocation.name, why))
        return verdict

    events, result, _ = follow(
        [[SIX, READ], "ok"], policy=Policy([("read_*", "ask")]), approve=approve if verdict else None
    )
    why = "the rule 'read_*' says ask"
    invocation = result.canisters[2]
    assert [event for event in events if isinstance(event, (core.ApprovalAsked, core.ApprovalAnswered))] == [
        core.ApprovalAsked(invocation, why),
        core.ApprovalAnswered(invocation, verdict)
        if verdict
        else core.ApprovalAnswered(invocation, "deny", "nobody can be asked", failed=True),
    ]
    assert asked == ([("read_file", why)] if verdict else [])
    assert result_texts(result) == ["6", text]
    assert result.state == "completed"


def test_each_call_is_asked_for_before_any_runs():
    happened = []

    @tool(approval=True)
    def act(number: int) -> int:
        happened.append(f"ran {number}")
        return number

    async def approve(invocation, _):
        number = invocation.arguments["number"]
        happened.append(f"asked {number}")
        return "allow" if number != 2 else "deny"

    calls = [Call("act", {"number": number}) for number in (1, 2, 3)]
    _, result, _ = follow([calls, "ok"], (act,), approve=approve)
    assert happened[:3] == ["asked 1", "asked 2", "asked 3"]
    assert sorted(happened[3:]) == ["ran 1", "ran 3"]
    assert [each.error and each.error.category for each in results(result.canisters)] == [None, "permission", None]


def test_what_a_rule_denies_is_not_asked_for():
    events, result, _ = follow([[SIX, READ], "ok"], policy=Policy([("*", "deny"), ("multiply", "allow")]))
    assert result_texts(result) == [
        "6",
        "Error: read_file may not run: the rule '*' says deny",
    ]
    assert not any(isinstance(event, core.ApprovalAsked) for event in events)


def test_a_model_is_not_told_of_a_tool_that_may_never_run():
    _, result, model = follow([READ, "ok"], policy=Policy([("read_file", "deny")]))
    assert [tool.name for tool in model.requests[0].tools] == ["multiply", "broken"]
    assert results(result.canisters)[0].text == "Error: read_file may not run: the rule 'read_file' says deny"


def test_nobody_is_asked_about_a_call_that_cannot_run():
    events, result, _ = follow([Call("reed"), Call("read_file"), "ok"], policy=Policy([("*", "ask")]))
    assert [each.error.category for each in results(result.canisters)] == ["not_found", "validation"]
    assert not any(isinstance(event, core.ApprovalAsked) for event in events)


# Leaving early.


@table("leave_after", range(1, 25))
async def test_leaving_after_any_event(leave_after):
    """Whatever was seen is in the transcript, and every invocation has its result."""
    kept = []  # a list is a Store

    model = ScriptedModel([["Two. ", SIX, READ], [Call("broken"), core.TextPiece("?")], "6"])
    run = Agent(model, [multiply, read_file, broken], store=kept).stream("Go.")
    seen = []
    async with run:
        async for event in run:
            seen.append(event)
            if len(seen) == leave_after:
                break
    result = run.result
    assert len(seen) == leave_after
    assert result.state == "cancelled"
    assert_paired(result.canisters)
    assert kept == [*result.canisters]
    said = "".join([event.text for event in seen if isinstance(event, core.TextPiece)])
    assert "".join([each.text for each in result.canisters if isinstance(each, core.AssistantCanister)]) == said
    given = [event.canister for event in seen if isinstance(event, core.ResultReady)]
    assert results(result.canisters)[: len(given)] == given
    ended = [event.identifier for event in seen if isinstance(event, core.InvocationEnded)]
    assert [each.invocation_id for each in results(result.canisters)] == ended


async def test_leaving_without_a_word_cancels_too():
    ended = []

    started, over = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
            over.set()

    run = Agent(ScriptedModel([[SIX, Call("wait")]]), [multiply, wait]).stream("Go.")
    async for event in run:
        if isinstance(event, core.ResultReady):
            await started.wait()
            break
    await over.wait()
    while not run.ended:  # noqa: ASYNC110 - the event loop closes what a `for` leaves, a step later
        await asyncio.sleep(0)
    result = run.result
    assert ended == [True]
    assert result.state == "cancelled"
    assert result_texts(result) == ["6", "Error: the run was cancelled"]


async def test_cancelling_the_task_cancels_the_tools():
    ended = []

    started = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    agent = Agent(ScriptedModel([[Call("wait"), SIX]]), [multiply, wait])
    run = agent.stream("Go.")

    async def follow():
        async for _ in run:
            pass

    task = asyncio.create_task(follow())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = run.result
    assert ended == [True]
    assert (result.state, result.why) == ("cancelled", "cancelled")
    assert_paired(result.canisters)


def test_every_canister_has_the_time_it_was_made():
    times = iter(range(1000))

    def clock():
        return datetime(2026, 1, 1, second=0, microsecond=next(times), tzinfo=UTC)

    _, result, _ = follow([["Two. ", SIX], "6"], clock=clock)
    stamps = [each.timestamp for each in result.canisters]
    assert stamps == sorted(stamps)
    assert stamps[0] < stamps[1] == stamps[2] < stamps[3] < stamps[4]


def test_usage_of_a_reply_that_was_not_whole_counts():
    events, result, _ = follow(
        [[core.Usage(5, 2), SIX], [core.Usage(7, 1), core.ReplyFailed("provider", "cut", "gone")]]
    )
    assert result.usage == events[-1].usage == core.Usage(12, 3)
