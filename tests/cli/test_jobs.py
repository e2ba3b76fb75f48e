"""The coding agents and their jobs, as they are typed and shown."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.coding import conftest as coding
from tests.coding.stored import StoredJobs
from typer.testing import CliRunner

from callboard.cli import app
from callboard.errors import CallboardError
from callboard.jobs import database_url
from callboard.testing import FakeBackend

command, repository, faulty, calling = coding.command, coding.repository, coding.faulty, coding.calling
quick_tests = coding.quick_tests
MEND = "It subtracts.\n\ncalc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
DEBUG = ("debug", "--symptoms", "test_add fails", "--workflow", "short")
BUILD = ("build", "a function", "--workflow", "short")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user who has told git their name."""
    place = tmp_path / "home"
    (place / "callboard").mkdir(parents=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(place / "gitconfig"))
    (place / "gitconfig").write_text(coding.NAME)
    return place


@pytest.fixture
def there(repository, home, monkeypatch):
    """Runs a command in the repository, in this process: as in one of its own, but for signals."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

    def typed(*arguments, replies=None, cwd=repository.root):
        monkeypatch.chdir(cwd)

        async def scenario():
            async with FakeBackend(replies or []) as backend:
                model = ["--model", "fake-model", "--base-url", backend.url] if replies is not None else []
                return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *model])

        done = asyncio.run(scenario())
        if not isinstance(done.exception, (SystemExit, type(None), CallboardError)):
            raise done.exception
        err = done.stderr + (f"callboard: {done.exception}" if isinstance(done.exception, CallboardError) else "")
        return SimpleNamespace(code=done.exit_code, out=done.stdout, lines=done.stdout.splitlines(), err=err)

    return typed


@pytest.fixture
def mended(there):
    """A job that went well."""
    done = there(*DEBUG, replies=[MEND])
    assert done.code == 0, done.err
    return done


def identifier(there):
    (line,) = there("jobs", "list").lines
    return line.split()[0]


def test_a_job_says_what_it_does_and_what_to_do_with_it(mended, there, repository):
    job = identifier(there)
    said = mended.err.splitlines()
    assert said[0].startswith("== fix") or "== fix" in said
    assert mended.lines[0] == "It subtracts."
    branch = mended.lines[-1]
    assert said[-7:] == [
        f"Branch: {branch}, 1 commit, 1 file, +1 \N{MINUS SIGN}1",
        f"Review: git diff HEAD...{branch}",
        f"Merge: git merge {branch}",
        f"Discard: callboard undo {job}",
        "Pull request: not opened",
        "Tests: pytest: 1 passed",
        "Completed",
    ]
    repository.git("merge", "-q", branch)
    assert "a + b" in (repository.root / "calc.py").read_text()


def test_a_job_that_failed_says_where_its_work_is_and_not_to_merge_it(there, repository):
    (repository.root / "test_more.py").write_text("def test_more():\n    assert False\n")
    repository.commit("A test that stays broken")
    done = there(*BUILD, "--max-rounds", "1", replies=[MEND])
    assert done.code == 3, done.err
    branch = done.lines[-1]
    assert f"Branch (unfinished): {branch}, 1 commit, 1 file, +1 \N{MINUS SIGN}1" in done.err.splitlines()
    assert "git merge" not in done.err
    assert "Discard: callboard undo " in done.err


def test_a_build_without_tests_says_so_last(there, repository):
    repository.git("rm", "-q", "test_calc.py", "pytest.ini")
    repository.commit("No tests")
    done = there(*BUILD, replies=[MEND])
    assert done.code == 0, done.err
    why = "no file in the root says how it is tested"
    assert done.err.splitlines()[-1] == f"Completed, not tested: {why}"
    job, reason = identifier(there), f"not tested: {why}"
    assert f"Tests      {reason}" in there("jobs", "show", job).lines
    assert json.loads(there("jobs", "show", "--json", job).out)["output"]["tests"] == reason


@pytest.mark.parametrize(
    ("replies", "options", "code", "told"),
    [(["No."], ("--max-rounds", "1"), 3, "Missing: no file has changed"), ([], (), 1, "Failed: ")],
)
def test_the_exit_status_says_how_it_went(there, replies, options, code, told):
    done = there(*BUILD, *options, replies=replies)
    assert (done.code, told in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("build",), "--description"),
        (("debug", "--symptoms", " "), "symptoms"),
        (("review", "--branch", "nowhere"), "nowhere"),
        (("debug", "--symptoms", "x", "--logs", "none.txt"), "none.txt"),
        (("jobs", "show", "20200101"), "20200101"),
        (("undo", "nothing"), "nothing"),
        (("jobs", "logs", "../../etc"), "etc"),
    ],
)
def test_what_is_missing_or_wrong_is_named(there, arguments, told):
    done = there(*arguments, replies=[] if arguments[0] in ("debug", "review") else None)
    assert done.code == 1  # or 2, in the console script
    assert told in done.err


@pytest.mark.usefixtures("mended")
def test_jobs_are_listed_shown_replayed_and_undone(there, repository, tmp_path):
    job = identifier(there)
    assert there("jobs", "list").lines[0].split()[3:5] == ["debug", "completed"]
    assert [json.loads(line)["id"] for line in there("jobs", "list", "--json").lines] == [job]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    assert there("jobs", "list", cwd=elsewhere).err == "no jobs in this directory; --all lists all jobs\n"
    assert there("jobs", "list", "--all", cwd=elsewhere).lines[0].startswith(job)
    shown = there("jobs", "show", job[:18]).out
    assert "State      Completed" in shown
    assert "Files      calc.py" in shown
    assert json.loads(there("jobs", "show", job, "--json").out)["output"]["tests"] == "pytest: 1 passed"
    assert "+    return a + b" in there("jobs", "show", job, "--diff").lines
    again = there("jobs", "logs", job)
    assert (again.code, "== fix" in again.err, "It subtracts." in again.out + again.err) == (0, True, True)
    edit = [
        "Edited calc.py +1 \N{MINUS SIGN}1",
        "@@ -1,2 +1,2 @@",
        " def add(a, b):",
        "-    return a ^ b",
        "+    return a + b",
    ]
    assert "\n".join(edit) in again.err
    branches = repository.git("branch", "--list", "callboard/*")
    assert branches.strip() in there("undo", job).out
    assert repository.git("branch", "--list", "callboard/*") == ""


def test_what_is_asked_for_stands_behind_the_command(there):
    done = there("triage", "test_add fails", "--workflow", "short", "--max-rounds", "1", replies=["It subtracts."])
    assert (done.code, done.out) == (3, "It subtracts.\n")
    assert "test_add fails" in there("jobs", "list").out


def test_a_job_that_runs_is_cancelled(command, repository, calling):
    cancels = [sys.executable, "-c", "from callboard.cli import main; main()", "jobs", "cancel", "2"]
    canceller = []
    sleep = calling(("bash", {"command": f"sleep 4720.{os.getpid()}"}))
    done = command(
        *("debug", "--symptoms", "x", "--workflow", "phased", "--json"),
        cwd=repository.root,
        replies=[sleep],
        sign=b"tool_progress",
        then=lambda: canceller.append(subprocess.Popen(cancels, stdout=subprocess.PIPE, text=True)),
    )
    said, _ = canceller[0].communicate()
    assert said == f"{json.loads(done.lines[-1])['id']}: cancelled\n"
    assert done.code == 130


def test_settings_may_ask_for_all_that_happens(there, home):
    (home / "callboard" / "callboard.toml").write_text("[coding.debug]\nenabled = true\nkeep_temp_files = true\n")
    done = there(*DEBUG, replies=[MEND])
    assert "Change the code and not its tests." in done.err
    record = [line.split()[1] for line in there("jobs", "show", identifier(there)).lines if line.startswith("Folder")]
    assert (Path(record[0]) / "tree" / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"


def test_a_job_that_was_killed_goes_on(command, repository, calling):
    """It says what it did not know, and repeats nothing; what has ended does not go on."""
    read = calling(("file", {"path": "calc.py"}))
    edit = calling(("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"}))
    begun = ("build", "a function", "--workflow", "phased", "--json")
    replies = [read, "It is in calc.py.", "1. Change it.", edit]
    command(*begun, cwd=repository.root, replies=replies, sign=b'"name":"implement"', number=signal.SIGKILL)
    job = StoredJobs(None, database_url()).all()[0]
    assert job.state == "interrupted"
    replies = [edit, "Changed calc.py.", "All tests pass.", "Make add work"]
    done = command("jobs", "resume", job.id, cwd=repository.root, replies=replies)
    assert done.code == 0, done.err
    assert "continues where it stopped" in done.err
    assert "== analyze" not in done.err
    assert "Tests: pytest: 1 passed" in done.err
    again = command("jobs", "resume", job.id, "--json", cwd=repository.root, replies=[])
    assert again.code != 0
    assert "the job is completed" in again.err
