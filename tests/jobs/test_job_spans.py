"""A job is one trace over all segments and processes, and its log lines name it."""

import asyncio
import logging

from callboard import Agent, jobs, tool
from callboard.core import ResultCanister
from callboard.jobs import VARIABLE
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.job import TRACE
from callboard.jobs.metrics import WorkerMetrics
from callboard.jobs.queries import count_open_jobs
from callboard.telemetry import open_span
from callboard.testing import Call, ScriptedModel


@tool(approval=True)
async def book(room: int) -> str:
    """Book a room."""
    return f"booked {room}"


def reply(request):
    return "done" if isinstance(request.canisters[-1], ResultCanister) else Call("book", {"room": 7})


agent = Agent(ScriptedModel(iter(lambda: reply, None)), [book])


async def find_approval(job):
    """Wait for the job's approval, and return it."""
    while True:
        for approval in await job.approvals():
            return approval


async def run_job():
    job = await jobs.submit(f"{__name__}:agent", "a room")
    approval = await find_approval(job)
    await job.answer(approval.call_id, digest=approval.digest)
    await job.result()
    return await job.read()


async def test_the_segments_of_a_job_are_children_of_its_submitters_span(telemetry, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path / 'jobs.db'}")
    caplog.set_level(logging.INFO, "callboard.jobs")
    told = telemetry()
    with open_span("submitter") as submitter:
        job = await run_job()
    assert job.input[TRACE] == submitter.headers[TRACE]
    while len(segments := [each for each in told.spans if each.name == f"invoke_workflow {job.kind}"]) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # the span ends after the commit that the result follows from
    assert [each.attributes["callboard.job.state"] for each in segments] == ["waiting", "completed"]
    assert [each.attributes["callboard.job.segment"] for each in segments] == [1, 2]
    parent = told.named("submitter").context
    assert {(each.parent.span_id, each.context.trace_id) for each in segments} == {(parent.span_id, parent.trace_id)}
    runs = [each for each in told.spans if each.name == "invoke_agent"]
    assert [each.parent.span_id for each in runs] == [each.context.span_id for each in segments]
    assert {each.attributes["gen_ai.conversation.id"] for each in segments} == {job.id}
    assert f"job {job.id}, segment 2: completed" in caplog.text


async def test_a_job_without_a_trace_starts_one(telemetry, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path / 'jobs.db'}")
    told = telemetry()
    await run_job()
    submit = told.named("submit agent")
    assert submit.kind.name == "PRODUCER"
    assert {each.context.trace_id for each in told.spans if each.name.startswith("invoke")} == {submit.context.trace_id}


async def test_without_telemetry_a_job_keeps_no_trace_and_is_counted(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    monkeypatch.setenv(VARIABLE, url)
    job = await run_job()
    assert TRACE not in job.input
    with Database.open(url) as database:
        metrics = WorkerMetrics(lambda: database.read_blocking(count_open_jobs))
        metrics.add_segment(jobs_before(job), job, 2.0)
        text = metrics.render().decode()
    assert 'callboard_job_segments_total{kind="agent",state="completed"} 1.0' in text
    assert 'callboard_job_segment_seconds_count{kind="agent"} 1.0' in text
    assert 'callboard_jobs{state="waiting"} 0.0' in text
    assert 'callboard_job_rounds_total{kind="agent"} 2.0' in text
    assert "callboard_tool_calls_total" in text
    assert metrics.render().decode().count('callboard_jobs{state="pending"}') == 1


def jobs_before(job):
    """Return the job as it was at its start."""
    from msgspec.structs import replace

    return replace(job, rounds=0, usage={})


def test_figures_without_a_database():
    def fail():
        raise jobs_unavailable()

    assert "callboard_jobs{" not in WorkerMetrics(fail).render().decode()


def jobs_unavailable():
    return DatabaseUnavailable("away")
