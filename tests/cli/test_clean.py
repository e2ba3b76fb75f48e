"""`callboard clean` shows what is on disk, and deletes what is named and nothing else."""

import json

import pytest
from tests.cli.durable import begin, make, make_ended, make_waiting, read

from callboard.agent.conversation import conversations_directory
from callboard.coding.job_folders import JobFolders
from callboard.errors import CallerError
from callboard.providers.local.model_files import Place, shipped_catalogue
from callboard.storage.directories import state_directory

MODEL = shipped_catalogue().models[0]


def write(path, size=1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


@pytest.fixture
def shown(invoke):
    """What `callboard clean --json` says of each kind: the number of items and their bytes."""

    def shown():
        rows = json.loads(invoke("clean", "--json").stdout)
        return {kind: (row["items"], row["bytes"]) for kind, row in rows.items()}

    return shown


@pytest.fixture
def everything(data):
    """A file of each kind, and files that always stay."""
    write(Place(MODEL).file, 5000)
    write(Place(MODEL).partial, 1000)
    write(conversations_directory() / "20260101-000000-abcdef" / "messages.jsonl")
    write(data / "evaluation" / "answers" / "m.jsonl")
    for name in ("results.db", "mcp/results/0123456789abcdef.txt", "mcp/eras/server"):
        write(state_directory() / name)
    write(state_directory() / "jobs" / "jobs.db-coding-worker.log", 10)
    return [
        write(path)
        for path in (
            *(data / "approvals.json", data / "models" / "mine.gguf", data / "jobs" / "unknown" / "output.txt"),
            *(state_directory() / name for name in ("mcp/pins/server.json", "mcp/tokens/server.json", "board/secret")),
        )
    ]


@pytest.mark.usefixtures("everything")
def test_it_only_shows_what_is_there(invoke, shown):
    assert shown() == {
        "jobs": (0, 0),
        "models": (1, 6000),
        "conversations": (1, 1000),
        "evaluation": (1, 1000),
        "caches": (3, 3000),
        "prompts": (0, 0),
        "logs": (1, 10),
    }
    lines = invoke("clean").stdout.splitlines()
    assert lines[1].split()[:4] == ["models", "0.0", "MB", "1"]
    assert lines[-1].startswith("(rest) ")
    assert Place(MODEL).file.exists()


def test_it_deletes_what_is_named_and_nothing_else(invoke, shown, everything):
    done = invoke("clean", "models", "caches", "caches", "--yes", "--json")
    assert json.loads(done.stdout) == {"models": {"items": 1, "bytes": 6000}, "caches": {"items": 3, "bytes": 3000}}
    assert "models: 1 deleted, 0.0 MB" in done.stderr
    assert {kind for kind, (items, _) in shown().items() if items} == {"conversations", "evaluation", "logs"}
    assert invoke("clean", "conversations", "evaluation", "logs", "jobs", "--yes").exit_code == 0
    assert all(items == 0 for items, _ in shown().values())
    assert all(path.exists() for path in everything)


@pytest.mark.usefixtures("everything")
def test_it_asks_first(invoke):
    assert isinstance(invoke("clean", "models").exception, CallerError)
    assert Place(MODEL).file.exists()
    done = invoke("clean", "models", "tools")
    assert (done.exit_code, "no kind 'tools'; there are jobs, models" in done.stderr) == (2, True)
    assert Place(MODEL).file.exists()


def test_jobs_that_run_wait_or_were_interrupted_stay(invoke, shown):
    stays = [make(begin).job, make(make_waiting), make(make_ended, "interrupted")]
    ended = [make(make_ended, state) for state in ("completed", "failed", "cancelled")]
    for job in (*stays, ended[0]):
        write(JobFolders().folder(job.id) / "tree" / "a.py")
    old = write(JobFolders().folder("20250101-000000-000-abcdef") / "job.json")
    assert shown()["jobs"] == (4, 2000)
    done = invoke("clean", "jobs", "--yes")
    assert done.stderr == "jobs: 4 deleted, 0.0 MB\n"
    assert {each.id for each in read(lambda store: store.list())} == {job.id for job in stays}
    assert {path.name for path in JobFolders().directory.iterdir()} == {job.id for job in stays}
    assert not old.exists()


def test_a_job_that_runs_again_meanwhile_stays_with_its_files(invoke, monkeypatch):
    first, second = make(make_ended), make(make_ended)
    for job in (first, second):
        write(JobFolders().folder(job.id) / "tree" / "a.py")

    def refuse(name):
        if name == first.id:
            raise CallerError("the job is running", path=name)

    monkeypatch.setattr("callboard.cli.clean.remove_job", refuse)
    done = invoke("clean", "jobs", "--yes")
    assert done.exit_code == 1
    assert f"not deleted: {first.id}: the job is running\njobs: 1 deleted" in done.stderr
    assert {path.name for path in JobFolders().directory.iterdir()} == {first.id}


@pytest.mark.usefixtures("everything")
def test_it_shows_the_rest_if_the_jobs_cannot_be_read(invoke, monkeypatch):
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", "mysql://host/name")
    done = invoke("clean")
    assert done.exit_code == 0
    assert done.stderr.startswith("jobs: ")
    assert done.stdout.startswith("models ")
    assert isinstance(invoke("clean", "models", "jobs", "--yes").exception, CallerError)
    assert Place(MODEL).file.exists()


def test_no_link_is_followed(invoke, shown, tmp_path, data):
    outside = tmp_path / "outside"
    files = [write(outside / "a" / "messages.jsonl"), write(outside / f"{MODEL.name}.gguf"), write(outside / "notes")]
    conversations_directory().mkdir(parents=True)
    (conversations_directory() / "linked").symlink_to(outside / "a")
    inner = write(conversations_directory() / "b" / "messages.jsonl")
    (inner.parent / "notes").symlink_to(outside / "notes")
    (data / "models").symlink_to(outside)
    found = shown()
    assert (found["models"], found["conversations"][0]) == ((0, 0), 2)
    assert invoke("clean", "models", "conversations", "--yes").exit_code == 0
    assert [*conversations_directory().iterdir()] == []
    assert all(path.exists() for path in files)
