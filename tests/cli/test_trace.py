"""`callboard trace`: of a job."""

import json
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from tests.cli.durable import make, make_ended

from callboard.coding.job import PhaseStarted
from callboard.core import InvocationCanister, error_result
from callboard.jobs.entries import MeasuredReply, ReplyTook

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


async def build(store, name="run_tests", model="m"):
    job = await store.create("build", description="a function", directory="/nowhere", model=model)
    claim = await store.claim(job.id, 1, "worker")
    call = InvocationCanister("c1", name, {}, timestamp=BEGIN + timedelta(seconds=3))
    usage = {"input": 1200, "output": 30}
    entries = [PhaseStarted("implement", 9), MeasuredReply(call, ReplyTook(BEGIN, usage, 0.25))]
    await claim.append(entries, rounds=1, usage=usage, cost=0.25)
    result = error_result("c1", "timeout", "it took too long")
    await claim.end_call(replace(result, timestamp=BEGIN + timedelta(seconds=4)))
    await claim.end("completed")
    return claim.job


def test_the_name_of_a_model_obeys_nothing_of_a_terminal(invoke):
    job = make(build, model="m\x1b[2J\x9b31m")
    output = invoke("trace", job.id).output
    assert "\x1b" not in output
    assert "\x9b" not in output


def test_the_rounds_and_calls_of_a_job(invoke):
    job = make(build)
    lines = invoke("trace", job.id, env={"COLUMNS": "120"}).stdout.splitlines()
    assert lines[0].split() == [job.id, "completed", "m"]
    assert lines[2].strip() == "implement"
    assert [" ".join(each.split()) for each in lines[3:]] == [
        "1 3.00 s 1200/30 $0.2500 ━━━━━━━━━━━━━━━━━━━━━━",
        "run_tests 1.00 s ━━━━━━━━ timeout: it took too long",
        "all 4.00 s 1200/30 $0.2500",
    ]


def test_the_figures_are_there_on_a_narrow_terminal(invoke):
    shown = invoke("trace", make(build).id, env={"COLUMNS": "40"}).stdout
    assert all(figure in shown for figure in ("3.00 s", "1.00 s", "1200/30", "$0.2500"))


def test_a_long_name_takes_no_room_from_the_figures(invoke):
    shown = invoke("trace", make(build, "a_tool_with_a_very_long_name_indeed").id, env={"COLUMNS": "80"}).stdout
    assert all(figure in shown for figure in ("3.00 s", "1.00 s", "1200/30", "$0.2500", "━"))
    assert max(map(len, shown.splitlines())) <= 80


def test_as_json(invoke):
    job = make(build)
    traced = json.loads(invoke("trace", job.id, "--json").stdout)
    assert {name: traced[name] for name in ("id", "state", "model", "cost")} == {
        "id": job.id,
        "state": "completed",
        "model": "m",
        "cost": 0.25,
    }
    (only,) = traced["rounds"]
    assert (only["phase"], only["seconds"], only["usage"]["input"]) == ("implement", 3.0, 1200)
    assert (only["calls"][0]["name"], only["calls"][0]["seconds"]) == ("run_tests", 1.0)


def test_a_name_of_a_call_draws_nothing_of_its_own(invoke):
    job = make(build, "[red]x[/red]\x1b[31m\n" + "y" * 100)
    shown = invoke("trace", job.id, env={"COLUMNS": "120"}).stdout
    assert "\x1b" not in shown
    assert "[red]x[/red]" in shown
    assert len(shown.splitlines()) == 6


def test_a_job_that_was_recorded_without_times(invoke):
    shown = invoke("trace", make(make_ended).id, env={"COLUMNS": "120"}).stdout
    assert "deploy" in shown
    assert "done" in shown
