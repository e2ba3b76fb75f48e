"""A job of an agent continues from its entries, in any process."""

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.jobs.local_queue import LocalQueue, conversation_of, new_watch

from callboard import Agent, Limits, core, tool
from callboard.errors import CallerError
from callboard.jobs import segment as segment_module
from callboard.jobs.agent_kind import load_agent
from callboard.jobs.claim import LeftToOthers
from callboard.jobs.database import Database
from callboard.jobs.job import normalize_reference
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers.http_model import HttpModel
from callboard.providers.transport import Transport
from callboard.testing import Call, Cut, FakeBackend, ScriptedModel, StatusReply
from callboard.tools import Context


class Bench:
    """An agent with a tool that changes something and a tool that only looks, and their calls."""

    def __init__(self, replies, **options):
        self.effects = Counter()
        self.keys = []

        @tool
        async def change(number: int, context: Context) -> str:
            """Change something."""
            self.keys.append(context.call_key)
            self.effects[number] += 1
            return f"changed {number}"

        @tool(idempotent=True)
        async def look(number: int) -> str:
            """Look."""
            self.effects[number] += 1
            return f"saw {number}"

        @tool(approval=True)
        async def book(room: int) -> str:
            """Book a room."""
            self.effects[room] += 1
            return f"booked {room}"

        @tool(deferred=True)
        def ask_user(question: str) -> str:
            """Ask the user."""
            raise AssertionError(f"the answer to {question} comes from outside")

        self.model = ScriptedModel(replies)
        tools = [change, look, book, ask_user]
        self.agent = Agent(self.model, tools, **{"instructions": "Work.", **options})

    def queue(self, database, **options):
        return LocalQueue(database, {"test:agent": self.agent}, **options)

    async def run(self, database, **options):
        """Submit a job and run it until nothing is queued. Returns the queue and the job."""
        queue = self.queue(database)
        job = await queue.submit(**options)
        await queue.drain()
        return queue, await queue.store.get(job.id)


async def test_a_job_completes_and_its_row_has_what_it_took(database):
    bench = Bench(
        [[core.Usage(input=5, output=2), Call("change", {"number": 1})], [core.Usage(input=9, output=1), "Done."]]
    )
    queue = bench.queue(database)
    job = await queue.submit()
    assert await queue.drain() == 1
    job = await queue.store.get(job.id)
    assert (job.state, job.output, job.rounds, job.calls) == ("completed", {"text": "Done."}, 2, 1)
    assert job.usage == {"input": 14, "output": 3, "cached": 0, "reasoning": 0}
    canisters = await conversation_of(queue, job)
    kinds = [
        core.SupervisorCanister,
        core.UserCanister,
        core.InvocationCanister,
        core.ResultCanister,
        core.AssistantCanister,
    ]
    assert [type(each) for each in canisters] == kinds
    assert [each.round for each in await queue.store.read_entries(job.id)] == [0, 0, 1, 1, 2]
    assert bench.keys == [f"{job.id}:{canisters[2].identifier}"]


async def test_a_segment_gives_way_at_a_rounds_beginning(database, monkeypatch):
    monkeypatch.setattr(segment_module, "ROUNDS", 2)
    bench = Bench([*[Call("change", {"number": number}) for number in range(5)], "Done."])
    queue = bench.queue(database)
    job = await queue.submit()
    assert await queue.drain() == 3
    job = await queue.store.get(job.id)
    assert (job.state, job.rounds, job.segment) == ("completed", 6, 3)
    assert bench.effects == Counter(range(5))


async def test_a_worker_that_stops_is_left_at_a_rounds_beginning(database):
    bench = Bench([Call("look", {"number": 1}), "Done."])
    queue = bench.queue(database)
    job = await queue.submit()
    watch = new_watch()
    watch.stopping.set()
    await queue.runner(*queue.queued.popleft(), watch)
    assert (await queue.store.get(job.id)).state == "pending"
    assert bench.model.requests == []
    await queue.drain()
    assert (await queue.store.get(job.id)).state == "completed"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(rounds=3), "no answer within 3 rounds"),
        (Limits(tokens=25), "30 tokens are used, of 25"),
        (Limits(calls=3), "no answer within 3 calls"),
    ],
)
async def test_limits_hold_over_all_segments(database, monkeypatch, limits, why):
    monkeypatch.setattr(segment_module, "ROUNDS", 1)
    replies = [[core.Usage(input=9, output=1), Call("change", {"number": number})] for number in range(3)]
    _, job = await Bench([*replies, "Enough."], limits=limits).run(database)
    assert (job.state, job.reason, job.calls) == ("failed", why, 3)


async def test_the_limits_of_a_job_stand_in_the_place_of_the_agents(database):
    _, job = await Bench([Call("look", {"number": 1}), "Done."]).run(database, limits=Limits(rounds=1))
    assert job.reason == "no answer within 1 rounds"


# Approvals and questions.


async def answer(queue, job, **answered):
    """Answer the job's open question."""
    [asked] = [each for each in await queue.store.read_approvals(job.id) if not each.verdict]
    await queue.store.answer(job.id, asked.call_id, digest=asked.digest, **answered)


async def waiting(database, **options):
    bench = Bench([[Call("book", {"room": 7}, identifier="b"), Call("look", {"number": 1})], "Done."], **options)
    queue, job = await bench.run(database)
    assert (job.state, job.waits_for) == ("waiting", "approval")
    return bench, queue, job


@pytest.mark.parametrize(
    ("answer", "rooms", "text"),
    [
        ({}, [7], "booked 7"),
        ({"edited": {"room": 8}}, [8], 'The arguments of this call were edited before it ran: {"room":8}\nbooked 8'),
        ({"verdict": "deny", "reason": "full"}, [], "Error: book may not run: full"),
    ],
)
async def test_an_approval_is_answered_in_another_process(database, answer, rooms, text):
    bench, queue, job = await waiting(database)
    [asked] = await queue.store.read_approvals(job.id)
    assert (asked.name, asked.arguments, asked.is_question) == ("book", {"room": 7}, False)
    assert asked.why
    assert [*asked.parameters["properties"]] == ["room"]
    with pytest.raises(CallerError, match="room: Input should be a valid integer"):
        await queue.store.answer(job.id, "b", digest=asked.digest, edited={"room": "full"})
    later = LocalQueue(database, {"test:agent": bench.agent})
    await later.store.answer(job.id, "b", digest=asked.digest, **answer)
    await later.drain()
    assert (await later.store.get(job.id)).state == "completed"
    assert [room for room in (7, 8) if bench.effects[room]] == rooms
    assert bench.effects[1] == 1
    results = [each.text for each in await conversation_of(later, job) if isinstance(each, core.ResultCanister)]
    assert results == [text, "saw 1"]


async def test_an_agents_own_callback_is_asked_first(database):
    bench = Bench([Call("book", {"room": 7}), "Done."], approve=lambda *_: "allow")
    queue, job = await bench.run(database)
    assert (job.state, bench.effects[7]) == ("completed", 1)
    items = [each.item for each in await queue.store.read_entries(job.id)]
    (at,) = [place for place, each in enumerate(items) if isinstance(each, core.ApprovalAnswered)]
    assert (items[at].verdict, items[at].via, items[at].timestamp is None) == ("allow", "Python", False)
    assert isinstance(items[at - 1], core.InvocationCanister)
    assert isinstance(items[at + 1], core.ResultCanister)


async def test_an_answer_is_one_entry_however_the_run_continues(database):
    bench = Bench([Call("book", {"room": 7}), Call("book", {"room": 7}), "Done."])
    queue = bench.queue(database)
    job = await queue.submit()
    for _ in range(2):
        await queue.drain()
        (asked,) = [each for each in await queue.store.read_approvals(job.id) if not each.verdict]
        await queue.store.answer(job.id, asked.call_id, digest=asked.digest, by="alice", via="board")
    assert "The same call was allowed before. Allowed by alice (board)" in asked.why
    await queue.drain()
    answers = [each for each in await queue.store.read_entries(job.id) if isinstance(each.item, core.ApprovalAnswered)]
    assert [each.item.by for each in answers] == ["alice", "alice"]
    assert (await queue.store.get(job.id)).state == "completed"


async def test_an_answer_to_an_earlier_call_of_the_same_identifier_is_none(database):
    """Some servers give each call the identifier `call_0`."""
    bench = Bench([*[Call("book", {"room": 7}, identifier="call_0")] * 2, "Done."])
    queue, job = await bench.run(database)
    await answer(queue, job)
    await queue.drain()
    assert ((await queue.store.get(job.id)).state, bench.effects[7]) == ("waiting", 1)
    await answer(queue, job, verdict="deny", reason="once is enough")
    await queue.drain()
    assert ((await queue.store.get(job.id)).state, bench.effects[7]) == ("completed", 1)


async def test_calls_of_one_identifier_run_once_each(database):
    """In one reply, and in several."""
    calls = [Call("change", {"number": number}, identifier="call_0") for number in range(4)]
    bench = Bench([calls[:3], calls[3:], "Done."])
    queue, job = await bench.run(database)
    assert job.output == {"text": "Done."}
    assert bench.effects == dict.fromkeys(range(4), 1)
    assert len(set(bench.keys)) == 4
    results = [each for each in await conversation_of(queue, job) if isinstance(each, core.ResultCanister)]
    assert [each.text for each in results] == [f"changed {number}" for number in range(4)]


async def test_calls_of_one_identifier_are_each_answered_after_a_crash(database):
    begun, gate = [], asyncio.Event()

    @tool
    async def wait(number: int) -> str:
        """Wait."""
        begun.append(number)
        await gate.wait()
        return f"waited {number}"

    calls = [Call("wait", {"number": number}, identifier="call_0") for number in range(2)]
    model = ScriptedModel([calls, "Done."])
    queue = LocalQueue(database, {"test:agent": Agent(model, [wait])})
    job = await queue.submit()
    task = asyncio.create_task(queue.runner(job.id, 1, new_watch()))
    while len(begun) < 2:  # noqa: ASYNC110  # what is waited for happens in a database
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await queue.drain()
    assert (await queue.store.get(job.id)).output == {"text": "Done."}
    results = [each for each in model.requests[-1].canisters if isinstance(each, core.ResultCanister)]
    assert [each.text[:12] for each in results] == ["Error: inter"] * 2
    assert sorted(begun) == [0, 1]


async def test_a_question_is_answered_with_a_text(database):
    bench = Bench([Call("ask_user", {"question": "Which room?"}, identifier="q"), "Room 7 it is."])
    queue, job = await bench.run(database)
    assert (job.state, job.waits_for) == ("waiting", "question")
    await answer(queue, job, text="Number 7.")
    await queue.drain()
    assert (await queue.store.get(job.id)).output == {"text": "Room 7 it is."}
    assert bench.model.requests[1].canisters[-1].text == "Number 7."


async def test_a_job_waits_ten_days_over_three_processes(tmp_path):
    """Only the time of the run counts, and no process runs while the job waits."""
    url, days = f"sqlite:///{tmp_path / 'jobs.db'}", [0]

    def clock():
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=days[0])

    rooms = [Call("book", {"room": room}, identifier=f"b{room}") for room in (7, 8)]
    bench = Bench([*rooms, "Done."], limits=Limits(seconds=60.0), clock=clock)
    with Database.open(url) as opened:
        queue = bench.queue(opened, clock=clock)
        job = await queue.submit()
        await queue.drain()
    for day in (4, 10):
        days[0] = day
        with Database.open(url) as opened:
            queue = bench.queue(opened, clock=clock)
            assert (await queue.store.get(job.id)).state == "waiting"
            await answer(queue, job)
            await queue.drain()
            job = await queue.store.get(job.id)
    assert (job.state, job.output, job.completed_at - job.created_at) == (
        "completed",
        {"text": "Done."},
        timedelta(days=10),
    )


async def test_the_row_of_a_job_has_the_model_of_its_agent_from_its_first_segment_on(database):
    queue = Bench(["Done."]).queue(database)
    job = await queue.submit()
    await queue.drain()
    assert (job.model, (await queue.store.get(job.id)).model) == ("", "scripted")


# How a job ends otherwise.


async def test_a_rate_limit_is_waited_for_longer_each_time(database):
    refused = [core.ReplyFailed("provider", "rate_limit_exceeded", "slow down")]
    queue = Bench([refused, refused, "Done."]).queue(database)
    job = await queue.submit()
    await queue.runner(*queue.queued.popleft(), new_watch())
    assert (await queue.store.get(job.id)).waits_for == "rate_limit"
    await queue.drain()
    assert queue.delays == [0, 30, 60]
    assert (await queue.store.get(job.id)).output == {"text": "Done."}


@pytest.mark.parametrize(
    ("status", "headers", "delay"),
    [
        (429, {"Retry-After": "7200"}, 7200),
        (429, {"Retry-After": "Tue, 18 Nov 2025 03:00:00 GMT"}, 3 * 3600),
        (429, {"Retry-After": "9" * 30}, 86400),
        (503, {"retry-after-ms": "120000"}, 120),
    ],
)
async def test_a_job_waits_as_long_as_the_provider_asks_for(database, status, headers, delay):
    now = datetime(2025, 11, 18, tzinfo=UTC)
    replies = [StatusReply(status, {"error": {"message": "quota of the day"}}, headers), "Done."]
    async with FakeBackend(replies) as backend:
        transport = Transport(clock=lambda: now)
        resolution = resolve("fake-model")
        model = HttpModel(resolution, make_plan(resolution, ""), transport, base_url=backend.url)
        queue = LocalQueue(database, {"test:agent": Agent(model)}, clock=lambda: now)
        job = await queue.submit()
        await queue.runner(*queue.queued.popleft(), new_watch())
        waiting = await queue.store.get(job.id)
        assert (waiting.state, waiting.waits_for) == ("waiting", "rate_limit")
        assert "quota of the day" in waiting.reason
        now += timedelta(seconds=delay)
        await queue.drain()
        assert queue.delays == [0, delay]
        assert (await queue.store.get(job.id)).output == {"text": "Done."}
        await transport.aclose()


@pytest.mark.parametrize("code", ["unreachable", "cut", "timeout", "UNAVAILABLE"])
async def test_a_job_waits_for_a_provider_that_cannot_be_reached_or_breaks_off(database, code):
    failed = [core.TextPiece("Half"), core.ReplyFailed("provider", code, "the line broke")]
    bench = Bench([Call("change", {"number": 1}), failed, failed, "Done."])
    queue = bench.queue(database)
    job = await queue.submit()
    await queue.runner(*queue.queued.popleft(), new_watch())
    waiting = await queue.store.get(job.id)
    assert (waiting.state, waiting.reason) == ("waiting", "the line broke")
    await queue.drain()
    assert queue.delays == [0, 30, 60]
    job = await queue.store.get(job.id)
    assert (job.output, job.rounds, bench.effects[1]) == ({"text": "Done."}, 2, 1)


@pytest.mark.parametrize(
    ("party", "code"),
    [
        ("provider", "authentication_error"),
        ("caller", "invalid_request_error"),
        ("caller", "context_length_exceeded"),
        ("caller", "timeout"),
        ("provider", "malformed"),
    ],
)
async def test_a_failure_that_no_waiting_cures_fails_the_job_at_once(database, party, code):
    _, job = await Bench([[core.ReplyFailed(party, code, "no")]]).run(database)
    assert (job.state, job.error) == ("failed", "no")


async def test_a_job_survives_a_restart_of_its_models_server(database):
    """At first nothing listens. Then the stream breaks in the middle of a reply."""
    transport = Transport(retries=0)
    async with FakeBackend([]) as backend:
        url = backend.url
    model = HttpModel(resolve("fake-model"), make_plan(resolve("fake-model"), ""), transport, base_url=url)
    queue = LocalQueue(database, {"test:agent": Agent(model)})
    job = await queue.submit()
    await queue.runner(*queue.queued.popleft(), new_watch())
    refused = await queue.store.get(job.id)
    async with FakeBackend([Cut([core.TextPiece("Half a rep")]), "Done."]) as backend:
        model.base_url = backend.url
        await queue.runner(*queue.queued.popleft(), new_watch())
        cut = await queue.store.get(job.id)
        await queue.drain()
    await transport.aclose()
    assert (refused.state, cut.state) == ("waiting", "waiting")
    assert "cannot connect" in refused.reason
    job = await queue.store.get(job.id)
    assert (job.state, job.output, job.rounds) == ("completed", {"text": "Done."}, 1)


async def test_an_entry_that_cannot_be_read_fails_the_job_at_once(database):
    queue = Bench(["Done."]).queue(database)
    job = await queue.submit(history=[core.UserCanister("Hi")])
    change = 'UPDATE callboard_entries SET line = \'{"type":"of_a_later_version"}\''
    await database.run(lambda connection: connection.exec_driver_sql(change))
    await queue.runner(*queue.queued.popleft(), new_watch())
    job = await queue.store.get(job.id)
    assert (job.state, job.attempts) == ("failed", 1)
    assert job.error.startswith("entry 1: not an entry of a job")


async def test_a_provider_that_fails_fails_the_job_which_can_be_resumed(database):
    failed = [core.TextPiece("Half"), core.ReplyFailed("provider", "server_error", "the line broke")]
    bench = Bench([Call("change", {"number": 1}), failed, "Done."])
    queue, job = await bench.run(database)
    assert (job.state, job.error, job.output) == ("failed", "the line broke", {"text": "Half"})
    await queue.store.resume(job.id)
    await queue.drain()
    assert (await queue.store.get(job.id)).output == {"text": "Done."}
    assert bench.model.requests[-1].canisters[-1].text == "Go on."
    assert bench.effects[1] == 1


async def test_a_mistake_of_the_agents_code_fails_the_job_with_a_sentence(database):
    def instructions(_):
        raise ZeroDivisionError("no sense")

    queue = LocalQueue(database, {"test:agent": Agent(ScriptedModel([]), instructions=instructions)})
    job = await queue.submit()
    await queue.drain()
    assert (await queue.store.get(job.id)).error == "ZeroDivisionError: no sense"


async def test_a_job_is_left_to_a_worker_that_can_run_it(database):
    stranger, bench = LocalQueue(database, {}), Bench(["Done."])
    job, other = await stranger.submit(), await stranger.store.create("dance")
    for _ in range(10):
        for each in (job, other):
            with pytest.raises(LeftToOthers):
                await stranger.runner(each.id, 1, new_watch())
    left, other = await stranger.store.get(job.id), await stranger.store.get(other.id)
    assert (left.state, left.attempts, left.started_at) == ("pending", 0, None)
    assert left.reason == (
        "the worker that took it does not know its agent; start: callboard worker --agents test:agent"
    )
    assert other.reason == "the worker that took it runs no jobs of the kind 'dance'; start one that does"
    await bench.queue(database).runner(job.id, 1, new_watch())
    ended = await stranger.store.get(job.id)
    assert (ended.state, ended.reason, ended.attempts) == ("completed", "", 1)


async def test_any_process_can_cancel_a_job_that_it_cannot_run(database):
    stranger = LocalQueue(database, {})
    job = await stranger.submit()
    await stranger.store.claim(job.id, 1, "somebody who dies")
    await stranger.store.request_cancel(job.id)
    await stranger.drain()
    assert (await stranger.store.get(job.id)).state == "cancelled"


async def test_auxdata_has_to_be_json(database):
    with pytest.raises(CallerError, match="auxdata: it is not JSON"):
        await Bench([]).queue(database).submit(auxdata={"connection": object()})


async def test_a_fork_continues_from_a_round(database):
    bench = Bench([Call("change", {"number": 1}), Call("change", {"number": 2}), "One way.", "Another way."])
    queue, job = await bench.run(database)
    forked = await queue.store.fork(job.id, 1)
    await queue.drain()
    forked = await queue.store.get(forked.id)
    assert (forked.output, forked.rounds, forked.parent) == ({"text": "Another way."}, 2, f"{job.id}@1")
    assert len(bench.model.requests[-1].canisters) == 4
    assert bench.effects == {1: 1, 2: 1}


async def test_a_job_that_is_tried_again_begins_with_its_prompt(database):
    bench = Bench(["One way.", "Another way."])
    queue, job = await bench.run(database, history=[core.UserCanister("Hello."), core.AssistantCanister("Hi.")])
    again = await queue.store.retry(job.id)
    await queue.drain()
    assert (await queue.store.get(again.id)).output == {"text": "Another way."}
    first, second = [[each.text for each in request.canisters] for request in bench.model.requests]
    assert first == second == ["Work.", "Hello.", "Hi.", "Go."]


# What a runner does that lost its job.


def make_sleeper():
    """Return a tool that never ends, the event of its start, and the list of its ends."""
    begun, ended = asyncio.Event(), []

    @tool
    async def sleep() -> str:
        """Sleep."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("sleep")
        return "never"

    return begun, ended, sleep


async def test_a_runner_that_was_superseded_stops_all_of_its_calls(database):
    """The call that notices is not the first call to be awaited."""
    begun, ended, sleep = make_sleeper()

    @tool
    async def finish() -> str:
        """Finish once another runner has the job."""
        await begun.wait()
        await queue.store.claim(job.id, 1, "another")
        return "finished"

    agent = Agent(ScriptedModel([[Call("sleep"), Call("finish")]]), [sleep, finish])
    queue = LocalQueue(database, {"test:agent": agent})
    job = await queue.submit()
    task = asyncio.create_task(queue.runner(*queue.queued.popleft(), new_watch()))
    await task
    assert ended == ["sleep"]
    assert ((await queue.store.get(job.id)).executor, task.cancelled()) == ("another", False)


async def test_a_cancelled_job_ends_and_its_call_is_stopped(database):
    begun, ended, sleep = make_sleeper()

    bench = Bench([Call("sleep"), "Done."])
    agent = Agent(bench.model, [sleep])
    queue, watch = LocalQueue(database, {"test:agent": agent}), new_watch()
    job = await queue.submit()
    task = asyncio.create_task(queue.runner(*queue.queued.popleft(), watch))
    await begun.wait()
    watch.cancel_requested = True
    task.cancel()
    await task
    row = await queue.store.get(job.id)
    assert (row.state, row.entries, ended) == ("cancelled", 3, ["sleep"])
    await queue.store.resume(job.id)
    await queue.drain()
    assert (await queue.store.get(job.id)).output == {"text": "Done."}
    [result] = [each for each in await conversation_of(queue, job) if isinstance(each, core.ResultCanister)]
    assert result.text.startswith("Error: cancelled while sleep ran, so it may have done all, part or nothing")
    assert bench.model.requests[-1].canisters[-1] == result


async def test_a_runner_whose_process_ends_leaves_the_job_as_it_is(database):
    begun, _, sleep = make_sleeper()
    bench = Bench([Call("sleep"), "Done."])
    queue = LocalQueue(database, {"test:agent": Agent(bench.model, [sleep])})
    job = await queue.submit()
    segment = queue.queued.popleft()
    task = asyncio.create_task(queue.runner(*segment, new_watch()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await queue.store.get(job.id)).state == "running"
    await queue.runner(*segment, new_watch("another"))
    assert (await queue.store.get(job.id)).output == {"text": "Done."}
    assert "outcome unknown" in bench.model.requests[-1].canisters[-1].text


CREW = """
from callboard import Agent
from callboard.testing import ScriptedModel

clerk = Agent(ScriptedModel([]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with modules that can be imported and are unloaded after the test."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crew_of_test.py").write_text(CREW, "utf-8")
    yield tmp_path
    for name in set(sys.modules) - known:
        if "_of_test" in name:
            del sys.modules[name]


def test_a_path_is_the_same_from_everywhere(place, monkeypatch):
    monkeypatch.chdir(place)
    assert normalize_reference("crew_of_test.py:clerk") == f"{place}/crew_of_test.py:clerk"
    assert normalize_reference("crew_of_test:clerk") == "crew_of_test:clerk"


def test_an_agent_is_found_by_the_name_or_the_path_of_its_module(place):
    by_path = load_agent(f"{place}/crew_of_test.py:clerk")
    assert {type(each) for each in (by_path, load_agent("crew_of_test:clerk"))} == {Agent}


@pytest.mark.parametrize("reference", ["crew_of_test", "crew_of_test:nobody", "nothing_of_test:clerk", ":clerk"])
@pytest.mark.usefixtures("place")
def test_a_wrong_reference_is_reported(reference):
    with pytest.raises(CallerError):
        load_agent(reference)
