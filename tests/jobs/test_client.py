"""A client waits for a job, follows it and answers it, in any process."""

import asyncio
import os
from pathlib import Path

import pytest

from callboard import Agent, Limits, jobs, tool
from callboard.core import AssistantCanister, ResultCanister, TextPiece, UserCanister
from callboard.errors import CallerError, NoOutput
from callboard.jobs import handle
from callboard.jobs.database import VARIABLE, Database
from callboard.jobs.store import DurableStore
from callboard.sandbox import Confinement, find_sandbox
from callboard.testing import Call, ScriptedModel


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval=True)
async def book(room: int) -> str:
    """Book a room."""
    return f"booked {room}"


def reply(request):
    """Reply with a call, and then with an answer to its result."""
    last = request.canisters[-1]
    if isinstance(last, ResultCanister):
        return [TextPiece("It is "), TextPiece(f"{last.text}.")]
    return Call("book", {"room": 7}) if "room" in last.text else Call("add", {"a": 1, "b": 2})


class EndlessModel(ScriptedModel):
    def __init__(self, answer=reply):
        super().__init__(iter(lambda: answer, None))


adder = Agent(EndlessModel(), [add, book])
counter = Agent(EndlessModel(lambda _: '{"answer": 3}'), output=int)


@pytest.fixture(autouse=True)
def _sqlite(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path / 'jobs.db'}")


async def test_a_job_runs_in_this_process_where_nothing_else_does():
    job = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    result = await job.result()
    assert (result.state, result.output, result.rounds) == ("completed", "It is 3.", 2)
    assert repr(job) == f"<JobHandle {job.id}>"


async def test_a_job_belongs_to_the_directory_that_it_was_submitted_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    there = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?", directory="/srv/shop")
    assert [(await each.read()).directory for each in (here, there)] == [str(tmp_path), "/srv/shop"]
    await here.result()
    await there.result()


async def test_a_job_is_followed_entry_by_entry_and_in_this_process_piece_by_piece():
    job = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    events = [event async for event in job.events()]
    entries = [event for event in events if event.number]
    assert [event.number for event in entries] == [1, 2, 3, 4]
    assert [event.item.text for event in entries] == ["What is 1 + 2?", 'add {"a":1,"b":2}', "3", "It is 3."]
    said = [event.item for event in events if isinstance(event.item, (TextPiece, AssistantCanister))]
    assert [each.text for each in said] in (["It is ", "3.", "It is 3."], ["It is 3."])  # who comes late gets entries
    assert [event.number async for event in job.events(after=2)] == [3, 4]


async def test_a_long_job_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(handle, "AT_ONCE", 2)
    job = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    for after in (0, 0, 1):
        numbers = [event.number async for event in job.events(after) if event.number]
        assert numbers == [*range(after + 1, 5)]


async def test_pieces_come_between_the_entries_around_them():
    gate = asyncio.Event()

    async def follow():
        async for event in job.events():
            events.append(event)
            gate.set()

    class SlowModel(EndlessModel):
        async def batches(self, request):
            await gate.wait()
            await asyncio.sleep(0)
            async for events in super().batches(request):
                yield events

    events = []
    globals()["slow"] = Agent(SlowModel(), [add])
    job = await jobs.submit(f"{__name__}:slow", "What is 1 + 2?")
    await follow()
    del globals()["slow"]
    shown = [(event.number, getattr(event.item, "text", "")) for event in events]
    assert shown[-3:] == [(0, "It is "), (0, "3."), (4, "It is 3.")]
    assert [number for number, _ in shown if number] == [1, 2, 3, 4]


async def find_approval(job):
    """Wait for the job's approval, and return it."""
    while True:
        for approval in await job.approvals():
            return approval


async def test_an_approval_is_answered_through_the_handle_or_by_the_id():
    for answered in (True, False):
        job = await jobs.submit(f"{__name__}:adder", "I need a room.")
        approval = await find_approval(job)
        if answered:
            await job.answer(approval.call_id, digest=approval.digest)
        else:
            await (await jobs.get(job.id)).answer(approval.call_id, "deny", digest=approval.digest, reason="full")
        text = "It is booked 7." if answered else "It is Error: book may not run: full."
        assert (await job.result()).text == text


async def test_an_answer_to_something_else_is_refused():
    job = await jobs.submit(f"{__name__}:adder", "I need a room.")
    approval = await find_approval(job)
    with pytest.raises(CallerError):
        await job.answer(approval.call_id, digest="another")
    await job.cancel()
    assert (await job.result()).state == "cancelled"
    with pytest.raises(CallerError):
        await job.answer(approval.call_id, digest=approval.digest)


async def test_the_output_has_the_type_of_the_agent():
    job = await jobs.submit(f"{__name__}:counter", "How many?")
    assert (await job.result()).output == 3
    found = await jobs.get(job.id[:-1])
    assert (found.id, (await found.result()).output) == (job.id, '{"answer": 3}')
    assert (await (await jobs.get(job.id, f"{__name__}:counter")).result()).output == 3


async def test_a_job_that_did_not_complete_has_no_output():
    job = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?", limits=Limits(rounds=1))
    result = await job.result()
    assert (result.state, result.why) == ("failed", "no answer within 1 rounds")
    with pytest.raises(NoOutput, match="no answer within 1 rounds"):
        _ = result.output


async def test_a_job_of_a_reference_waits_for_a_worker_that_knows_it():
    async with jobs.JobClient(embedded=False) as client:
        job = await client.submit("somewhere.agents:reviewer", "Review.")
        row = await job.read()
        assert (row.state, row.queue) == ("pending", "callboard-agent:somewhere.agents:reviewer")
        await job.cancel()
        assert (await job.result()).state == "cancelled"


async def test_a_job_continues_a_conversation():
    job = await jobs.submit(
        f"{__name__}:adder", "And 1 + 2?", history=[UserCanister("Hello."), AssistantCanister("Hi.")]
    )
    await job.result()
    assert [event.item.text async for event in job.events()][:3] == ["Hello.", "Hi.", "And 1 + 2?"]


async def test_what_cannot_be_a_job_is_refused():
    with pytest.raises(CallerError, match="its module has no nobody"):
        await jobs.submit(f"{__name__}:nobody", "Hello.")
    with pytest.raises(CallerError, match="there is nothing to ask"):
        await jobs.submit(f"{__name__}:adder", "")
    with pytest.raises(CallerError, match="it is not JSON"):
        await jobs.submit(f"{__name__}:adder", "Hello.", auxdata={"x": object()})
    with pytest.raises(CallerError, match="no such job"):
        await jobs.get("20990101")


async def test_several_agents_run_in_one_process():
    first = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    second = await jobs.submit(f"{__name__}:counter", "How many?")
    assert [(await each.result()).output for each in (first, second)] == ["It is 3.", 3]


async def test_the_users_settings_hold_for_a_submitted_job(tmp_path, monkeypatch):
    """They also hold if only the agent names the model."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    told = tmp_path / "told"
    (tmp_path / "callboard" / "callboard.toml").write_text(
        "[jobs.models.scripted]\nstarts_per_minute = 1\n"
        f"[[jobs.notify]]\ncommand = ['/bin/sh', '-c', 'cat > {told}.part && mv {told}.part {told}']\n"
    )
    await (await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")).result()
    second = await jobs.submit(f"{__name__}:adder", "What is 1 + 2?")
    while (job := await second.read()).state in {"pending", "running"}:  # noqa: ASYNC110  # a worker does it
        await asyncio.sleep(0.01)
    assert (job.state, job.waits_for, job.model) == ("waiting", "rate_limit", "scripted")
    while not told.exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.01)
    assert '"state":"completed"' in told.read_text()


async def test_a_database_that_cannot_be_opened_is_reported_each_time(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mysql://elsewhere/jobs")
    for _ in range(2):
        with pytest.raises(CallerError, match="no such database"):
            await jobs.submit(f"{__name__}:adder", "Hello.")


def test_nothing_is_imported_before_it_is_used():
    with pytest.raises(AttributeError):
        _ = jobs.nothing
    assert "submit" in jobs.__all__


happened = []


class HangingModel(ScriptedModel):
    """Sends some text, and then hangs."""

    async def batches(self, _):
        happened.append("began")
        try:
            yield [TextPiece("Wait")]
            await asyncio.Event().wait()
        finally:
            happened.append("stopped")


@tool
async def sleep(directory: str) -> str:
    """Sleep for long, in two processes."""
    sandbox = await find_sandbox(unconfined=True)
    command = "sleep 1000 & echo $! > child; echo $$ > parent; wait"
    try:
        outcome = await sandbox.run(["/bin/sh", "-c", command], Confinement(workspace=Path(directory)))
    finally:
        happened.append("stopped")
    return outcome.output.decode()


hanging = Agent(HangingModel([]))
sleeping = Agent(ScriptedModel([lambda request: Call("sleep", {"directory": request.canisters[0].text})]), [sleep])


@pytest.fixture
def database_url(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    monkeypatch.setenv(VARIABLE, url)
    happened.clear()
    return url


async def cancel_elsewhere(url, job):
    """Cancel the job like another process, only through the database."""
    with Database.open(url) as database:
        await DurableStore(database).request_cancel(job.id, "enough")


async def wait_until(condition):
    for _ in iter(condition, True):
        await asyncio.sleep(0)


async def test_the_model_is_asked_no_further(database_url):
    job = await jobs.submit(f"{__name__}:hanging", "Say something.")
    await wait_until(lambda: happened == ["began"])
    await cancel_elsewhere(database_url, job)
    result = await job.result()
    assert (result.state, result.text, happened) == ("cancelled", "", ["began", "stopped"])


async def test_a_command_ends_with_its_process_tree(database_url, tmp_path):
    job = await jobs.submit(f"{__name__}:sleeping", str(tmp_path))
    await wait_until(lambda: (tmp_path / "parent").exists() and (tmp_path / "parent").read_text() != "")
    await cancel_elsewhere(database_url, job)
    assert (await job.result()).state == "cancelled"
    assert happened == ["stopped"]
    for name in ("parent", "child"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)
