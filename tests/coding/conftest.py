"""What the tests of the coding agents share: a home of their own, and repositories."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user who has told git nothing but a name."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n")
    for name in [*os.environ]:
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return folder


@pytest.fixture
def git(home):
    """Git as the user runs it."""

    def run(directory, *arguments, check=True):
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, check=False)
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape")

    return run


@pytest.fixture
def repo(tmp_path, git):
    """A repository with two commits."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.py").write_text("one\n")
    (root / "src").mkdir()
    (root / "src" / "b.py").write_text("two\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "a.py").write_text("one\nmore\n")
    git(root, "commit", "-qam", "second")
    return root


@pytest.fixture
def job(tmp_path):
    """The folder of a job."""
    folder = tmp_path / "jobs" / "1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def seen_of(git):
    """All that a user sees of their tree: files with their bytes and modes, index, HEAD, branches, stash, state."""

    def look(root, *, branches=True):
        files = {}
        for path in sorted(Path(root).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name == ".git" or name.startswith(".git/"):
                continue
            about = path.lstat()
            held = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            files[name] = (about.st_mode, about.st_mtime_ns if not path.is_dir() else 0, held)
        index = hashlib.sha256((Path(root) / ".git" / "index").read_bytes()).hexdigest()
        refs = git(root, "for-each-ref") if branches else git(root, "for-each-ref", "refs/heads/main")
        environment = ("-c", "core.fsmonitor=false", "--no-optional-locks")
        return {
            "files": files,
            "index": index,
            "HEAD": (Path(root) / ".git" / "HEAD").read_text(),
            "config": (Path(root) / ".git" / "config").read_text(),
            "refs": refs,
            "status": git(root, *environment, "status", "--porcelain", "--branch"),
            "stash": git(root, "stash", "list"),
        }

    return look
