import asyncio
import os
import stat
import threading

import pytest

from callboard.coding.git import files
from callboard.coding.git.files import copy_files
from callboard.errors import CallerError


def copied(source, target, without=None):
    return asyncio.run(copy_files(source, target, without=without or target.parent))


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_bytes(b"\x00\xff\r\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    return folder


@pytest.fixture
def target(tmp_path):
    (tmp_path / "job").mkdir()
    return tmp_path / "job" / "tree"


def test_files_come_over_as_they_are(source, target):
    (source / "link").symlink_to("deep/er")
    (source / "out").symlink_to("/etc")
    (source / "nowhere").symlink_to("gone")
    (source / os.fsdecode(b"latin-\xe9\n")).write_text("x")
    assert copied(source, target) == ()
    assert (target / "deep" / "er" / "file").read_bytes() == b"\x00\xff\r\n"
    assert stat.S_IMODE((target / "run").stat().st_mode) == 0o755
    assert {name: str((target / name).readlink()) for name in ("link", "out", "nowhere")} == {
        "link": "deep/er",
        "out": "/etc",
        "nowhere": "gone",
    }
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in source.iterdir())
    # Nothing is shared.
    (target / "run").write_text("changed")
    assert (source / "run").read_text() == "#!/bin/sh\n"


def test_what_can_be_had_again_is_left_out(source, target):
    for name in ("node_modules", "deep/node_modules", ".venv", ".git", "__pycache__", "venv"):
        (source / name).mkdir()
        (source / name / "x").touch()
    (source / "venv" / "pyvenv.cfg").touch()
    (source / "deep" / "venv").mkdir()
    copied(source, target)
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == [
        "deep",
        "deep/er",
        "deep/er/file",
        "deep/venv",
        "run",
    ]


@pytest.mark.parametrize("name", [".git", ".hg", "node_modules", "deep/.git"])
def test_links_of_these_names_are_left_out_too(source, target, tmp_path, name):
    (source / name).symlink_to(tmp_path / "victim")
    assert copied(source, target) == ()
    assert not (target / name).is_symlink()


def test_nothing_is_called_as_our_own_pointer_in_a_copy(source, target):
    """A file `.git` of an archive would say which repository the copy is of."""
    (source / ".git").write_text("gitdir: /elsewhere\n")
    (source / "deep" / ".GIT").symlink_to("/elsewhere")
    copied(source, target)
    assert not (target / ".git").exists()
    assert not (target / "deep" / ".GIT").is_symlink()


def test_pipes_sockets_and_what_may_not_be_read_are_named(source, target):
    os.mkfifo(source / "pipe")
    assert copied(source, target) == ("pipe",)


def test_a_job_within_the_folder_is_not_copied_into_itself(source):
    job = source / "jobs" / "1"
    job.mkdir(parents=True)
    (job / "x").touch()
    copied(source, job / "tree", job)
    assert not (job / "tree" / "jobs" / "1").exists()
    assert (job / "tree" / "jobs").is_dir()


@pytest.mark.parametrize(("name", "value"), [("MAX_FILES", 3), ("MAX_BYTES", 5)])
def test_too_much_is_refused_in_words(source, target, monkeypatch, name, value):
    monkeypatch.setattr(files, name, value)
    with pytest.raises(CallerError, match="too much to copy; make it a repository: git init"):
        copied(source, target)


def test_cancelling_stops_it(source, target, monkeypatch):
    begun, ended = threading.Event(), threading.Event()
    real = files._copy_file

    def slow(*arguments):
        begun.set()
        assert ended.wait(10)
        real(*arguments)

    monkeypatch.setattr(files, "_copy_file", slow)
    for number in range(20):
        (source / f"{number}").touch()

    async def cancelled():
        task = asyncio.create_task(copy_files(source, target, without=target.parent))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended.set()

    asyncio.run(cancelled())
    assert len(list(target.iterdir())) < 20
