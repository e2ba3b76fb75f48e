"""`callboard schedule` adds, lists, pauses and removes schedules, and a worker submits their jobs."""

import json

import pytest
from tests.cli.durable import read

from callboard.jobs.coding_kind import host_queue

AGENTS = """
from callboard import Agent
from callboard.testing import ScriptedModel

greeter = Agent(ScriptedModel(["Hello."]))
"""


MODEL = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", f"sqlite:///{tmp_path / 'jobs.db'}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crew.py").write_text(AGENTS, "utf-8")
    return tmp_path


def list_schedules(invoke):
    return [json.loads(line) for line in invoke("schedule", "list", "--json").stdout.splitlines()]


def test_a_command_of_a_coding_agent(invoke, place):
    words = ("triage", "It is slow.", *MODEL, "--max-rounds", "3", "--effort", "low", "--priority", "-1")
    added = invoke("schedule", "add", "nightly", "30 3 * * mon-fri", "--zone", "Europe/Berlin", "--", *words)
    assert added.exit_code == 0, added.output
    assert added.stdout.startswith("nightly: next at 2")
    assert " 03:30 CE" in added.stdout
    assert "callboard worker\n" in added.stderr
    (schedule,) = list_schedules(invoke)
    assert (schedule["kind"], schedule["description"], schedule["queue"]) == ("triage", "It is slow.", host_queue())
    assert (schedule["directory"], schedule["model"], schedule["priority"]) == (str(place), "m", -1)
    assert schedule["input"] == {
        "description": "It is slow.", "model": "m", "base_url": "http://127.0.0.1:9/v1", "rounds": 3, "effort": "low",
    }  # fmt: skip
    assert "nightly  30 3 * * mon-fri Europe/Berlin  next at " in invoke("schedule", "list").stdout
    assert read(lambda store: store.list()) == []


def test_an_agent_whose_jobs_a_worker_submits_and_runs(invoke, callboard):
    added = invoke("schedule", "add", "often", "* * * * *", "--agent", "crew:greeter", "Greet them.")
    assert added.stderr.endswith("callboard worker --agents crew:greeter\n")
    assert invoke("schedule", "pause", "often").stdout == "often: paused\n"
    assert "  paused  agent  Greet them." in invoke("schedule", "list").stdout
    assert invoke("schedule", "resume", "often").stdout.startswith("often: next at ")
    make_due()
    assert callboard("worker", "--agents", "crew:greeter", "--until-idle", "1").returncode == 0
    (job,) = read(lambda store: store.list())
    assert (job.state, job.schedule, job.title) == ("completed", "often", "Greet them.")
    assert f"last job {job.id}: completed" in invoke("schedule", "list").stdout
    assert "Schedule   often" in invoke("jobs", "show", job.id).stdout
    assert invoke("schedule", "rm", "often").stdout == "often: deleted\n"
    listed = invoke("schedule", "list")
    assert (listed.stdout, listed.stderr) == ("", "no schedules\n")


def make_due():
    async def change(store):
        await store.database.run(
            lambda connection: connection.exec_driver_sql("UPDATE callboard_schedules SET next_at = 0")
        )

    read(change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "0 24 * * *", "--", "triage", "It is slow.", *MODEL), "no hour: '24'"),
        (("a", "0 3 * * *", "--zone", "Berlin", "--agent", "crew:greeter", "Hi."), "no such time zone"),
        (("a", "0 3 * * *", "--agent", "crew:greeter", "Hi", "you."), "an agent needs one prompt"),
        (("a", "0 3 * * *", "chat"), "not a command of a coding agent"),
        (("a", "0 3 * * *", "--", "triage"), "missing 'description'"),
    ],
)
def test_what_cannot_be_scheduled(typed, arguments, message):
    ended = typed("schedule", "add", *arguments)
    assert (ended.returncode > 0, ended.stdout) == (True, "")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_nothing_is_listed_without_a_database(invoke, monkeypatch, tmp_path):
    monkeypatch.delenv("CALLBOARD_DATABASE_URL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert invoke("schedule", "list").stderr == "no schedules\n"
    assert not (tmp_path / "state").exists()
