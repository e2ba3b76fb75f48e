"""Jobs that are ended at moments of chance: how often is in SOAK_KILLS, else each signal thirty times.

Shows the seed; the same in SOAK_SEED tries the same moments.
"""

import asyncio
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from callboard.jobs.coding_kind import undo_job

RUNS = int(os.environ.get("SOAK_KILLS", "30"))
SEED = os.environ.get("SOAK_SEED") or str(random.randrange(2**32))
NAP = f"4718.{os.getpid()}"
READ = ("file", {"path": "calc.py"})
EDIT = ("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
CALLS = (
    ("file", {"action": "write", "path": "half.txt", "content": "half"}),
    ("bash", {"command": f"(setsid sleep {NAP} & sleep {NAP} &) ; sleep 0.5; echo x > made.txt"}),
    ("git", {"action": "commit", "message": "one"}),
    ("test", {}),
    ("bash", {"command": f"sleep {NAP} & sleep 0.3"}),
    EDIT,
)


def beneath(place):
    """Processes that have the place, or the nap, on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_text("utf-8", "replace")
        except OSError:
            continue
        if str(place) in line or f"sleep\0{NAP}" in line:
            found.append(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_at_any_moment(command, data, repository, seen_of, calling, number):  # noqa: PLR0917  # five are fixtures
    chance = random.Random(f"{SEED} {number}")
    print(f"\nSOAK_SEED={SEED}")  # noqa: T201  # how to try the same again
    arguments = ("build", "--description", "Make add work", "--workflow", "phased", "--json")

    def replies():
        said = ["Changed calc.py.", "All tests pass.", "Make add work"]
        return [calling(READ), "It is in calc.py.", "1. Change it.", *map(calling, CALLS), *said]

    began = time.monotonic()
    whole = command(*arguments, cwd=repository.root, replies=replies())
    took = time.monotonic() - began
    assert whole.code == 0, whole.err
    asyncio.run(undo_job(data.all()[0].id, {}, data))
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a ^ b  # mine\n")
    before = seen_of(repository.root)
    known = {job.id for job in data.all()}
    for _ in range(RUNS):
        moment = chance.uniform(0.3, took)
        done = command(*arguments, cwd=repository.root, replies=replies(), number=number, after=moment)
        for _ in range(1000):
            if not beneath(data.directory):
                break
            subprocess.run(["sleep", "0.01"], check=True)
        told = f"{number.name} after {moment:.3f} s"
        assert not beneath(data.directory), told
        assert "Traceback" not in done.err, (told, done.err)
        jobs = [job for job in data.all() if job.id not in known]
        assert not [job for job in jobs if job.state not in ("cancelled", "failed", "completed", "interrupted")], told
        assert not [*(repository.root / ".git").rglob("*.lock")], told
        for job in jobs:
            known.add(job.id)
            asyncio.run(undo_job(job.id, job.tree, data))
            asyncio.run(undo_job(job.id, job.tree, data))
            assert not (data.folder(job.id) / "tree").exists(), told
        assert repository.git("worktree", "list").count("\n") == 1, told
        assert seen_of(repository.root) == before, told
