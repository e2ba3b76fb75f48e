"""Odd repositories, full disks, hostile records, and the end from outside at any moment: what a user is left with."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from callboard.coding.agents.job_request import MAX_LOGS, read_logs
from callboard.core import TextPiece
from callboard.errors import CallerError
from callboard.jobs.coding_kind import undo_job
from callboard.testing import Call

READ = ("file", {"path": "calc.py"})
EDIT = ("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
TASK = ("build", "--description", "Make add work", "--workflow", "phased")
NAP = f"4717.{os.getpid()}"
"""Of this process alone: others run the same tests."""
HALF = ("file", {"action": "write", "path": "half.txt", "content": "half"})
SLEEP = ("bash", {"command": f"trap '' TERM INT HUP; (setsid sleep {NAP} &); sleep {NAP}"})


ANALYZE, DELIVERING = b'"name":"analyze"', b'"name":"deliver"'
PROMPTED, TESTING = b'"prompt_sent"', b"running the tests"
HALF_WRITTEN, ASLEEP = b"bytes to half.txt", b"tool_progress"


@pytest.fixture
def replies(calling):
    """Those of a build in phases, with some more before it edits."""

    def made(*more):
        middle = [calling(each) for each in more]
        said = ["Changed calc.py.", "All tests pass.", "Make add work"]
        return [calling(READ), "It is in calc.py.", "1. Change calc.py.", *middle, calling(EDIT), *said]

    return made


def processes(*signs):
    """Those whose command line has one of the signs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if any(sign in line for sign in signs):
                found.append(line)
    return found


def wait_until_gone(*signs):
    for _ in range(500):
        if not processes(*signs):
            return
        subprocess.run(["sleep", "0.01"], check=True)
    assert not processes(*signs)


# The end at any moment.


@pytest.fixture
def ended(command, data, repository, seen_of):
    """Ends a job at a sign by a signal, and looks at what is left."""

    def end(replies, sign, number):
        (repository.root / "calc.py").write_text("def add(a, b):\n    return a ^ b  # mine\n")
        (repository.root / "mine.txt").write_text("not in git")
        before = seen_of(repository.root)
        done = command(*TASK, "--json", cwd=repository.root, replies=replies, sign=sign, number=number)
        wait_until_gone(f"sleep {NAP}", str(data.directory))
        if number == signal.SIGKILL:
            data.end_lease()
        (job,) = data.all()
        assert not [*(repository.root / ".git").rglob("*.lock")]
        if job.output.commits:
            assert repository.git("show", f"{job.output.branch}:half.txt") == "half"
        asyncio.run(undo_job(job.id, job.tree, data))
        asyncio.run(undo_job(job.id, job.tree, data))
        assert seen_of(repository.root) == before
        assert repository.git("worktree", "list").count("\n") == 1
        return done, job

    return end


@pytest.mark.parametrize(
    ("sign", "number"),
    [
        (ANALYZE, signal.SIGINT),
        (HALF_WRITTEN, signal.SIGINT),
        (ASLEEP, signal.SIGINT),
        (PROMPTED, signal.SIGTERM),
        (ASLEEP, signal.SIGTERM),
        (TESTING, signal.SIGHUP),
    ],
)
def test_a_job_that_is_asked_to_end_leaves_nothing_behind(ended, replies, sign, number):
    # Only where it is ended in it does a command run long.
    done, job = ended(replies(HALF, *([SLEEP] if sign == ASLEEP else [])), sign, number)
    last = json.loads(done.lines[-1])
    assert (done.code, job.state) == (130, "cancelled"), done.err
    assert (last["type"], last["id"], last["state"]) == ("job", job.id, "cancelled")


@pytest.mark.parametrize("sign", [ANALYZE, HALF_WRITTEN, ASLEEP, DELIVERING])
def test_a_job_that_is_killed_leaves_nothing_that_undo_does_not_take_away(ended, replies, sign):
    done, job = ended(replies(HALF, *([SLEEP] if sign == ASLEEP else [])), sign, signal.SIGKILL)
    assert (done.code, job.state, job.reason) == (-9, "interrupted", "its worker died")


def test_a_job_is_cancelled_from_elsewhere_while_it_runs_a_command(command, data, repository, replies):
    cancels = [sys.executable, "-m", "callboard", "jobs", "cancel", "2"]
    environment = {**os.environ, "CALLBOARD_DATABASE_URL": data.url, "XDG_DATA_HOME": str(data.directory.parents[1])}
    canceller = []
    done = command(
        *TASK,
        "--json",
        cwd=repository.root,
        replies=replies(SLEEP),
        sign=ASLEEP,
        then=lambda: canceller.append(subprocess.Popen(cancels, stdout=subprocess.PIPE, env=environment)),
    )
    said, _ = canceller[0].communicate()
    assert (said.split()[1:], done.code) == ([b"cancelled"], 130)
    assert not processes(f"sleep {NAP}")


# Streams.


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_whoever_reads_is_gone(command, data, repository, replies, form):
    before = repository.state()
    reading, writing = os.pipe()
    os.close(reading)
    done = command(*TASK, *form, cwd=repository.root, replies=replies(), stdout=writing)
    os.close(writing)
    (job,) = data.all()
    assert (done.code, job.state, job.reason) == (1, "failed", "what it tells cannot be written: Broken pipe")
    assert "Exception" not in done.err
    assert "Traceback" not in done.err
    assert repository.state() == before


def test_json_is_json_alone_and_the_job_is_last(command, data, repository, replies):
    done = command(*TASK, "--json", cwd=repository.root, replies=replies())
    lines = [json.loads(line) for line in done.lines]
    assert (done.code, done.err, lines[-1]["type"], lines[-1]["state"]) == (0, "", "job", "completed")
    (job,) = data.all()
    again = command("jobs", "logs", job.id, "--json", cwd=repository.root)
    steps = [[each for each in map(json.loads, run) if each["type"] in RECORDED] for run in (again.lines, done.lines)]
    for each in steps[0]:
        each.get("canister", {}).pop("timestamp", "")
    assert steps[0] == steps[1]
    assert len(steps[0]) == 12


RECORDED = ("phase_started", "phase_ended", "result_ready")
"""The steps that are recorded as they were shown."""
SEVERAL = """
import json, sys
from callboard.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    print("code", code, flush=True)
"""
"""Command after command, in one process."""


def read_terminal(descriptor, output):
    with suppress(OSError):
        while block := os.read(descriptor, 65536):
            output += block
    os.close(descriptor)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\b"


CHOSEN = ("id", "type", "state", "category", "severity", "why", "kind", "role", "timestamp")
"""What may be one of a few words only."""


def infected(value, key=""):
    match value:
        case str():
            kept = key in CHOSEN or key.endswith("_at") or value in ("stop", "invocations")
            return value if kept else value + HOSTILE
        case list():
            return [infected(each, key) for each in value]
        case dict() if not key.endswith("_at"):
            return {name: infected(each, name) for name, each in value.items()}
        case _:
            return value


def infect(path):
    """Add what a terminal obeys to all texts of the jobs of a file."""
    with closing(sqlite3.connect(path)) as connection:
        for name in ("title", "model", "error", "reason", "queue"):
            connection.execute(f"UPDATE callboard_jobs SET {name} = {name} || ?", [HOSTILE])
        (output,) = connection.execute("SELECT output FROM callboard_documents").fetchone()
        told = [HOSTILE, json.dumps(infected(json.loads(output)))]
        connection.execute("UPDATE callboard_documents SET description = description || ?, output = ?", told)
        connection.execute("UPDATE callboard_jobs SET kind = 'review'")
        for job, number, line in connection.execute("SELECT job, number, line FROM callboard_entries").fetchall():
            told = json.dumps(infected(json.loads(line)))
            connection.execute(
                "UPDATE callboard_entries SET line = ? WHERE job = ? AND number = ?", [told, job, number]
            )
        connection.commit()


def test_a_hostile_record_does_not_reach_the_terminal(command, data, repository, replies):
    command(*TASK, cwd=repository.root, replies=replies())
    (job,) = data.all()
    infect(data.url.removeprefix("sqlite:///"))
    commands = [
        ["jobs", "list"],
        ["jobs", "show", job.id],
        ["jobs", "show", job.id, "--diff"],
        ["jobs", "logs", "--verbose", job.id],
        ["jobs", "logs", "--json", job.id],
    ]
    ours, theirs = pty.openpty()
    output = bytearray()
    reader = threading.Thread(target=read_terminal, args=[ours, output])
    reader.start()
    done = command(json.dumps(commands), cwd=repository.root, stdout=theirs, program=SEVERAL)
    os.close(theirs)
    reader.join()
    *shown, rest = bytes(output).split(b"code 0\r\n")
    assert (done.code, len(shown), rest) == (0, len(commands), b""), done.err
    for each in (*shown, b"-" * 100 + done.err.encode()):
        assert len(each) > 100
        assert not [sign for sign in (b"\x1b]", b"\x07", b"\x1b[2J", b"\xc2\x9b", b"\b") if sign in each], each


# Disks.

FULL = """
mount -t tmpfs -o size=300k tmpfs "$1" || exit
several=$2
shift 2
"$@"
echo code $?
"$1" -c "$several" '[["jobs", "list"], ["jobs", "show", "2"], ["undo", "2"]]'
"""


def test_a_full_disk_is_told_and_undone(command, repository, replies, tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    before = repository.state()
    apart = ["unshare", *(["-m"] if os.getuid() == 0 else ["-Urm"]), "sh", "-c", FULL, "sh", str(place), SEVERAL]
    big = ("file", {"action": "write", "path": "big.txt", "content": "x" * 200_000})
    done = command(*TASK, cwd=repository.root, replies=replies(big), apart=apart)
    if "unshare failed" in done.err or "mount:" in done.err:
        pytest.skip(f"there is no private mount namespace: {done.err.splitlines()[-1]}")
    assert "No space left on device" in done.err, done.err
    assert "Traceback" not in done.err
    assert [line for line in done.lines if line.startswith("code ")][:2] == ["code 1", "code 0"]
    assert any(" failed " in line for line in done.lines), done.out
    assert done.lines[-1] == "code 0"
    assert repository.state() == before
    assert repository.git("worktree", "list").count("\n") == 1


def test_a_large_file_is_told_of_and_not_committed(run, repository):
    make = Call("bash", {"command": "truncate -s 60M large.bin; echo small > small.txt"})
    script = [Call(*READ), "It is calc.py.", "1. calc.py", make, Call(*EDIT), "Done.", "All tests pass.", "Title"]
    done = run("build", {"description": "Make add work"}, script, workflow="phased")
    assert done.job.state == "completed"
    assert done.job.output.files == ("calc.py", "small.txt")
    assert "large.bin" not in repository.git("ls-tree", "-r", "--name-only", done.job.output.branch)
    assert any("50 MB" in each.text and "large.bin" in each.text for each in done.steps if hasattr(each, "text"))


def test_a_large_file_of_a_folder_without_git_is_no_part_of_the_result(run, tmp_path):
    place = tmp_path / "plain"
    place.mkdir()
    (place / "calc.py").write_text("def add(a, b):\n    return a ^ b\n")
    with (place / "large [1]*.bin").open("wb") as large:
        large.truncate(60 * 1024 * 1024)
    script = [
        Call(*READ),
        "It is calc.py.",
        "1. calc.py",
        Call("git", {"action": "status"}),
        Call(*EDIT),
        "a",
        "b",
        "c",
    ]
    done = run("build", {"description": "Make add work"}, script, workflow="phased", directory=place)
    assert "large" not in done.results[1]
    assert done.job.output.files == ("calc.py",)
    assert [each.text for each in done.steps if "50 MB" in getattr(each, "text", "")] == [
        "no part of the result, since they have more than 50 MB: large [1]*.bin"
    ]


# Names and texts.


ODD = [b"new\nline.py", b"quo\"te'.py", b"-rf", b"--help", b"..foo", b"lat\xe9in.py", b"d" * 255, b":(exclude)x"]


def test_odd_names(run, repository, jobs):
    for name in ODD:
        (repository.root / os.fsdecode(name)).write_text("x = 1\n")
    repository.commit("Odd")
    (repository.root / os.fsdecode(b"\xff\xfe")).write_text("not in git")
    every = [Call("file", {"path": os.fsdecode(name)}) for name in ODD if name.isascii()]
    write = [
        Call(*EDIT),
        Call("bash", {"command": 'for each in *; do echo y >> "./$each"; done; for e in ..*; do echo y >> $e; done'}),
    ]
    looks = [*every, Call("navigate", {"action": "get_tree"}), Call("git", {"action": "status"})]
    script = [looks, "It is in calc.py.", "1. calc.py", write, "Done.", "No.", "No.", "No."]
    done = run("build", {"description": "Make \udcff add work"}, script, workflow="phased", rounds=8)
    assert [each for each in done.results[: len(every)] if each.startswith("Error")] == []
    assert r"lat\udce9in.py" in done.prompts[0]
    assert r"new\nline.py" in done.prompts[0]
    assert done.job.description == r"Make \udcff add work"
    assert r"lat\udce9in.py" in jobs.load(done.job.id).output.files
    told = subprocess.run(
        ["git", "diff", "-z", "--name-only", "main", done.job.output.branch],
        cwd=repository.root,
        capture_output=True,
        check=True,
    )
    assert {*ODD} <= {*told.stdout.split(b"\0")}


def test_a_path_that_is_not_utf_8_is_refused(run, tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    with pytest.raises(CallerError, match="is not UTF-8; rename the folder"):
        run("build", {"description": "Make add work"}, [], directory=place)


def test_a_reply_without_end(run, repository, monkeypatch):
    monkeypatch.setattr("callboard.jobs.coding_record.MAX_REPLY", 10_000)
    before = repository.state()
    job = run("build", {"description": "Make add work"}, [[TextPiece("bla " * 100)] * 100], workflow="phased").job
    assert (job.state, job.reason) == ("failed", "the model's reply has more than 10,000 characters")
    assert repository.state() == before


@pytest.mark.parametrize("size", [0, 10, MAX_LOGS, 9 * MAX_LOGS])
def test_the_end_of_logs_is_read(tmp_path, size):
    logs = tmp_path / "log"
    logs.write_bytes(b"\xff" + b"x" * size + b"end")
    read = read_logs(logs)
    assert read == ("\ufffd" + "x" * size + "end")[-MAX_LOGS:]


def test_logs_without_end_are_read_in_part():
    assert read_logs(Path("/dev/zero")) == "\0" * MAX_LOGS
