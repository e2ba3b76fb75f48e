"""Running tasks: what is asked, what counts, and what a run that was stopped keeps."""

import asyncio
import gc
from contextlib import aclosing, asynccontextmanager

import pytest
from tests.tables import table

from callboard.core import (
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    TextPiece,
    ToolDeclaration,
    Usage,
    UserCanister,
    contents,
)
from callboard.errors import CallerError
from callboard.evaluation.records import RecordFile
from callboard.evaluation.runner import EndpointGone, RunnerOptions, attempt_task, run_tasks
from callboard.evaluation.task import ExpectedCall, ScriptedResult, Step, Task
from callboard.evaluation.variants import Variant
from callboard.profiles import resolve
from callboard.testing import Call, FakeBackend, ScriptedModel

WEATHER = ToolDeclaration(
    "weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
ROME = Call("weather", {"city": "Rome"})
OSLO = Call("weather", {"city": "Oslo"})
DEFAULT = (Variant("default"),)
FAILURE = [ReplyFailed("provider", "unreachable", "nobody is there")]


def task(identifier="t1", steps=None, tools=(WEATHER,)):
    asks = (UserCanister(contents(f"How is the weather in Rome? ({identifier})")),)
    expected = (ExpectedCall("weather", {"city": ("Rome",)}),)
    return Task(identifier, "own", "weather", tools, steps or (Step(asks, expected),))


TWO_STEPS = task(
    "two",
    (
        Step(
            (UserCanister(contents("How is the weather in Rome?")),),
            (ExpectedCall("weather", {"city": ("Rome",)}),),
            results={"weather": (ScriptedResult("31 degrees"),)},
        ),
        Step(answer=(("31",),)),
    ),
)


def attempt(replies, of=None, **options):
    model = ScriptedModel(replies)
    return asyncio.run(attempt_task(model, of or task(), RunnerOptions(**options))), model


def collect(replies, tasks, path, *, variants=DEFAULT, identity="m", behind=None, **options):
    """Runs the tasks; the outcomes, and the requests that the model got."""
    model = ScriptedModel(replies)

    @asynccontextmanager
    async def open_model(_):
        yield model

    async def scenario():
        outcomes = run_tasks(
            variants,
            tasks,
            open_model,
            identity=identity,
            file=RecordFile(path),
            resolve=(lambda _: behind) if behind else None,
            options=RunnerOptions(**options),
        )
        return [outcome async for outcome in outcomes]

    return asyncio.run(scenario()), model.requests


def test_a_reply_is_kept_as_it_came():
    (only,), model = attempt([["Let me see. ", ROME, Usage(input=10, output=5)]])
    assert [(call.name, call.arguments) for call in only.calls] == [("weather", {"city": "Rome"})]
    assert only.text == "Let me see. "
    assert only.ending == "invocations"
    assert only.usage == Usage(input=10, output=5)
    assert not only.failure
    assert model.requests[0].tools[0].schema == WEATHER.schema
    assert model.requests[0].controls.temperature == 0


def test_the_next_step_reads_the_results_that_the_task_scripts():
    attempts, model = attempt([ROME, "It has 31 degrees."], TWO_STEPS)
    assert len(attempts) == 2
    last = model.requests[1].canisters[-1]
    assert isinstance(last, ResultCanister)
    assert last.content == contents("31 degrees")


def test_a_wrong_step_is_the_last():
    attempts, model = attempt([OSLO, "never asked"], TWO_STEPS)
    assert len(attempts) == len(model.requests) == 1


def test_arguments_that_do_not_fit_are_no_reason_to_ask_again():
    (only,), model = attempt([Call("weather", {"town": "Rome"}), ROME])
    assert only.calls[0].arguments == {"town": "Rome"}
    assert len(model.requests) == 1


def test_a_reply_that_is_asked_for_again_is_the_second_one():
    (only,), _ = attempt([["I will not", ReplyEnded("retry"), ROME]])
    assert only.text == ""
    assert len(only.calls) == 1


@table(
    ("reply", "message"),
    [
        (FAILURE, "nobody is there"),
        ([TextPiece("x" * 300_000)], "longer than"),
    ],
)
def test_a_failure_is_the_endpoints(reply, message):
    (only,), _ = attempt([reply])
    assert message in only.failure


def test_a_reply_that_does_not_come_is_a_failure():
    class Silent(ScriptedModel):
        async def batches(self, request):
            await asyncio.Event().wait()
            yield []

    (only,) = asyncio.run(attempt_task(Silent([]), task(), RunnerOptions(timeout=0.001)))
    assert "longer than 0.001 seconds" in only.failure


@table(
    "hostile",
    [
        task(tools=(WEATHER, WEATHER)),
        task(tools=(ToolDeclaration("bad", "", {"type": "nonsense"}),)),
        task(steps=(Step(),) * 100),
        task(tools=(ToolDeclaration("", "", {}),)),
    ],
)
def test_a_hostile_task_fails_alone(hostile):
    attempts, model = attempt([ROME], hostile)
    assert attempts[-1].failure or attempts[-1].calls
    assert len(model.requests) <= 1


def test_what_is_on_disk_is_not_asked_again(tmp_path):
    tasks = [task("a"), task("b")]
    outcomes, requests = collect([ROME, OSLO], tasks, tmp_path / "m.jsonl")
    assert len(requests) == 2
    assert not any(each.is_cached for each in outcomes)
    again, requests = collect([], tasks, tmp_path / "m.jsonl")
    assert requests == []
    assert [each.record for each in again] == [each.record for each in outcomes]
    _, requests = collect([ROME, ROME], tasks, tmp_path / "m.jsonl", fresh=True)
    assert len(requests) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": "another file"},
        {"variants": (Variant("default", {"max_tokens": 7}),)},
        {"max_tokens": 7},
        {"tasks": [task("a", tools=(WEATHER, ToolDeclaration("other")))]},
    ],
)
def test_what_would_change_an_answer_is_asked_anew(tmp_path, changed):
    collect([ROME], [task("a")], tmp_path / "m.jsonl")
    _, requests = collect([ROME], changed.pop("tasks", [task("a")]), tmp_path / "m.jsonl", **changed)
    assert len(requests) == 1


def test_a_change_behind_a_gateway_is_asked_anew(tmp_path):
    """What is asked of the gateway is the same, but not what it asks of the model."""
    behind = resolve("m", {"mode": "validated"})
    collect([ROME], [task("a")], tmp_path / "m.jsonl", behind=behind)
    _, requests = collect([], [task("a")], tmp_path / "m.jsonl", behind=behind)
    assert requests == []
    other = resolve("m", {"mode": "validated", "dialect": "hermes"})
    _, requests = collect([ROME], [task("a")], tmp_path / "m.jsonl", behind=other)
    assert len(requests) == 1


def test_a_failed_task_is_asked_again_by_the_next_run(tmp_path):
    outcomes, _ = collect([FAILURE], [task("a")], tmp_path / "m.jsonl")
    assert outcomes[0].record.failure
    outcomes, _ = collect([ROME], [task("a")], tmp_path / "m.jsonl")
    assert not outcomes[0].record.failure


def test_an_endpoint_that_is_gone_is_not_asked_for_ever(tmp_path):
    with pytest.raises(EndpointGone, match="nobody is there"):
        collect([FAILURE] * 5, [task(str(at)) for at in range(50)], tmp_path / "m.jsonl")


def test_a_run_that_was_killed_goes_on(tmp_path):
    """The process died in the middle of a line."""
    path, tasks = tmp_path / "m.jsonl", [task("a"), task("b"), task("c")]
    collect([ROME] * 3, tasks, path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 40])
    outcomes, requests = collect([ROME], tasks, path)
    assert len(requests) == 1
    assert [each.is_cached for each in outcomes] == [True, True, False]
    _, requests = collect([], tasks, path)
    assert requests == []


def test_answers_that_cannot_be_kept_end_the_run_once(tmp_path, caplog):
    (tmp_path / "answers").write_text("a file where the folder should be")
    tasks = [task(f"t{at}") for at in range(8)]
    with pytest.raises(CallerError, match="free some space"):
        collect([ROME] * 8, tasks, tmp_path / "answers/m.jsonl", fresh=True, concurrency=4)
    gc.collect()
    assert not caplog.records


async def test_a_cancelled_run_keeps_what_is_done(tmp_path):
    path, tasks = tmp_path / "m.jsonl", [task("a"), task("b")]

    class Stuck(ScriptedModel):
        async def batches(self, request):
            if len(self.requests) == 1:
                started.set()
                await asyncio.Event().wait()
            async for batch in super().batches(request):
                yield batch

    @asynccontextmanager
    async def open_model(_):
        yield Stuck([ROME])

    async def consume():
        async for _ in run_tasks([Variant("default")], tasks, open_model, identity="m", file=RecordFile(path)):
            pass

    started = asyncio.Event()
    running = asyncio.ensure_future(consume())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    outcomes, requests = await asyncio.to_thread(collect, [ROME], tasks, path)
    assert len(requests) == 1
    assert outcomes[0].is_cached


async def test_tasks_run_side_by_side(tmp_path):
    peak = running = 0

    class Slow(ScriptedModel):
        async def batches(self, request):
            nonlocal peak, running
            running += 1
            peak = max(peak, running)
            try:
                await asyncio.sleep(0)
                async for batch in super().batches(request):
                    yield batch
            finally:
                running -= 1

    @asynccontextmanager
    async def open_model(_):
        yield Slow([ROME] * 10)

    tasks, file = [task(str(at)) for at in range(10)], RecordFile(tmp_path / "m")
    options = RunnerOptions(concurrency=3)
    outcomes = run_tasks([Variant("v")], tasks, open_model, identity="m", file=file, options=options)
    assert {outcome.task.identifier async for outcome in outcomes} == {str(at) for at in range(10)}
    assert peak == 3


async def test_over_http_a_call_comes_back():
    from callboard.providers import open_model

    async with FakeBackend(['<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>']) as backend:
        model = open_model("fake-model", base_url=backend.url, mode="validated", profile={"dialect": "hermes"})
        async with aclosing(model):
            (only,) = await attempt_task(model, task())
    assert only.calls[0].arguments == {"city": "Rome"}
