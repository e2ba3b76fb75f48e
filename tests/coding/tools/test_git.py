import asyncio
from types import SimpleNamespace

import pytest

from callboard.coding.git.repository import find_repository
from callboard.coding.tools import git as tools
from callboard.coding.tools.git import (
    git_add,
    git_branch,
    git_checkout,
    git_commit,
    git_diff,
    git_log,
    git_push,
    git_status,
)

ALL = (git_status, git_diff, git_log, git_add, git_commit, git_push, git_checkout, git_branch)


@pytest.fixture
def root(repo, tmp_path):
    """The repository, where the desk looks for it."""
    return repo.rename(tmp_path / "root")


@pytest.fixture
def at(root, desk):
    """A desk at the repository."""
    assert root.is_dir()
    return desk(*ALL, tools.git)


@pytest.mark.usefixtures("git")
def test_the_way_of_a_change(at):
    assert at.call("git_status") == "On branch main\nnothing to commit, working tree clean"
    assert at.call("git_diff") == "no changes"
    at.write("a.py", "work\n")
    at.write("new file.py", "new\n")
    assert at.call("git_status") == "On branch main\n M a.py\n?? new file.py"
    patch = at.call("git_diff")
    assert "+work" in patch
    assert patch.endswith("New files, not in the patch: new file.py")
    assert "work" not in at.call("git_diff", files=["src"])
    assert at.call("git_add", files=["a.py"]) == "Staged a.py"
    assert at.call("git_commit", message="Mend a\n\nIt was wrong.").endswith("] Mend a\nNot in it: new file.py")
    assert at.call("git_commit", message="Add new").startswith("[main ")
    log = at.call("git_log", limit=3).splitlines()
    assert [line.split(" ", 2)[2] for line in log] == ["Add new", "Mend a", "second"]
    assert "nothing to commit" in at.refused("git_commit", message="again")
    assert "a commit needs a message" in at.refused("git_commit", message="  ")
    assert "Nothing to stage there" in at.call("git_add", files=["a.py"])


def test_one_tool_for_all(at):
    at.write("a.py", "work\n")
    assert at.call("git") == at.call("git", action="status") == "On branch main\n M a.py"
    assert "+work" in at.call("git", action="diff", files=["a.py"])
    assert at.call("git", action="create_branch", branch="x") == "Switched to a new branch 'x'"
    assert at.call("git", action="commit", message="x").startswith("[x ")


@pytest.mark.parametrize("path", ["../home/.gitconfig", "/etc/passwd", "src/../../x", "."])
def test_paths_stay_inside(at, path):
    at.write("a.py", "work\n")
    if path == ".":
        assert "+work" in at.call("git_diff", files=[path])
        return
    for name in ("git_diff", "git_add"):
        assert "is outside of" in at.refused(name, files=[path])
    assert "is outside of" in at.refused("git_checkout", branch=path)


@pytest.mark.parametrize("name", ["--force", "-b", ":(top)a.py", "--output=/tmp/x", "a.py; rm -rf /", "$(id)"])
def test_nothing_becomes_an_option(at, name):
    at.write("a.py", "work\n")
    assert at.call("git_diff", files=[name]) == "no changes"
    assert "Nothing to stage" in at.call("git_add", files=[name])
    assert "unknown branch or commit" in at.refused("git_diff", base=name)
    assert "is neither a branch nor a file" in at.refused("git_checkout", branch=name)
    assert "is no name for a branch" in at.refused("git_branch", branch=name)
    assert at.read("a.py") == "work\n"


def test_branches(at, git, root):
    assert at.call("git_branch", branch="feature") == "Switched to a new branch 'feature'"
    at.write("a.py", "work\n")
    at.call("git_commit", message="work")
    assert at.call("git_checkout", branch="main") == "Switched to branch 'main'"
    assert "+work" in at.call("git_diff", branch="feature")
    at.write("a.py", "spoilt\n")
    assert at.call("git_checkout", branch="a.py") == "a.py is as in the last commit"
    assert at.read("a.py") == "one\nmore\n"
    git(root, "checkout", "-q", "--detach")
    assert at.call("git_status").startswith("HEAD detached at ")


def test_a_job_stays_on_its_branch(at, git, root):
    repository = asyncio.run(find_repository(root))
    repository.only_branch = "main"
    at.workspace.tree = SimpleNamespace(repository=repository)
    git(root, "branch", "other")
    assert at.call("git_branch", branch="x") == "You are on branch main, which was made for this work: commit there."
    assert "this work stays on its branch main" in at.refused("git_checkout", branch="other")


def test_pushing_is_the_users_alone(at, git, root, tmp_path, home):
    git(home, "config", "--global", "protocol.file.allow", "always")
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(root, "remote", "add", "origin", str(tmp_path / "far.git"))
    assert "the user pushes with --push" in at.refused("git_push", branch="main")
    assert git(tmp_path / "far.git", "branch") == ""


def test_much_is_cut(at):
    at.write("a.py", "".join(f"line {number}\n" for number in range(20_000)))
    patch = at.call("git_diff")
    assert len(patch) < 61_000
    assert patch.endswith("\n[the patch goes on: ask for single files]")
    for number in range(300):
        at.write(f"new-{number:03}", "")
    assert at.call("git_status").endswith("and 101 more")
    assert at.call("git_diff", files=["new-000"]).count("\n") == 0


@pytest.mark.usefixtures("home")
def test_where_there_is_no_repository(desk):
    assert "not a git repository; git init makes one" in desk(*ALL).refused("git_status")


def test_a_repository_that_is_planted_later_is_not_used(at, git, root, tmp_path):
    """A worktree's `.git` is a file, and a command may have put another one in its place."""
    git(root, "worktree", "add", "-q", "-b", "job", str(tmp_path / "tree"))
    repository = asyncio.run(find_repository(tmp_path / "tree"))
    git(tmp_path, "init", "-q", "evil")
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path}/evil/.git\n")
    at.workspace.tree = SimpleNamespace(repository=repository)
    assert at.call("git_status").startswith("On branch job")
    assert at.call("git_log").endswith("first")
