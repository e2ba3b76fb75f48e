import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from callboard.coding.jobs.job import Job, JobOutput
from callboard.coding.jobs.store import DIED, JobStore
from callboard.errors import CallerError

HELD = """
import signal, sys, time
from pathlib import Path
from callboard.coding.jobs.store import JobStore
jobs = JobStore(Path(sys.argv[1]))
if sys.argv[3] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with jobs.running(sys.argv[2]):
    jobs.update(jobs.load(sys.argv[2]), state="running")
    print("held", flush=True)
    time.sleep(600)
"""


class Ticking:
    """A clock that goes a second a look."""

    def __init__(self):
        self.now = datetime(2026, 11, 22, 8, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def jobs(tmp_path):
    return JobStore(tmp_path / "jobs", clock=Ticking())


def held(jobs, job, how="polite"):
    """Another process that runs the job."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(jobs.directory), job.id, how], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_job_is_on_disk_as_it_was_made(jobs, tmp_path):
    job = jobs.create("build", "Add a test", tmp_path, model="scripted", input={"issue": 7})
    assert job == jobs.load(job.id)
    assert (job.state, job.type, job.input) == ("pending", "build", {"issue": 7})
    assert json.loads((jobs.folder(job.id) / "job.json").read_text())["description"] == "Add a test"
    assert jobs.folder(job.id).stat().st_mode & 0o077 == 0


def test_ids_sort_by_time_also_within_a_second(jobs, tmp_path):
    made = [jobs.create("build", str(number), tmp_path) for number in range(5)]
    assert [each.id for each in jobs.all()] == [each.id for each in reversed(made)]


def test_two_jobs_of_one_moment_do_not_collide(tmp_path):
    tokens = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    jobs = JobStore(tmp_path, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    first = jobs.create("build", "x", tmp_path, token=lambda: next(tokens))
    second = jobs.create("build", "y", tmp_path, token=lambda: next(tokens))
    assert (first.id, second.id) == ("20260101-000000-000-aaaaaa", "20260101-000000-000-bbbbbb")


def test_states_set_their_times(jobs, tmp_path):
    job = jobs.create("debug", "x", tmp_path)
    running = jobs.update(job, state="running")
    waiting = jobs.update(running, state="waiting", reason="asks")
    again = jobs.update(waiting, state="running", reason="")
    done = jobs.update(again, state="completed", output=JobOutput(branch="b"))
    assert job.started_at is None
    assert running.started_at == waiting.started_at == again.started_at == done.started_at
    assert done.completed_at > done.started_at
    assert jobs.load(done.id) == done
    assert done.as_json()["output"]["branch"] == "b"


def test_a_job_is_found_by_the_beginning_of_its_name(jobs, tmp_path):
    job = jobs.create("build", "x", tmp_path)
    assert jobs.load(job.id[:-2]) == job
    other = jobs.create("build", "y", tmp_path)
    with pytest.raises(CallerError, match="2 jobs begin so"):
        jobs.load("2026")
    assert other != job


@pytest.mark.parametrize("name", ["", "nothing", "../jobs", "/etc", "a/b", "."])
def test_what_is_no_job_is_refused(jobs, tmp_path, name):
    jobs.create("build", "x", tmp_path)
    with pytest.raises(CallerError, match=r"no such job|jobs begin so"):
        jobs.load(name)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', '{"id": "x", "state": "gone"}'])
def test_a_spoiled_record_is_told_by_its_place(jobs, tmp_path, text):
    job = jobs.create("build", "x", tmp_path)
    (jobs.folder(job.id) / "job.json").write_text(text)
    with pytest.raises(CallerError, match=r"job\.json"):
        jobs.load(job.id)
    assert jobs.all() == []


def test_a_job_whose_process_died_has_failed(jobs, tmp_path):
    job = jobs.create("build", "x", tmp_path)
    process = held(jobs, job)
    assert jobs.load(job.id).state == "running"
    process.kill()
    process.wait()
    process.stdout.close()
    found = jobs.load(job.id)
    assert (found.state, found.reason) == ("failed", DIED)
    assert found.completed_at is not None


def test_only_one_process_runs_a_job(jobs, tmp_path):
    job = jobs.create("build", "x", tmp_path)
    with jobs.running(job.id), pytest.raises(CallerError, match="running already"), jobs.running(job.id):
        pass
    with jobs.running(job.id):
        pass


@pytest.mark.parametrize("how", ["polite", "deaf"])
def test_cancelling_ends_the_process(jobs, tmp_path, how, monkeypatch):
    monkeypatch.setattr("callboard.coding.jobs.store.PATIENCE", 0.1)
    job = jobs.create("build", "x", tmp_path)
    process = held(jobs, job, how)
    found = asyncio.run(jobs.cancel(job.id))
    assert found.state == "cancelled"
    assert process.wait() == -(signal.SIGTERM if how == "polite" else signal.SIGKILL)
    process.stdout.close()


def test_cancelling_what_never_began_and_what_has_ended(jobs, tmp_path):
    job = jobs.create("build", "x", tmp_path)
    assert asyncio.run(jobs.cancel(job.id)).state == "cancelled"
    done = jobs.update(jobs.create("build", "y", tmp_path), state="completed")
    assert asyncio.run(jobs.cancel(done.id)) == done


def test_a_write_that_fails_leaves_the_record_as_it_was(jobs, tmp_path, monkeypatch):
    job = jobs.create("build", "x", tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            jobs.update(job, state="running")
    assert jobs.load(job.id) == job
    assert [path.name for path in jobs.folder(job.id).iterdir()] == ["job.json"]


def test_fields_are_those_of_the_seed():
    assert {"id", "type", "description", "input", "state", "reason", "output", "error", "phase"} <= {
        *Job.__struct_fields__
    }
    assert {"created_at", "started_at", "completed_at"} <= {*Job.__struct_fields__}


def test_a_job_of_another_id_is_none(jobs, tmp_path):
    job = jobs.create("build", "x", tmp_path)
    other = jobs.folder("20260101-000000-000-abcdef")
    other.mkdir()
    told = json.loads((jobs.folder(job.id) / "job.json").read_text())
    (other / "job.json").write_text(json.dumps({**told, "id": "../../elsewhere", "state": "running"}))
    with pytest.raises(CallerError, match="another's id"):
        jobs.load(other.name)
    assert jobs.all() == [job]


def test_a_directory_that_json_cannot_name_is_refused(jobs, tmp_path):
    with pytest.raises(CallerError, match=r"caf.*: the path is not UTF-8; rename the folder"):
        jobs.create("build", "x", tmp_path / os.fsdecode(b"caf\xe9"))


@pytest.mark.parametrize("name", ["..", "", ".", "a/b", "/etc", "-rf", "a\0b", "a\n"])
def test_a_name_that_leads_elsewhere_has_no_folder(jobs, name):
    for act in (jobs.folder, jobs.remove):
        with pytest.raises(CallerError, match="no name of a job"):
            act(name)
