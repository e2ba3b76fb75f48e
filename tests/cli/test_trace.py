"""`callboard trace`: of a direct run and of a durable job."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.durable import make, make_ended

from callboard.coding.jobs.log import JobLog, PhaseStarted, RoundMeasured
from callboard.coding.jobs.store import JobStore
from callboard.core import InvocationEnded, ResultReady, RoundStarted, error_result

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def recorded(name="run_tests"):
    jobs = JobStore()
    job = jobs.create("build", "a function", Path("/nowhere"), model="m")
    measured = RoundMeasured(
        1,
        BEGIN,
        BEGIN + timedelta(seconds=3),
        {"input": 1200, "output": 30},
        0.25,
        {"c1": BEGIN + timedelta(seconds=4)},
    )
    with JobLog(jobs.folder(job.id)) as log:
        for step in (
            PhaseStarted("implement", 9),
            RoundStarted(1),
            InvocationEnded(0, "c1", name, {}, "{}"),
            ResultReady(error_result("c1", "timeout", "it took too long")),
            measured,
        ):
            log.add(step)
    return jobs.update(job, state="completed", usage={"input": 1200, "output": 30}, cost=0.25)


def test_the_name_of_a_model_obeys_nothing_of_a_terminal(invoke):
    job = JobStore().create("build", "a function", Path("/nowhere"), model="m\x1b[2J\x9b31m")
    output = invoke("trace", job.id).output
    assert "\x1b" not in output
    assert "\x9b" not in output


def test_the_rounds_and_calls_of_a_direct_run(invoke):
    job = recorded()
    lines = invoke("trace", job.id, env={"COLUMNS": "120"}).stdout.splitlines()
    assert lines[0].split() == [job.id, "completed", "m"]
    assert lines[2].strip() == "implement"
    assert [" ".join(each.split()) for each in lines[3:]] == [
        "1 3.00 s 1200/30 $0.2500 ━━━━━━━━━━━━━━━━━━━━━━",
        "run_tests 1.00 s ━━━━━━━━ timeout: it took too long",
        "all 4.00 s 1200/30 $0.2500",
    ]


def test_as_json(invoke):
    job = recorded()
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
    job = recorded("[red]x[/red]\x1b[31m\n" + "y" * 100)
    shown = invoke("trace", job.id, env={"COLUMNS": "120"}).stdout
    assert "\x1b" not in shown
    assert "[red]x[/red]" in shown
    assert len(shown.splitlines()) == 6


def test_a_durable_job_that_was_recorded_without_times(invoke):
    shown = invoke("trace", make(make_ended).id, env={"COLUMNS": "120"}).stdout
    assert "deploy" in shown
    assert "done" in shown
