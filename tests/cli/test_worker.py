"""`callboard worker` runs jobs until it is told to stop, and says what is wrong with what it was told."""

import asyncio
import json
import os
import signal
import subprocess
import urllib.request

import pytest

from callboard.core import UserCanister, contents
from callboard.jobs.agent_kind import KIND, AgentInput
from callboard.jobs.coding_kind import host_queue
from callboard.jobs.database import Database
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.job import agent_queue
from callboard.jobs.store import DurableStore

AGENTS = """
import time
from callboard import Agent, tool
from callboard.testing import Call, ScriptedModel

@tool
def sleep(seconds: float) -> str:
    "Sleep."
    print("sleeps", flush=True)
    time.sleep(seconds)
    return "slept"

greeter = Agent(ScriptedModel(["Hello.", "Hello again."]))
sleeper = Agent(ScriptedModel([Call("sleep", {"seconds": 60}), "Slept."]), tools=[sleep])
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", f"sqlite:///{tmp_path / 'jobs.db'}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crew.py").write_text(AGENTS, "utf-8")
    return tmp_path


def with_store(use):
    with Database.open() as database:
        engine = EmbeddedEngine(database)
        return asyncio.run(use(DurableStore(database, engine.enqueue)))


def submit(reference):
    job_input = AgentInput(agent=reference, prompt=UserCanister(contents("Hi."))).to_json()
    return with_store(lambda store: store.create(KIND, input=job_input, queue=agent_queue(reference)))


@pytest.fixture
def running(callboard):
    """Starts a worker, and gives its process when it works."""
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [*callboard.command, "worker", *arguments], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        process.told = process.stderr.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_it_runs_the_jobs_of_its_agents_and_of_the_coding_agents_and_tells_how_they_ended(
    place, callboard, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    (place / "callboard").mkdir()
    command = ["sh", "-c", f"cat > {place}/told.$$"]
    (place / "callboard/callboard.toml").write_text(f"[[jobs.notify]]\ncommand = {json.dumps(command)}\n")
    path = f"{place / 'crew.py'}:greeter"
    jobs = [submit("crew:greeter"), submit(path)]
    gone = str(place / "gone")  # a repository
    jobs.append(with_store(lambda store: store.create("review", directory=gone, queue=host_queue())))
    named = ["--agents", "crew:greeter", "--agents", "crew.py:greeter", "--queue", "mine=90", "--queue", host_queue()]
    ended = callboard("worker", *named, "--until-idle", "0.1")
    assert (ended.returncode, ended.stdout) == (0, "")
    queues = f"mine, {host_queue()}, callboard-agent:crew:greeter, callboard-agent:{path}"
    assert ended.stderr == f"callboard works on {queues} of {place / 'jobs.db'} (Ctrl-C stops it)\n"
    greeted, other, review = (with_store(lambda store, job=job: store.get(job.id)) for job in jobs)
    assert [(job.state, job.rounds) for job in (greeted, other)] == [("completed", 1)] * 2
    assert (review.state, "gone" in review.error) == ("failed", True)
    told = [json.loads(each.read_text()) for each in place.glob("told.*")]
    assert {each["job"]: each["state"] for each in told} == {job.id: job.state for job in (greeted, other, review)}
    # It is nobody's directory, so that it is listed in each.
    assert greeted.id in callboard("jobs", "list").stdout


@pytest.mark.usefixtures("place")
def test_it_shows_its_figures_and_writes_its_log_as_json(running, monkeypatch):
    monkeypatch.setenv("CALLBOARD_LOGS", "json")
    job = submit("crew:greeter")
    process = running("--agents", "crew:greeter", "--metrics", "0", "--log-level", "info")
    url = process.told.split()[-1]
    assert process.stderr.readline().startswith("callboard works on")
    lines = [json.loads(process.stderr.readline()) for _ in range(2)]
    assert [each["job"] for each in lines] == [job.id, job.id]
    assert "completed" in lines[1]["message"]
    figures = ""
    while 'callboard_job_segments_total{kind="agent",state="completed"} 1.0' not in figures:  # counted after the line
        with urllib.request.urlopen(url) as page:
            figures = page.read().decode()
    process.terminate()
    assert process.wait() == 0


def test_it_takes_limits_and_how_long_jobs_are_kept_from_the_users_settings(place, callboard, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    (place / "callboard").mkdir()
    limits = '[jobs]\nkeep = "0m"\n[jobs.queues."callboard-agent:crew:greeter"]\nstarts_per_minute = 1\n'
    (place / "callboard/callboard.toml").write_text(limits)
    old = with_store(lambda store: store.create("agent"))
    with_store(lambda store: store.request_cancel(old.id))
    assert callboard("worker", "--agents", "crew:greeter", "--until-idle", "0.1").returncode == 0
    assert old.id not in {each.id for each in with_store(lambda store: store.list())}
    with Database.open() as database, database.engine.connect() as connection:
        limits = connection.exec_driver_sql("SELECT queue, starts FROM callboard_queue_limits WHERE starts > 0").all()
    assert [*limits] == [(agent_queue("crew:greeter"), 1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_it_is_told_to(place, running, number):
    worker = running("--agents", f"{place / 'crew.py'}:greeter")
    assert worker.told.startswith(f"callboard works on callboard, callboard-{os.uname().nodename}, ")
    worker.send_signal(number)
    assert worker.communicate(timeout=60) == ("", "")
    assert worker.returncode == 0


def test_it_ends_at_once_when_it_is_told_twice(place, running):
    reference = f"{place / 'crew.py'}:sleeper"
    job = submit(reference)
    worker = running("--agents", reference)
    assert worker.stdout.readline() == "sleeps\n"
    worker.terminate()
    while worker.poll() is None:
        worker.terminate()
        try:
            worker.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    assert worker.returncode == -signal.SIGTERM
    assert with_store(lambda store: store.get(job.id)).state == "running"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queue", "a=b"], "'a=b' does not end with a number of starts per minute"),
        (["--queue", "a=0"], "'a=0' does not end with a number of starts per minute"),
        (["--concurrency", "0"], "Input should be greater than or equal to 1"),
    ],
)
def test_what_it_cannot_be_told(invoke, arguments, message):
    ended = invoke("worker", *arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert ended.exit_code == 2
    assert message in ended.output


@pytest.mark.usefixtures("place")
def test_an_agent_that_is_not_there_is_told_in_one_line(callboard):
    ended = callboard("worker", "--agents", "crew:nobody")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("callboard: crew:nobody: its module has no nobody; ")
    assert ended.stderr.count("\n") == 1


def test_a_database_that_is_not_there_is_told_in_one_line(typed, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", "postgresql://somebody:secret@127.0.0.1:9/jobs")
    ended = typed("worker")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "127.0.0.1" in ended.stderr
    assert "secret" not in ended.stderr
    assert ended.stderr.count("\n") == 1
