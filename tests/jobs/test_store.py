"""The store makes, lists, answers, cancels, resumes, forks and removes jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from callboard.core import ApprovalAnswered, AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.errors import CallerError
from callboard.jobs.claim import Superseded
from callboard.jobs.job import Approval
from callboard.jobs.queries import JobFilter
from callboard.jobs.store import DurableStore

CALL = InvocationCanister(identifier="c1", name="bash", arguments={"command": "rm x"})
ASKED = Approval(call_id="c1", name="bash", arguments={"command": "rm x"}, why="it deletes", digest="d1")


async def a_waiting_job(store, *asked):
    job = await store.create("agent", description="Remove x")
    claim = await store.claim(job.id, 1, "one")
    await claim.append([CALL], rounds=1)
    await claim.wait(asked or (ASKED,), reason="bash asks")
    return await store.get(job.id)


async def test_a_new_job_is_pending_with_its_entries_and_queued(store, queue):
    job = await store.create(
        "agent",
        description="Fix it\nwith care",
        directory="/repo",
        model="openai:gpt-4o",
        input={"limit": 3},
        memory={"phase": 0},
        items=[UserCanister("Fix it")],
        queue="callboard-here",
        partition="/repo",
        priority=2,
    )
    assert await store.get(job.id) == await store.get(job.id[:-2]) == job
    assert (job.title, job.state, job.segment, job.entries) == ("Fix it", "pending", 1, 1)
    assert [(each.number, each.round, each.item) for each in await store.read_entries(job.id)] == [
        (1, 0, UserCanister("Fix it"))
    ]
    assert queue.segments(job) == {1: 0}


async def test_a_job_that_is_not_queued_is_not_made(database):
    def refuse(*_):
        raise CallerError("no queue")

    with pytest.raises(CallerError, match="no queue"):
        await DurableStore(database, refuse).create("agent")
    assert await DurableStore(database).list() == []


async def test_two_jobs_of_one_moment_never_are_one(database, monkeypatch):
    moments = iter([datetime(2026, 1, 1, microsecond=1, tzinfo=UTC), datetime(2026, 1, 1, microsecond=2, tzinfo=UTC)])
    names = iter(["same", "same", "other"])
    monkeypatch.setattr("callboard.jobs.store.new_identifier", lambda now: next(names))
    store = DurableStore(database, clock=lambda: next(moments))
    assert (await store.create("agent", description="first")).id == "same"
    assert (await store.create("agent", description="second")).id == "other"
    assert [(each.id, each.title) for each in await store.list()] == [("same", "first"), ("other", "second")]


async def test_a_list_continues_after_a_job_and_has_only_some_states(store):
    made = [await store.create("agent", description=str(number)) for number in range(5)]
    names = sorted((each.id for each in made), reverse=True)
    await store.request_cancel(names[1])
    assert [each.id for each in await store.list()] == names
    assert [each.id for each in await store.list(limit=2)] == names[:2]
    assert [each.id for each in await store.list(offset=2)] == names[2:]
    assert [each.id for each in await store.list(JobFilter({"cancelled"}))] == [names[1]]
    both = JobFilter({"cancelled", "pending"})
    assert [each.id for each in await store.list(both, offset=1, limit=2)] == names[1:3]
    assert await store.list(JobFilter({"running"})) == []


@pytest.mark.parametrize(
    ("name", "words"), [("nope", "no such job"), ("", "no such job"), ("2", "several jobs begin so")]
)
async def test_a_name_of_no_job_or_of_several_is_refused(store, name, words):
    await store.create("agent")
    await store.create("agent")
    with pytest.raises(CallerError, match=words):
        await store.get(name)


async def test_a_name_is_not_a_pattern(store):
    await store.create("agent")
    for name in ("%", "_", "2%"):
        with pytest.raises(CallerError, match="no such job"):
            await store.get(name)


async def test_an_answer_lets_the_job_go_on_and_is_read_by_the_next_segment(store, queue):
    job = await a_waiting_job(store)
    assert (job.state, job.waits_for, job.reason) == ("waiting", "approval", "bash asks")
    assert queue.segments(job) == {1: 0}
    with pytest.raises(Superseded):
        await store.claim(job.id, 1, "two")
    (question,) = await store.read_approvals(job.id)
    answered = await store.answer(job.id, "c1", digest=question.digest, edited={"command": "rm y"})
    assert (answered.state, answered.waits_for, answered.segment) == ("pending", "", 2)
    assert queue.segments(job) == {1: 0, 2: 0}
    claim = await store.claim(job.id, 2, "two")
    (answer,) = claim.answers
    assert (answer.call_id, answer.verdict, answer.edited) == ("c1", "allow", {"command": "rm y"})


async def test_the_last_answer_to_several_questions_continues_the_job(store, queue):
    question = Approval(call_id="q", name="ask", why="Which one?", is_question=True)
    job = await a_waiting_job(store, ASKED, question)
    assert [each.call_id for each in await store.read_approvals(job.id)] == ["c1", "q"]
    assert (await store.answer(job.id, "q", text="the first")).state == "waiting"
    assert queue.segments(job) == {1: 0}
    assert (await store.answer(job.id, "c1", "deny", digest="d1", reason="not x")).state == "pending"
    claim = await store.claim(job.id, 2, "two")
    assert [(each.verdict, each.reason, each.text) for each in claim.answers] == [
        ("deny", "not x", ""),
        ("allow", "", "the first"),
    ]


@pytest.mark.parametrize(
    ("call", "digest", "words"),
    [
        ("c1", "d0", "the call has changed since"),
        ("c1", "", "the call has changed since"),
        ("c2", "d1", "asks about no such call"),
    ],
)
async def test_an_answer_to_something_else_is_refused(store, call, digest, words):
    job = await a_waiting_job(store)
    with pytest.raises(CallerError, match=words):
        await store.answer(job.id, call, digest=digest)
    assert (await store.get(job.id)).state == "waiting"
    assert not (await store.read_approvals(job.id))[0].verdict


async def test_an_answer_that_comes_too_late_is_refused(store):
    job = await a_waiting_job(store)
    await store.answer(job.id, "c1", digest="d1", by="alice", via="board")
    first = r"answered already: Allowed by alice \(board\) at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    with pytest.raises(CallerError, match=f"{first}$"):
        await store.answer(job.id, "c1", "deny", digest="d1", by="bob")
    await store.request_cancel(job.id)
    with pytest.raises(CallerError, match=rf"{first}; the job has ended \(cancelled\)$"):
        await store.answer(job.id, "c1", digest="d1")
    other = await a_waiting_job(store)
    await store.request_cancel(other.id)
    with pytest.raises(CallerError, match=r"the job has ended \(cancelled\), so nothing is asked"):
        await store.answer(other.id, "c1", digest="d1")
    with pytest.raises(CallerError, match="no such job"):
        await store.answer("nope", "c1", digest="d1")


async def test_an_answer_is_an_entry_with_its_author_and_its_edits(store):
    job = await a_waiting_job(store)
    before = (await store.get(job.id)).entries
    asked = (await store.read_approvals(job.id))[0]
    edited = {"n": 1, **(asked.arguments or {})}
    edited["n"] = 2
    answered = await store.answer(job.id, "c1", digest="d1", edited=edited, by="alice", via="terminal")
    assert answered.entries == before + 1
    entry = (await store.read_entries(job.id, before))[0]
    [item] = await store.read_answers(job.id)
    assert (entry.number, entry.item) == (answered.entries, item)
    assert (item.by, item.via, item.verdict, item.arguments) == ("alice", "terminal", "allow", edited)
    assert item.timestamp == (await store.read_approvals(job.id))[0].answered_at
    assert item.edits
    assert all(" -> " in each for each in item.edits)


async def test_the_first_of_several_answers_counts_and_the_others_are_refused(store, queue):
    job = await a_waiting_job(store)
    given = [
        store.answer(job.id, "c1", digest="d1", edited={"n": 1}, by="alice"),
        store.answer(job.id, "c1", digest="d1", edited={"n": 2}, by="bob"),
        store.answer(job.id, "c1", "deny", digest="d1", by="carol"),
    ]
    outcomes = await asyncio.gather(*given, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, CallerError)]
    [item] = await store.read_answers(job.id)
    assert len(refused) == len(given) - 1
    assert queue.segments(job) == {1: 0, 2: 0}
    assert all(f"it was answered already: {item.describe()}" in str(each) for each in refused)
    [answer] = (await store.claim(job.id, 2, "two")).answers
    assert (answer.verdict, answer.edited) == (item.verdict, item.arguments)


async def test_a_question_says_that_the_same_call_was_allowed_before(store):
    job = await a_waiting_job(store)
    first = (await store.read_approvals(job.id))[0]
    await store.answer(job.id, "c1", digest="d1", by="alice", via="board")
    claim = await store.claim(job.id, 2, "two")
    same = Approval(call_id="c2", name=first.name, arguments=first.arguments, why="it asks", digest="d2")
    other = Approval(call_id="c3", name=first.name, arguments={"n": 9}, why="it asks", digest="d3")
    question = Approval(call_id="c4", name=first.name, arguments=first.arguments, why="which?", is_question=True)
    await claim.wait([same, other, question])
    [item] = await store.read_answers(job.id)
    whys = {each.call_id: each.why for each in await store.read_approvals(job.id) if not each.verdict}
    assert whys == {
        "c2": f"it asks. The same call was allowed before. {item.describe()}",
        "c3": "it asks",
        "c4": "which?",
    }


async def test_an_answer_whose_segment_cannot_be_queued_leaves_the_question_open(database, store):
    def refuse(*_):
        raise CallerError("no queue")

    job = await a_waiting_job(store)
    with pytest.raises(CallerError, match="no queue"):
        await DurableStore(database, refuse).answer(job.id, "c1", digest="d1")
    assert await store.get(job.id) == job
    assert (await store.answer(job.id, "c1", digest="d1")).state == "pending"


async def test_a_call_that_is_asked_again_is_open_again(store):
    job = await a_waiting_job(store)
    await store.answer(job.id, "c1", digest="d1")
    claim = await store.claim(job.id, 2, "two")
    await claim.wait([Approval(call_id="c1", name="bash", digest="d2")])
    with pytest.raises(CallerError, match="the call has changed since"):
        await store.answer(job.id, "c1", digest="d1")
    assert (await store.answer(job.id, "c1", digest="d2")).segment == 3


async def test_a_job_that_does_not_run_is_cancelled_at_once_a_running_one_by_its_runner(store):
    pending, waiting = await store.create("agent"), await a_waiting_job(store)
    running = await store.create("agent")
    claim = await store.claim(running.id, 1, "one")
    for job in (pending, waiting, running):
        await store.request_cancel(job.id, "not needed")
    assert [(await store.get(each.id)).state for each in (pending, waiting)] == ["cancelled", "cancelled"]
    assert (await store.get(pending.id)).reason == "not needed"
    assert (await store.get(pending.id)).completed_at is not None
    with pytest.raises(Superseded):
        await store.claim(pending.id, 1, "one")
    assert await store.find_cancelled([running.id, pending.id, "nope"]) >= {running.id}
    await claim.append([AssistantCanister("I see")])  # what it does until then is kept
    await claim.end("cancelled", "not needed")
    assert (await store.request_cancel(running.id)).reason == "not needed"


async def test_a_segment_that_is_given_up_interrupts_only_its_job(store, queue, monkeypatch):
    job = await store.create("agent")
    claim = await store.claim(job.id, 1, "one")
    get = store.get

    async def get_outdated(identifier):
        monkeypatch.setattr(store, "get", get)
        return replace(await get(identifier), segment=2)

    monkeypatch.setattr(store, "get", get_outdated)
    assert (await store.end_abandoned(job.id)).state == "running"
    assert (await store.end_abandoned(job.id)).state == "interrupted"
    with pytest.raises(Superseded):
        await claim.append([AssistantCanister("late")])
    resumed = await store.resume(job.id)
    assert (resumed.state, resumed.segment, resumed.reason, resumed.completed_at) == ("pending", 2, "", None)
    assert queue.segments(job) == {1: 0, 2: 0}
    with pytest.raises(CallerError, match="the job is pending, so it cannot be resumed"):
        await store.resume(job.id)


async def test_a_resumed_job_asks_open_questions_again(store):
    job = await a_waiting_job(store)
    await store.request_cancel(job.id)
    await store.resume(job.id)
    assert await store.read_approvals(job.id) == []
    assert not (await store.claim(job.id, 2, "two")).job.cancel_requested


async def test_a_completed_job_is_not_resumed(store):
    job = await store.create("agent")
    await (await store.claim(job.id, 1, "one")).end("completed", output={"text": "done"})
    assert (await store.get(job.id)).output == {"text": "done"}
    with pytest.raises(CallerError, match="the job is completed"):
        await store.resume(job.id)


async def a_job_of_three_rounds(store):
    job = await store.create("agent", description="Count", items=[UserCanister("Count")], input={"to": 3})
    claim = await store.claim(job.id, 1, "one")
    for number in (1, 2, 3):
        call = InvocationCanister(identifier=f"c{number}", name="count", arguments={})
        await claim.append([call], rounds=number, usage={"input": number}, memory={"round": number})
        await claim.begin_calls([call])
        if number < 3:
            await claim.end_call(ResultCanister(str(number), invocation_id=f"c{number}"), calls=number)
    return job


async def test_a_fork_is_a_prefix(store, queue):
    job = await a_job_of_three_rounds(store)
    whole = await store.read_entries(job.id)
    fork = await store.fork(job.id, 2, memory={"round": 2})
    assert await store.read_entries(fork.id) == whole[:5]
    assert (fork.parent, fork.rounds, fork.entries, fork.state) == (f"{job.id}@2", 2, 5, "pending")
    assert (fork.input, fork.memory, fork.usage, fork.cost) == ({"to": 3}, {"round": 2}, {}, None)
    assert await store.get(fork.id) == fork
    assert queue.segments(fork) == {1: 0}
    assert (await store.claim(fork.id, 1, "two")).open_calls == ()
    assert await store.read_entries(job.id) == whole


async def test_a_fork_of_the_last_round_has_the_calls_that_were_begun(store):
    job = await a_job_of_three_rounds(store)
    claim = await store.claim((await store.fork(job.id, 3)).id, 1, "two")
    assert [each.call_id for each in claim.open_calls] == ["c3"]


async def test_a_fork_needs_a_round_that_was(store):
    job = await a_job_of_three_rounds(store)
    for number in (-1, 4):
        with pytest.raises(CallerError, match=f"@{number}: the job has 3 rounds"):
            await store.fork(job.id, number)


async def test_a_retry_begins_anew(store):
    job = await a_job_of_three_rounds(store)
    again = await store.retry(job.id)
    assert [each.item for each in await store.read_entries(again.id)] == [UserCanister("Count")]
    assert (again.parent, again.rounds, again.memory) == (f"{job.id}@0", 0, {})


async def test_only_a_job_that_has_ended_is_removed_and_with_all_of_its_rows(store, database):
    job, other = await a_job_of_three_rounds(store), await a_waiting_job(store)
    with pytest.raises(CallerError, match="the job is running"):
        await store.remove(job.id)
    await store.end_abandoned(job.id)
    await store.request_cancel(other.id)
    for each in (job, other):
        await store.remove(each.id)
    assert await store.list() == []
    for table in ("documents", "entries", "open_calls", "approvals"):
        query = f"SELECT count(*) FROM callboard_{table}"
        assert database.run_blocking(lambda connection: connection.exec_driver_sql(query).scalar()) == 0, table  # noqa: B023
    with pytest.raises(CallerError, match="no such job"):
        await store.read_entries(job.id)


async def test_odd_text_and_times_come_back(store):
    odd = "a\0b \udcff é 漢 \U0001f600"
    job = await store.create(odd, description=odd, directory=odd, input={odd: [odd]}, items=[UserCanister(odd)])
    read = await store.get(job.id)
    spelled_out = "a\\x00b \\udcff é 漢 \U0001f600"
    assert (read.kind, read.description, read.directory) == (spelled_out,) * 3
    assert read.created_at == job.created_at
    (entry,) = await store.read_entries(job.id)
    assert entry.item.text == "a\0b \\udcff é 漢 \U0001f600"


async def test_ten_thousand_jobs_are_listed_by_one_query_without_long_fields(store, database):
    """`bench` measures the time."""
    from sqlalchemy import event

    statements = []
    event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    await store.create("agent", description="x\n" + "y" * 1000)
    statements.clear()
    (job,) = await store.list(limit=10_000)
    assert job.title == "x"
    (query,) = [each for each in statements if each.startswith("SELECT")]
    assert "callboard_documents" not in query


async def test_a_clock_that_is_set_back_a_day_loses_and_reorders_nothing(database, queue):
    now = datetime(2026, 1, 2, tzinfo=UTC)
    store = DurableStore(database, queue, clock=lambda: now)
    job = await a_waiting_job(store)
    now -= timedelta(days=1)
    await store.answer(job.id, "c1", "allow", digest="d1")
    claim = await store.claim(job.id, 2, "two")
    await claim.begin_calls([CALL])
    await claim.end_call(ResultCanister("removed", invocation_id="c1"))
    await claim.end("completed")
    items = [each.item for each in await store.read_entries(job.id)]
    assert [type(each) for each in items] == [InvocationCanister, ApprovalAnswered, ResultCanister]
    job = await store.get(job.id)
    assert (job.state, job.segment, job.cancel_requested) == ("completed", 2, False)
    # Those that ended before the clock's new day count as younger, never as older.
    assert await store.find_old(timedelta(days=1), None, 10) == []
