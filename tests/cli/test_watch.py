"""Watching a durable job: what is shown, while it runs and when it has ended."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from tests.cli.durable import ANOTHER, ask, begin, make, make_ended, make_waiting, read, store_of_user

from callboard.cli.watch import JobProgress, JsonViewer, Viewer, show_job
from callboard.core import AssistantCanister, ResultCanister
from callboard.errors import CallerError
from callboard.jobs.activity import Draft, JobActivity

DONE = ResultCanister("shipped", invocation_id="call_1")


def watch(capsys, *turns, viewer=None):
    """The lines of a watch of a job between whose looks the turns happen; each is given the store and the last claim."""

    async def scenario(store):
        claim = await begin(store)
        rest = [*turns]

        async def pause():
            nonlocal claim
            claim = await rest.pop(0)(store, claim) or claim

        with viewer or Viewer(verbose=False) as shown:
            return await show_job(store, claim.job.id, shown, pause)

    with store_of_user() as store:
        job = asyncio.run(scenario(store))
    return capsys.readouterr().out.replace(job.id, "JOB").splitlines()


async def end(_, claim):
    await claim.end_call(DONE)
    await claim.end("completed")


async def take_over(store, claim):
    claim = await store.claim(claim.job.id, 1, "another")
    await claim.append([AssistantCanister("And more.")], rounds=2)
    return claim


async def rest(_store, _claim):
    """Nothing happens."""


def test_each_entry_is_shown_once_with_its_number(capsys):
    lines = watch(capsys, rest, end)
    assert lines[:-1] == [
        "Task: Ship it",
        "== running",
        "   1  On it.",
        "      Really.",
        '   2  -> deploy(to="prod")',
        "   3  <- shipped",
        "== completed",
    ]
    assert lines[-1].startswith("   completed work · round 1 · 1 call · 1,200 tokens in, 34 out · ")


def test_it_goes_on_when_another_worker_took_the_job_over(capsys):
    lines = watch(capsys, take_over, end)
    assert [each for each in lines[1:] if not each.startswith(" ")] == [
        "== running",
        "== running (another worker took it over)",
        "== completed",
    ]
    assert [each[:6].strip() for each in lines if each[:6].strip(" =").isdigit()] == ["1", "2", "3", "4"]


def test_a_job_that_waits_says_how_it_is_answered(capsys):
    async def cancel(store, claim):
        await store.request_cancel(claim.job.id)

    async def wait(_, claim):

        await claim.wait([ask(), ask(ANOTHER, is_question=True, why="")], reason="a call wants approval")

    lines = watch(capsys, wait, cancel)
    at = lines.index("== waiting for approval: a call wants approval")
    assert lines[at + 1 :][:7] == [
        '   it is live: deploy {"to": "prod"}',
        "     callboard jobs approve JOB call_1 --digest d-call_1",
        "     callboard jobs deny JOB call_1",
        '   deploy {"to": "test"}',
        "     callboard jobs answer JOB TEXT call_2",
        "== cancelled",
        lines[-3],
    ]
    assert lines[-2:] == ["   Continue: callboard jobs resume JOB", "   Start again: callboard jobs retry JOB"]


def test_programs_get_each_entry_and_each_state_as_a_line(capsys):
    lines = [json.loads(each) for each in watch(capsys, take_over, end, viewer=JsonViewer())]
    assert [each["number"] for each in lines if each["type"] == "entry"] == [1, 2, 3, 4, 5]
    states = [(each["state"], each["is_new_runner"]) for each in lines if each["type"] == "job"]
    assert states == [("running", False), ("running", True), ("completed", False)]


def test_a_terminal_gets_no_control_characters_of_the_model(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    async def speak(_, claim):
        await claim.append([AssistantCanister("\x1b]0;owned\x07free")], rounds=2)
        await claim.end("completed")

    out = "".join(watch(capsys, speak))
    assert "free" in out
    assert "\x07" not in out
    assert "\x1b]0" not in out


@pytest.mark.parametrize(
    ("state", "fields", "code"),
    [
        ("completed", {}, 0),
        ("completed", {"output": {"missing": ["a test"]}}, 3),
        ("failed", {"error": "no model"}, 1),
        ("cancelled", {}, 130),
        ("interrupted", {}, 1),
    ],
)
def test_the_exit_status_is_that_of_the_job(invoke, state, fields, code):
    job = make(make_ended, state, **fields)
    done = invoke("jobs", "watch", job.id)
    assert done.exit_code == code
    assert f"== {state}" in done.stdout


def test_ctrl_c_leaves_the_job_running(callboard):
    async def build(store):
        return (await begin(store)).job

    job = make(build)
    watching = subprocess.Popen(
        [*callboard.command, "jobs", "watch", job.id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert [watching.stdout.readline() for _ in range(2)] == ["Task: Ship it\n", "== running\n"]
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=60)
    assert told.startswith(f"the job continues; callboard jobs cancel {job.id} ends it\n")
    assert watching.returncode == 130
    assert read(lambda store: store.get(job.id)).state == "running"


def test_a_terminal_shows_a_job_that_has_ended(terminal):
    job = make(make_ended)
    code, shown = terminal("jobs", "watch", job.id)
    assert code == 0
    assert "Task: Ship it\n" in shown
    assert "   3  \x1b[32m<- shipped\x1b[0m\n" in shown
    assert "\x1b[32m== completed\x1b[0m\n" in shown
    assert "   completed work · round 2 · 1 call · 1,200 tokens in, 34 out" in shown


def test_a_job_that_was_run_directly_is_not_watched(invoke):
    make(make_ended)
    done = invoke("jobs", "watch", "20200101")
    assert isinstance(done.exception, CallerError)


def test_the_line_says_what_runs_and_for_how_long():
    now = datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC)
    progress = JobProgress(lambda: now)
    assert progress.describe() == ""
    job = make(make_waiting)
    started = datetime(2026, 1, 1, tzinfo=UTC)

    progress.job = replace(job, state="running", started_at=started, updated_at=now - timedelta(seconds=5), cost=0.25)
    rest = " · round 1 · 1 call · 1,200 tokens in, 34 out · $0.2500 · 1:02:03"
    assert progress.describe() == f"running work · waiting for the model, 5 s{rest}"
    progress.activity = JobActivity((), Draft(now - timedelta(seconds=42), 900))
    assert progress.describe() == f"running work · writing, 42 s{rest}"
    progress.activity = JobActivity([("deploy", now - timedelta(seconds=8))] * 5, None)
    assert "running work · deploy, deploy, deploy and 2 more, 8 s · " in progress.describe()
    progress.job = replace(job, state="waiting")
    assert progress.describe().startswith("waiting work · round 1")
