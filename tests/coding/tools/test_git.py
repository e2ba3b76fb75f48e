import asyncio
import os

import pytest

from callboard.coding.repository import find_repository
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
def desk(repo, tmp_path, request):
    """A desk at the repository."""
    (tmp_path / "root").symlink_to(repo)
    made = request.getfixturevalue("desk_of")(*ALL, tools.git)
    made.root = repo
    return made


@pytest.fixture
def desk_of(tmp_path):
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("desk", Path(__file__).with_name("conftest.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda *given: module.Desk(tmp_path / "repo", given)


def test_the_way_of_a_change(desk, git):
    assert desk.call("git_status") == "On branch main\nnothing to commit, working tree clean"
    assert desk.call("git_diff") == "no changes"
    desk.write("a.py", "work\n")
    desk.write("new file.py", "new\n")
    assert desk.call("git_status") == "On branch main\n M a.py\n?? new file.py"
    patch = desk.call("git_diff")
    assert "+work" in patch
    assert patch.endswith("New files, not in the patch: new file.py")
    assert "work" not in desk.call("git_diff", files=["src"])
    assert desk.call("git_add", files=["a.py"]) == "Staged a.py"
    assert desk.call("git_commit", message="Mend a\n\nIt was wrong.").endswith("] Mend a\nNot in it: new file.py")
    assert desk.call("git_commit", message="Add new").startswith("[main ")
    log = desk.call("git_log", limit=3).splitlines()
    assert [line.split(" ", 2)[2] for line in log] == ["Add new", "Mend a", "second"]
    assert "nothing to commit" in desk.refused("git_commit", message="again")
    assert "a commit needs a message" in desk.refused("git_commit", message="  ")
    assert "Nothing to stage there" in desk.call("git_add", files=["a.py"])


def test_one_tool_for_all(desk):
    desk.write("a.py", "work\n")
    assert desk.call("git") == desk.call("git", action="status") == "On branch main\n M a.py"
    assert "+work" in desk.call("git", action="diff", files=["a.py"])
    assert "On branch" in desk.call("git", action="create_branch", branch="x") or True
    assert desk.call("git", action="commit", message="x").startswith("[x ")


@pytest.mark.parametrize("path", ["../home/.gitconfig", "/etc/passwd", "src/../../x", "."])
def test_paths_stay_inside(desk, path):
    desk.write("a.py", "work\n")
    if path == ".":
        assert "+work" in desk.call("git_diff", files=[path])
        return
    for name in ("git_diff", "git_add"):
        assert "is outside of" in desk.refused(name, files=[path])
    assert "is outside of" in desk.refused("git_checkout", branch=path)


@pytest.mark.parametrize("name", ["--force", "-b", ":(top)a.py", "--output=/tmp/x", "a.py; rm -rf /", "$(id)"])
def test_nothing_becomes_an_option(desk, repo, name):
    desk.write("a.py", "work\n")
    assert desk.call("git_diff", files=[name]) == "no changes"
    assert "Nothing to stage" in desk.call("git_add", files=[name])
    assert "is no branch" in desk.refused("git_diff", base=name)
    assert "is no branch" in desk.refused("git_checkout", branch=name)
    assert "is no name for a branch" in desk.refused("git_branch", branch=name)
    assert desk.read("a.py") == "work\n"


def test_branches(desk, git, repo):
    assert desk.call("git_branch", branch="feature") == "Switched to a new branch 'feature'"
    desk.write("a.py", "work\n")
    desk.call("git_commit", message="work")
    assert desk.call("git_checkout", branch="main") == "Switched to branch 'main'"
    assert "+work" in desk.call("git_diff", branch="feature")
    desk.write("a.py", "spoilt\n")
    assert desk.call("git_checkout", branch="a.py") == "a.py is as in the last commit"
    assert desk.read("a.py") == "one\nmore\n"
    git(repo, "checkout", "-q", "--detach")
    assert desk.call("git_status").startswith("HEAD detached at ")


def test_a_job_stays_on_its_branch(desk, git, repo):
    repository = asyncio.run(find_repository(repo))
    repository.only_branch = "main"
    desk.workspace.repository = repository
    git(repo, "branch", "other")
    assert desk.call("git_branch", branch="x") == "You are on branch main, which was made for this work: commit there."
    assert "this work stays on its branch main" in desk.refused("git_checkout", branch="other")
    desk.workspace.may_push = True
    assert "only main may be pushed" in desk.refused("git_push", branch="other")


def test_pushing_is_the_users_to_allow(desk, git, repo, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "far.git"))
    assert "the user pushes with --push" in desk.refused("git_push", branch="main")
    assert git(tmp_path / "far.git", "branch") == ""
    desk.workspace.may_push = True
    assert "main" in desk.call("git_push")
    assert git(tmp_path / "far.git", "rev-parse", "main") == git(repo, "rev-parse", "main")
    assert "there is no remote" in desk.refused("git_push", remote=str(tmp_path / "elsewhere.git"))


def test_much_is_cut(desk):
    desk.write("a.py", "".join(f"line {number}\n" for number in range(20_000)))
    patch = desk.call("git_diff")
    assert len(patch) < 61_000
    assert patch.endswith("\n[the patch goes on: ask for single files]")
    for number in range(300):
        desk.write(f"new-{number:03}", "")
    assert desk.call("git_status").endswith("and 101 more")
    assert desk.call("git_diff", files=["new-000"]).count("\n") == 0


def test_where_there_is_no_repository(tmp_path, home, desk_of):
    (tmp_path / "repo").mkdir()
    assert "not a git repository; git init makes one" in desk_of(*ALL).refused("git_status")


def test_a_repository_that_is_planted_later_is_not_used(desk, git, repo, tmp_path):
    desk.call("git_status")
    os.rename(repo / ".git", tmp_path / "moved")
    git(repo, "init", "-q")
    (repo / ".git").rename(tmp_path / "evil")
    (repo / ".git").symlink_to(tmp_path / "evil")
    git(tmp_path, "config", "-f", "evil/config", "core.worktree", str(tmp_path))
    assert desk.workspace.repository.git_directory == repo / ".git"
