"""Large repositories, large files and much output. What each took is printed: run with -s."""

import asyncio
import os
import shutil
import subprocess
import time

import pytest

from callboard.jobs.coding_kind import undo_job

FILES = int(os.environ.get("SOAK_FILES", "100000"))
BYTES = int(os.environ.get("SOAK_BYTES", str(1024**3)))
READ = ("file", {"path": "calc.py"})
EDIT = ("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
LOOKS = (
    ("search", {"pattern": "function_777_77"}),
    ("search", {"action": "find_files", "pattern": "mod_99_*.py"}),
    ("search", {"action": "find_definition", "name": "function_500_50"}),
    ("navigate", {"action": "get_tree"}),
    ("git", {"action": "status"}),
)
MANY = "for i in $(seq {}); do mkdir -p made/$i; for k in $(seq 100); do echo $i $k > made/$i/$k; done; done"


@pytest.fixture
def measured(command, data, repository, calling):
    """Runs a build with further calls; prints how long it took, and how much memory at most the largest process had."""

    def run(name, *calls, directory=None):
        said = ["Changed calc.py.", "All tests pass.", "Make add work"]
        replies = [calling(READ), "It is in calc.py.", "1. It.", *map(calling, calls), calling(EDIT), *said]
        figures = data.directory.parents[2] / "figures"
        apart = ["/usr/bin/time", "-o", str(figures), "-f", "%e %M"] if shutil.which("time") else []
        began = time.monotonic()
        arguments = ("build", "--description", "Make add work", "--workflow", "phased")
        place = directory or repository.root
        done = command(*arguments, cwd=place, replies=replies, apart=apart, limit=1800)
        seconds = time.monotonic() - began
        memory = f", {int(figures.read_text().split()[-1]) // 1024} MB" if apart else ""
        print(f"\n{name}: {seconds:.1f} s{memory}")  # noqa: T201  # what this is for
        assert done.code == 0, done.err
        job = data.all()[0]
        asyncio.run(undo_job(job.id, job.tree, data))
        return job, done

    return run


def fill(root, count):
    for number in range(count // 100):
        folder = root / f"package{number // 32}" / f"part{number % 32}"
        folder.mkdir(parents=True)
        for each in range(100):
            text = f"def function_{number}_{each}(x):\n    return x + {each}\n"
            (folder / f"mod_{number}_{each}.py").write_text(text)


def large(path):
    block = os.urandom(1024 * 1024)
    with path.open("wb") as file:
        for number in range(BYTES // len(block)):
            file.write(number.to_bytes(8, "big") + block[8:])


def test_many_files(measured, repository):
    fill(repository.root, FILES)
    repository.commit("Many")
    measured(f"{FILES} tracked files", *LOOKS)


def test_many_files_that_git_does_not_know(measured, repository):
    fill(repository.root, FILES)
    measured(f"{FILES} untracked files", *LOOKS)


def test_many_files_without_git(measured, repository):
    fill(repository.root, FILES)
    shutil.rmtree(repository.root / ".git")
    measured(f"{FILES} files without git", *LOOKS)


def test_a_model_makes_many_files(measured):
    make = ("bash", {"command": MANY.format(FILES // 100), "timeout": 600})
    job, _ = measured(f"a model makes {FILES} files", make)
    assert len(job.output.files) == FILES + 1


@pytest.mark.parametrize("kind", ["tracked", "untracked", "without git"])
def test_a_large_file(measured, repository, kind):
    large(repository.root / "large.bin")
    if kind == "tracked":
        repository.commit("Large")
    if kind == "without git":
        shutil.rmtree(repository.root / ".git")
    job, _ = measured(f"a file of {BYTES} bytes, {kind}", ("file", {"path": "large.bin"}), ("git", {"action": "diff"}))
    assert job.output.files == ("calc.py",)


def test_a_model_makes_large_files(measured, repository):
    half = BYTES // 2 - 20_000_000
    script = f"head -c {half} /dev/urandom > a.bin; head -c {half} /dev/urandom > b.bin"
    job, done = measured(f"a model makes files of {2 * half} bytes", ("bash", {"command": script, "timeout": 600}))
    assert job.output.files == ("calc.py",)
    assert "a.bin, b.bin" in done.err
    size = subprocess.run(["du", "-sk", ".git"], cwd=repository.root, capture_output=True, check=True).stdout
    assert int(size.split()[0]) < 1024


def test_a_command_prints_without_end(measured):
    for name, script in (("3 GB", "yes | head -c 3000000000"), ("noise", "cat /dev/urandom")):
        _, done = measured(f"a command prints {name}", ("bash", {"command": script, "timeout": 600}))
        assert len(done.err) < 10_000
