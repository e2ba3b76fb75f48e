"""What is done with jobs that were begun: logs, retry, fork, rm, export."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.durable import begin, make, make_ended, make_waiting, read

from callboard.coding.job_folders import JobFolders
from callboard.errors import CallerError
from callboard.jobs.coding_kind import host_queue
from callboard.jobs.direct import make_queue
from callboard.jobs.job import agent_queue
from callboard.jobs.store import DurableStore


@pytest.fixture
def refuse(invoke):
    """The error of a command that is refused."""

    def refuse(*arguments, **options):
        done = invoke(*arguments, **options)
        assert isinstance(done.exception, CallerError), done.output
        return str(done.exception)

    return refuse


@pytest.fixture
def old_record():
    """The name of a job that an earlier version recorded in a folder."""
    folder = JobFolders().make("20250101-000000-000-abcdef")
    (folder / "job.json").write_text("{}")
    return folder.name


def listed():
    return [each.id for each in read(lambda store: store.list())]


def test_logs_prints_what_replay_prints(invoke):
    job = make(make_ended)
    done = invoke("jobs", "logs", job.id)
    assert done.stdout == "On it.\nReally.\nDone.\n"
    assert done.stderr == '-> deploy(to="prod")\n<- shipped\n'
    verbose = invoke("jobs", "logs", "-v", job.id).stderr
    assert verbose.startswith("Ship it\nround 1\n")
    assert invoke("jobs", "logs", "--follow", job.id).stdout == done.stdout
    kinds = [json.loads(line)["type"] for line in invoke("jobs", "logs", "--json", job.id).stdout.splitlines()]
    assert kinds[:4] == ["prompt_sent", "round_started", "text_piece", "invocation_ended"]


def test_the_newest_job_of_a_directory_is_named_last(invoke, refuse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hint = "callboard jobs list --all shows the others"
    assert refuse("jobs", "show", "@last") == f"@last: no job in this directory; {hint}"
    make(make_ended)
    newest = make(make_ended)
    make(make_ended, directory="/elsewhere")
    assert json.loads(invoke("jobs", "show", "@last", "--json").stdout)["id"] == newest.id
    assert json.loads(invoke("jobs", "fork", "@last@1", "--json").stdout)["parent"] == f"{newest.id}@1"
    assert refuse("jobs", "fork", "@last").endswith("write JOB@ROUND, such as 20261123-08@2")


@pytest.mark.parametrize(
    ("kind", "queue", "command"),
    [
        ("agent", agent_queue("crew:clerk"), "callboard worker --agents crew:clerk"),
        ("agent", "mine", "callboard worker --queue mine"),
        ("build", host_queue(), "callboard worker"),
        ("response", "callboard-gateway", "callboard serve, with the same --store"),
    ],
)
def test_a_job_that_no_worker_has_taken_says_what_to_start(invoke, kind, queue, command):
    job = make(lambda store: store.create(kind, queue=queue))
    assert f"Waiting for a worker. Start one: {command}\n" in invoke("jobs", "show", job.id).stdout


def test_a_retry_is_a_new_job_with_the_same_input(invoke):
    job = make(make_ended, "failed")
    done = invoke("jobs", "retry", job.id)
    (line,) = done.stdout.splitlines()
    new = read(lambda store: store.get(line))
    assert (new.parent, new.state, new.description, new.entries) == (f"{job.id}@0", "pending", "Ship it", 1)
    assert f"callboard jobs watch {new.id}" in done.stderr


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (
            agent_queue("crew:clerk"),
            "Waiting for a worker. Start one: callboard worker --agents crew:clerk. Follow it with: callboard jobs watch ",
        ),
        (host_queue(), "A worker runs it. Follow it with: callboard jobs watch "),
    ],
)
@pytest.mark.parametrize("command", ["retry JOB", "fork JOB@1"])
def test_a_new_job_says_who_runs_it(invoke, monkeypatch, command, queue, said):
    monkeypatch.setattr("callboard.jobs.direct.start_worker", lambda *_, **__: None)
    job = make(make_ended, queue=queue)
    assert invoke("jobs", *command.replace("JOB", job.id).split()).stderr.startswith(said)


def test_what_goes_on_of_a_direct_job_goes_to_a_worker_of_its_host(invoke, monkeypatch):
    monkeypatch.setattr("callboard.jobs.direct.start_worker", lambda *_, **__: None)
    job = make(make_ended, "failed", queue=make_queue())
    for command in (["retry", job.id], ["fork", f"{job.id}@1"]):
        assert json.loads(invoke("jobs", *command, "--json").stdout)["queue"] == host_queue()
    assert make(DurableStore.resume, job.id).queue == host_queue()


def test_a_chat_is_no_job_of_a_worker(refuse):
    chat = make(lambda store: store.create("chat", queue=make_queue()))
    make(DurableStore.request_cancel, chat.id)
    for command in (["retry", chat.id], ["fork", f"{chat.id}@0"], ["resume", chat.id]):
        assert f"callboard chat --resume {chat.id}" in refuse("jobs", *command)


def test_a_fork_has_the_first_rounds(invoke, refuse):
    job = make(make_ended)
    new = json.loads(invoke("jobs", "fork", f"{job.id}@1", "--json").stdout)
    assert (new["parent"], new["rounds"], new["entries"], "memory" in new) == (f"{job.id}@1", 1, 4, False)
    assert "write JOB@ROUND" in refuse("jobs", "fork", job.id)
    assert "the job has 2 rounds" in refuse("jobs", "fork", f"{job.id}@3")


def test_a_name_that_several_jobs_begin_with_is_refused(refuse):
    job = make(make_ended)
    make(make_ended)
    assert "several jobs begin so" in refuse("jobs", "logs", job.id[:2])


def test_the_list_has_a_limit_and_says_how_many_more_there_are(invoke):
    names = [make(make_ended).id for _ in range(22)][::-1]
    done = invoke("jobs", "list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == names[:20]
    assert done.stderr == "2 more jobs; --limit 0 lists all\n"
    done = invoke("jobs", "list", "--limit", "21", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == names[:21]
    assert done.stderr == "1 more job; --limit 0 lists all\n"
    done = invoke("jobs", "list", "--limit", "0")
    assert (len(done.stdout.splitlines()), done.stderr) == (22, "")


def test_the_list_has_only_the_states_that_are_asked_for(invoke):
    failed, waits, dead = (
        make(make_ended, "failed"),
        make(make_waiting),
        make(begin),
    )  # nobody holds the lease of `dead`
    make(make_ended)

    def names(*states):
        options = [text for state in states for text in ("--state", state)]
        return [line.split()[0] for line in invoke("jobs", "list", *options).stdout.splitlines()]

    assert names("failed") == [failed.id]
    assert names("waiting", "failed") == [waits.id, failed.id]
    assert (names("interrupted"), names("running")) == ([dead.job.id], [])
    none = "no running or cancelled jobs in this directory; --all lists all jobs\n"
    assert invoke("jobs", "list", "--state", "running", "--state", "cancelled").stderr == none
    assert "'failed', 'cancelled'" in invoke("jobs", "list", "--state", "done").output


def test_without_a_database_none_is_made(invoke, refuse, tmp_path):
    assert invoke("jobs", "list").stderr == "no jobs in this directory; --all lists all jobs\n"
    assert "no such job" in refuse("jobs", "logs", "2025")
    assert not (tmp_path / "state").exists()


def test_a_record_of_an_earlier_version_is_refused_and_can_be_deleted(invoke, refuse, old_record):
    """The sentence names its version, and the command that removes it."""
    removes = f"callboard jobs rm {old_record}"
    assert (
        f"not listed, a record of version 1 (a folder with job.json) each: 1; {removes}"
        in invoke("jobs", "list").stderr
    )
    for command in (["jobs", "show"], ["jobs", "resume"], ["undo"], ["chat", "--resume"]):
        said = refuse(*command, old_record)
        assert "a record of version 1" in said
        assert removes in said
    assert invoke("jobs", "rm", "--yes", old_record).stderr == f"{old_record}: deleted\n"
    assert invoke("jobs", "list").stderr == "no jobs in this directory; --all lists all jobs\n"


def test_jobs_are_deleted_when_they_have_ended(invoke, refuse):
    waits, ended = make(make_waiting), make(make_ended)
    assert "callboard jobs cancel" in refuse("jobs", "rm", "--yes", ended.id, waits.id)
    assert "no terminal to confirm in" in refuse("jobs", "rm", ended.id)
    assert listed() == [ended.id, waits.id]
    assert invoke("jobs", "rm", "--yes", ended.id, ended.id).stderr == f"{ended.id}: deleted\n"
    assert listed() == [waits.id]
    assert "name the jobs" in refuse("jobs", "rm")


def test_old_jobs_are_deleted_by_their_age(invoke):
    then = datetime.now(UTC) - timedelta(days=40)

    async def build(store):
        return await make_ended(DurableStore(store.database, clock=lambda: then))

    old, new, waits = make(build), make(make_ended), make(make_waiting)
    assert old.id < new.id
    trees = [JobFolders().folder(each.id) / "tree" for each in (old, new)]
    for tree in trees:
        tree.mkdir(parents=True)
    assert invoke("jobs", "rm", "--older-than", "30d", "--yes").stderr == "1 job deleted\n"
    assert listed() == [waits.id, new.id]
    assert [tree.exists() for tree in trees] == [False, True]


def test_an_export_can_be_read_and_has_what_is_kept(invoke, tmp_path, refuse):
    job = make(make_ended)
    done = invoke("jobs", "export", job.id, "--to", str(tmp_path / "out"))
    folder = tmp_path / "out" / job.id
    assert done.stdout == f"{folder}\n"
    assert sorted(path.name for path in folder.iterdir()) == [
        "001-prompt.txt",
        "002-response.txt",
        "003-tool-calls.json",
        "004-tool-results.json",
        "005-prompt.txt",
        "006-response.txt",
        "entries.jsonl",
        "events.jsonl",
        "job.json",
    ]
    kept = read(lambda store: store.read_entries(job.id))
    assert (folder / "entries.jsonl").read_text("utf-8") == "".join(f"{each.line}\n" for each in kept)
    assert len((folder / "events.jsonl").read_text().splitlines()) > 5
    assert json.loads((folder / "job.json").read_text())["id"] == job.id
    assert (folder / "004-tool-results.json").read_text().count("shipped") == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "the folder exists" in refuse("jobs", "export", job.id, "--to", str(tmp_path / "out"))
