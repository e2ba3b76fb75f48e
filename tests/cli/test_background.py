"""Jobs that a worker runs, which is started where there is none."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from sqlalchemy import update
from tests.coding import conftest as coding

from callboard.cli.run_kind import worker_name
from callboard.coding.job_folders import JobFolders
from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.jobs.tables import clock, segments
from callboard.testing import FakeBackend, Silence

repository, faulty, home = coding.repository, coding.faulty, coding.home
MEND = "It subtracts.\n\ncalc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
DEBUG = ("debug", "--symptoms", "test_add fails", "--workflow", "short")
WAIT = 0.05
PATIENCE = 4 * coding.LIMIT


@pytest.fixture
def place(tmp_path, home, monkeypatch):
    """The directories of a user, and where their jobs are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")  # noqa: PTH120
    return tmp_path / "state" / "callboard" / "jobs"


def run(repository, *arguments):
    command = [sys.executable, "-c", coding.PROGRAM, *arguments]
    return subprocess.run(command, cwd=repository.root, capture_output=True, text=True, check=False)


def submit(repository, url, *more):
    return run(repository, *DEBUG, "--model", "fake-model", "--base-url", url, *(more or ("--background",)))


async def wait_until_ended(store, identifier):
    while not (job := await store.get(identifier)).has_ended:  # noqa: ASYNC110  # another process ends it
        await asyncio.sleep(WAIT)
    return job


async def wait_until_asked(store, identifier):
    while (await store.get(identifier)).state != "waiting":  # noqa: ASYNC110  # as above
        await asyncio.sleep(WAIT)
    return await store.read_approvals(identifier)


@contextmanager
def stopped_worker(place, name="coding"):
    """Ends the worker that was started, and waits until it is gone."""
    try:
        yield
    finally:
        with (place / f"jobs.db-{name}-worker.lock").open("r+") as lock:
            os.kill(int(lock.read()), signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_worker_runs_the_jobs_and_is_started_once(place, repository, typed):
    async def scenario():
        async with FakeBackend([MEND, MEND]) as backend:
            first = await asyncio.to_thread(submit, repository, backend.url, "--background", "--json")
            assert first.returncode == 0, first.stderr
            with stopped_worker(place), Database.open(f"sqlite:///{place / 'jobs.db'}") as database:
                store = DurableStore(database)
                async with asyncio.timeout(PATIENCE):
                    job = await wait_until_ended(store, json.loads(first.stdout)["id"])
                    second = await asyncio.to_thread(submit, repository, backend.url, "--wait")
                assert second.returncode == 0, second.stderr
                return first, job, second, (await store.list())[0]

    first, job, second, other = asyncio.run(scenario())
    assert "== completed" in second.stdout
    log = place / "jobs.db-coding-worker.log"
    assert f"Started a background worker. Log: {log}" in first.stderr
    assert "a worker was started" not in second.stderr
    for each in (job, other):
        assert (each.state, each.kind, each.rounds, each.calls) == ("completed", "debug", 1, 1), each.error
    assert repository.git("show", f"{job.output['branch']}:calc.py").endswith("a + b\n")
    assert log.stat().st_mode & 0o777 == 0o600
    # What is shown of jobs is the same, whoever ran them.
    listed = typed("jobs", "list", cwd=repository.root).stdout.splitlines()
    assert [line.split()[0] for line in listed] == [other.id, job.id]
    assert all(" debug   completed " in line for line in listed)
    shown = typed("jobs", "show", job.id).stdout
    assert "Tests      pytest: 1 passed" in shown
    assert f"Branch     {job.output['branch']}" in shown
    assert "+    return a + b" in typed("jobs", "show", job.id, "--diff").stdout
    assert typed("jobs", "cancel", job.id).stdout.startswith("Nothing to cancel: it completed ")
    assert "it cannot be resumed" in typed("jobs", "resume", job.id).stderr
    assert "is gone" in typed("undo", job.id).stdout
    assert job.output["branch"] not in repository.git("branch")


def test_a_job_waits_for_an_approval_without_a_worker_and_is_run_by_another(place, repository, home):
    (home / "callboard").mkdir()
    (home / "callboard" / "callboard.toml").write_text('[permissions]\nask = ["put_code"]\n')

    async def scenario():
        async with FakeBackend([MEND, MEND]) as backend:
            first = await asyncio.to_thread(submit, repository, backend.url)
            second = await asyncio.to_thread(submit, repository, backend.url)
            with Database.open(f"sqlite:///{place / 'jobs.db'}") as database:
                store = DurableStore(database)
                async with asyncio.timeout(PATIENCE):
                    with stopped_worker(place):
                        (asked,) = await wait_until_asked(store, first.stdout.strip())
                        await wait_until_asked(store, second.stdout.strip())
                    folder = JobFolders().folder(second.stdout.strip())
                    assert (folder / "tree").is_dir()
                    shown = await asyncio.to_thread(run, repository, "jobs", "show", first.stdout.strip())
                    assert "Waiting" in shown.stdout
                    assert f"--digest {asked.digest}" in shown.stdout
                    cancelled = await asyncio.to_thread(run, repository, "jobs", "cancel", second.stdout.strip())
                    assert cancelled.stdout.strip() == f"{second.stdout.strip()}: cancelled"
                    assert not (folder / "tree").exists()
                    arguments = ("jobs", "approve", first.stdout.strip(), "--digest", asked.digest)
                    approved = await asyncio.to_thread(run, repository, *arguments)
                    assert approved.returncode == 0, approved.stderr
                    with stopped_worker(place):
                        return await wait_until_ended(store, first.stdout.strip())

    job = asyncio.run(scenario())
    assert job.state == "completed", job.error
    assert repository.git("show", f"{job.output['branch']}:calc.py").endswith("a + b\n")


TOOLS = """
from pathlib import Path
from callboard import tool

@tool(approval=True)
def note(text: str) -> str:
    "Write a note."
    Path("note.txt").write_text(text)
    return "noted"
"""
NOTE = [
    ReplyStarted("reply_1", "fake-model"),
    InvocationStarted(0, "call_1", "note"),
    ArgumentsPiece(0, '{"text": "milk"}'),
    InvocationEnded(0, "call_1", "note", {"text": "milk"}, '{"text": "milk"}'),
    ReplyEnded("invocations"),
]


def test_a_prompt_is_run_in_its_directory_and_waits_for_an_approval(place, tmp_path, typed):
    work = SimpleNamespace(root=tmp_path / "work")
    work.root.mkdir()
    (work.root / "tools.py").write_text(TOOLS)
    ask = ("run", "Note milk.", "--tools", "tools.py", "--model", "fake-model", "--base-url")

    async def scenario():
        async with FakeBackend([NOTE, "Noted.", "Nothing to note."]) as backend:
            first = await asyncio.to_thread(run, work, *ask, backend.url, "--background", "--json")
            assert first.returncode == 0, first.stderr
            submitted = json.loads(first.stdout)
            with (
                stopped_worker(place, worker_name(str(work.root))),
                Database.open(f"sqlite:///{place / 'jobs.db'}") as database,
            ):
                store = DurableStore(database)
                async with asyncio.timeout(PATIENCE):
                    (asked,) = await wait_until_asked(store, submitted["id"])
                    assert (asked.name, asked.arguments) == ("note", {"text": "milk"})
                    assert not (work.root / "note.txt").exists()
                    arguments = ("jobs", "approve", submitted["id"], "--digest", asked.digest)
                    approved = await asyncio.to_thread(run, work, *arguments)
                    assert approved.returncode == 0, approved.stderr
                    job = await wait_until_ended(store, submitted["id"])
                    second = await asyncio.to_thread(run, work, *ask, backend.url, "--wait")
                return job, second

    job, second = asyncio.run(scenario())
    assert (job.state, job.kind, job.rounds, job.output) == ("completed", "run", 2, {"text": "Noted."}), job.error
    assert (work.root / "note.txt").read_text() == "milk"
    assert second.returncode == 0, second.stderr
    assert "Nothing to note." in second.stdout
    listed = typed("jobs", "list", cwd=work.root).stdout.splitlines()
    assert len(listed) == 2
    assert all(" run     completed " in line for line in listed)


def test_a_job_has_a_conversation_of_its_own(place, tmp_path, typed):
    done = typed("run", "Hi", "--background", "--continue", cwd=tmp_path)
    assert (done.returncode, "callboard jobs fork JOB@ROUND" in done.stderr) == (2, True)
    assert not place.exists()


@pytest.fixture
def killed_job(place, tmp_path):
    """Submit a run whose worker is killed while it waits for the model; its lease ends a second later.

    Return the name of the job, and its directory.
    """
    work = tmp_path / "work"
    work.mkdir()

    async def submit(backend):
        ask = ("run", "Hi", "--model", "fake-model", "--base-url", backend.url, "--background")
        asked = len(backend.requests) + 1
        submitted = await asyncio.to_thread(run, SimpleNamespace(root=work), *ask)
        assert submitted.returncode == 0, submitted.stderr
        async with asyncio.timeout(PATIENCE):
            while len(backend.requests) < asked:  # noqa: ASYNC110  # another process asks
                await asyncio.sleep(WAIT)
        with (place / f"jobs.db-{worker_name(str(work))}-worker.lock").open("r+") as lock:
            os.kill(int(lock.read()), signal.SIGKILL)
            fcntl.flock(lock, fcntl.LOCK_EX)
        with Database.open(f"sqlite:///{place / 'jobs.db'}") as database:
            soon = update(segments).values(lease_until=clock("sqlite") + 1000)
            await database.run(lambda connection: connection.execute(soon))
        return submitted.stdout.strip(), work

    return submit


def test_a_job_whose_worker_was_killed_is_shown_as_interrupted_and_resumed(place, killed_job, typed):
    async def scenario():
        async with FakeBackend([Silence(), "Hello."]) as backend:
            job, work = await killed_job(backend)
            with Database.open(f"sqlite:///{place / 'jobs.db'}") as database:
                await database.run(lambda connection: connection.execute(update(segments).values(lease_until=0)))
            commands = ("show", "show --json", "watch")
            shown = {each: await asyncio.to_thread(typed, "jobs", *each.split(), job) for each in commands}
            listed = await asyncio.to_thread(typed, "jobs", "list", cwd=work)
            resumed = await asyncio.to_thread(run, SimpleNamespace(root=work), "jobs", "resume", job)
            with (
                stopped_worker(place, worker_name(str(work))),
                Database.open(f"sqlite:///{place / 'jobs.db'}") as database,
            ):
                async with asyncio.timeout(PATIENCE):
                    return shown, listed, resumed, await wait_until_ended(DurableStore(database), job)

    shown, listed, resumed, job = asyncio.run(scenario())
    assert "State      Interrupted: its worker died\n" in shown["show"].stdout
    assert f"Continue it: callboard jobs resume {job.id}\n" in shown["show"].stdout
    assert json.loads(shown["show --json"].stdout)["state"] == "interrupted"
    assert "== interrupted: its worker died\n" in shown["watch"].stdout
    assert shown["watch"].returncode == 1
    assert " run     interrupted " in listed.stdout
    assert f"{job.id}: pending" in resumed.stderr
    assert (job.state, job.output) == ("completed", {"text": "Hello."}), job.error


@pytest.mark.parametrize(("command", "said"), [("cancel", "JOB: cancelled\n"), ("rm --yes", "JOB: deleted\n")])
def test_a_job_whose_worker_was_killed_is_cancelled_and_deleted_at_once(killed_job, typed, monkeypatch, command, said):
    monkeypatch.setattr("callboard.cli.durable_store.PATIENCE", 0.1)

    async def scenario():
        async with FakeBackend([Silence()]) as backend:
            job, _ = await killed_job(backend)
            return job, await asyncio.to_thread(typed, "jobs", *command.split(), job)

    job, done = asyncio.run(scenario())
    assert (done.stdout + done.stderr).replace(job, "JOB") == said
