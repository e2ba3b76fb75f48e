import asyncio
import os
import shutil
from pathlib import Path

import pytest

from callboard.coding.git import snapshots
from callboard.coding.git.snapshots import open_snapshots
from callboard.errors import CallerError

run = asyncio.run


def go_back(states, identifier):
    """As a chat takes a turn back; gives the files that changed."""
    now = run(states.take("before going back"))
    differences = run(states.diff_files(now, identifier))
    run(states.restore({path: then for path, (_, then) in differences.items()}, now))
    run(states.take("after going back"))
    return tuple(differences)


@pytest.fixture
def folder(job):
    return job


def test_there_and_back(repo, folder, seen_of):
    (repo / "a.py").write_text("not committed\n")
    (repo / "untracked").write_text("x\n")
    before = seen_of(repo)
    held = sorted((repo / ".git").rglob("*"))
    states = run(open_snapshots(repo, folder))
    first = run(states.take("at first"))
    assert run(states.take("again")) == first
    assert run(states.diff(first)) == ""
    (repo / "a.py").write_text("edited\n")
    (repo / "untracked").unlink()
    (repo / "src" / "new").mkdir()
    (repo / "src" / "new" / "c.py").write_text("new\n")
    patch = run(states.diff(first))
    assert all(part in patch for part in ("-not committed", "+edited", "-x", "+new"))
    second = run(states.take("after an edit"))
    assert go_back(states, first) == ("a.py", "src/new/c.py", "untracked")
    after = seen_of(repo)
    assert {name: (mode, content) for name, (mode, _, content) in after["files"].items()} == {
        name: (mode, content) for name, (mode, _, content) in before["files"].items()
    }
    assert {**after, "files": 0} == {**before, "files": 0}
    assert sorted((repo / ".git").rglob("*")) == held
    go_back(states, second)
    assert (repo / "src" / "new" / "c.py").read_text() == "new\n"
    assert not (repo / "untracked").exists()


def test_going_back_can_be_taken_back(repo, folder):
    states = run(open_snapshots(repo, folder))
    first = run(states.take("first"))
    (repo / "a.py").write_text("never kept\n")
    before = run(states.take("before going back"))
    go_back(states, first)
    assert (repo / "a.py").read_text() == "one\nmore\n"
    go_back(states, before)
    assert (repo / "a.py").read_text() == "never kept\n"


def test_files_come_back_byte_for_byte(repo, folder, git, tmp_path):
    """Whatever line endings and filters the user's files say."""
    git(repo, "config", "core.autocrlf", "true")
    git(repo, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat")
    git(repo, "config", "filter.x.smudge", f"touch {tmp_path}/ran; cat")
    (repo / ".gitattributes").write_text("* text=auto eol=crlf ident filter=x\n*.u working-tree-encoding=UTF-16\n")
    held = {
        "crlf": b"a\r\nb\r\n",
        "mixed": b"a\r\nb\n",
        "binary": bytes(range(256)),
        "ident": b"$Id$ $Id: 1$\n",
        "x.u": b"\xff\xfea\x00",
        os.fsdecode(b"latin-\xe9\n"): b"",
        "-rf": b"x",
    }
    for name, data in held.items():
        (repo / name).write_bytes(data)
    (repo / "run").write_text("#!/bin/sh\n")
    (repo / "run").chmod(0o755)
    (repo / "link").symlink_to("/etc/passwd")
    states = run(open_snapshots(repo, folder))
    first = run(states.take("first"))
    for name in [*held, "run", "link"]:
        (repo / name).unlink()
    go_back(states, first)
    assert {name: (repo / name).read_bytes() for name in held} == held
    assert (repo / "run").stat().st_mode & 0o111
    assert (repo / "link").readlink() == Path("/etc/passwd")
    assert not (tmp_path / "ran").exists()


def test_what_is_no_part_of_it_stays(repo, folder, git, monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_FILE", 1000)
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "exclude").write_text("*.log\n")
    (repo / "x.log").write_text("ignored\n")
    (repo / "forced.log").write_text("tracked\n")
    git(repo, "add", "-f", "forced.log")
    (repo / "large").write_bytes(b"x" * 2000)
    os.mkfifo(repo / "pipe")
    git(repo, "init", "-q", "inner")
    (repo / "inner" / "x").write_text("x\n")
    states = run(open_snapshots(repo, folder))
    first = run(states.take("first"))
    (repo / "x.log").write_text("changed\n")
    (repo / "forced.log").write_text("changed\n")
    (repo / "large").write_bytes(b"y" * 2000)
    (repo / "inner" / "x").write_text("changed\n")
    assert go_back(states, first) == ("forced.log",)
    assert (repo / "forced.log").read_text() == "tracked\n"
    assert (repo / "x.log").read_text() == (repo / "inner" / "x").read_text() == "changed\n"
    assert (repo / "large").read_bytes() == b"y" * 2000
    assert (repo / "pipe").is_fifo()


def test_a_file_becomes_a_folder_and_a_folder_a_link(repo, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("not ours\n")
    states = run(open_snapshots(repo, folder))
    first = run(states.take("first"))
    (repo / "a.py").unlink()
    (repo / "a.py").mkdir()
    (repo / "a.py" / "x").write_text("x\n")
    shutil.rmtree(repo / "src")
    (repo / "src").symlink_to(outside)
    second = run(states.take("second"))
    go_back(states, first)
    assert (repo / "a.py").read_text() == "one\nmore\n"
    assert (repo / "src" / "b.py").read_text() == "two\n"
    assert not (repo / "src").is_symlink()
    assert (outside / "b.py").read_text() == "not ours\n"
    go_back(states, second)
    assert (repo / "a.py" / "x").read_text() == "x\n"
    assert (outside / "b.py").read_text() == "not ours\n"


@pytest.mark.usefixtures("home")
def test_a_folder_without_git(tmp_path, folder):
    root = tmp_path / "plain"
    root.mkdir()
    (root / "x").write_text("x\n")
    states = run(open_snapshots(root, folder))
    first = run(states.take("first"))
    (root / "x").write_text("y\n")
    # What was taken before is found again.
    states = run(open_snapshots(root, folder))
    assert go_back(states, first) == ("x",)
    assert (root / "x").read_text() == "x\n"
    assert not (root / ".git").exists()


def test_an_empty_one(tmp_path, git, folder):
    git(tmp_path, "init", "-q", "new")
    states = run(open_snapshots(tmp_path / "new", folder))
    first = run(states.take("  \n "))
    (tmp_path / "new" / "x").write_text("x\n")
    assert go_back(states, first) == ("x",)
    assert not (tmp_path / "new" / "x").exists()


@pytest.mark.parametrize("name", ["", "-", "nothing", "HEAD:x", "--all", "a b", "HEAD~1", "0" * 40])
def test_a_state_that_is_none(repo, folder, name):
    states = run(open_snapshots(repo, folder))
    run(states.take("first"))
    with pytest.raises(CallerError, match="no state"):
        run(states.diff(name))


def test_too_many_files(repo, folder, monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_FILES", 1)
    states = run(open_snapshots(repo, folder))
    with pytest.raises(CallerError, match="more than 1 files; let git ignore"):
        run(states.take("first"))
