import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from callboard.coding.git.open_tree import open_tree, reopen_tree, undo_tree
from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree import TreeRecord
from callboard.errors import CallerError, SandboxUnavailable
from callboard.sandbox import Confinement, find_sandbox

run = asyncio.run


def opened(directory, job, branch="callboard/x", at="HEAD"):
    return run(open_tree(directory, job, branch, at))


def work(tree):
    """A change, a new file, one that is gone, and two commits."""
    (tree.root / "a.py").write_text("work\n")
    run(tree.commit("third"))
    (tree.root / "new.py").write_text("new\n")
    (tree.root / "src" / "b.py").unlink()
    return run(tree.commit("fourth"))


def test_a_job_leaves_the_users_tree_as_it_was(repo, job, git, seen_of):
    before = seen_of(repo)
    tree = opened(repo, job)
    assert (tree.result_patch, tree.branch, tree.base) == (None, "callboard/x", git(repo, "rev-parse", "HEAD").strip())
    assert (tree.root / "src" / "b.py").read_text() == "two\n"
    assert tree.notices == ()
    assert run(tree.commit("nothing")) is None
    last = work(tree)
    (tree.root / "later.py").write_text("not committed\n")
    assert seen_of(repo) == before
    changes = run(tree.changes())
    assert changes.files == ("a.py", "later.py", "new.py", "src/b.py")
    assert [(each.id == last, each.subject) for each in changes.commits] == [(True, "fourth"), (False, "third")]
    assert all(part in changes.diff for part in ("+work", "+new", "-two", "+not committed"))
    run(tree.close(keep=False))
    assert not tree.root.exists()
    assert "+not committed" in tree.patch.read_text()
    assert git(repo, "log", "--format=%s", "callboard/x") == "fourth\nthird\nsecond\nfirst\n"
    told = run(undo_tree(tree.record, job))
    assert told == f"The branch callboard/x is gone; git branch callboard/x {last} brings it back."
    assert seen_of(repo) == before
    git(repo, "branch", "callboard/x", last)
    assert git(repo, "show", "callboard/x:new.py") == "new\n"


def test_a_branch_without_commits_does_not_stay(repo, job, seen_of):
    before = seen_of(repo)
    tree = opened(repo, job)
    run(tree.close(keep=False))
    assert seen_of(repo) == before
    assert run(undo_tree(tree.record, job)) == "The job's tree is gone; it left no branch."


def test_a_tree_may_stay(repo, job, git):
    tree = opened(repo, job)
    work(tree)
    run(tree.close(keep=True))
    assert (tree.root / "new.py").exists()
    run(undo_tree({}, job))
    assert not tree.root.exists()
    assert git(repo, "branch", "--list", "callboard/*") == ""


def test_a_tree_may_be_destroyed(repo, job):
    """By a model that deletes everything, and what it may not write to as well."""
    tree = opened(repo, job)
    work(tree)
    for path in tree.root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    locked = tree.root / "locked"
    (locked / "in").mkdir(parents=True)
    (locked / "in" / "x").touch()
    (locked / "in").chmod(0)
    locked.chmod(0o500)
    (tree.root / "out").symlink_to(repo)
    assert "a.py" in run(tree.changes()).files
    locked.chmod(0o700)
    (locked / "in").chmod(0o500)
    run(tree.close(keep=False))
    assert not tree.root.exists()
    assert (repo / "a.py").exists()
    other = job.parent / "2"
    other.mkdir()
    tree = opened(repo, other, "y")
    shutil.rmtree(tree.root)
    run(tree.close(keep=False))
    assert not tree.root.exists()


def test_a_dirty_tree_is_told_and_left_alone(repo, job, git, seen_of):
    (repo / "a.py").write_text("mine\n")
    git(repo, "add", "a.py")
    (repo / "a.py").write_text("mine, later\n")
    (repo / "untracked").write_text("x\n")
    git(repo, "stash", "push", "-q", "--include-untracked")
    git(repo, "stash", "apply", "-q")
    # What git would note in the index when it looks.
    os.utime(repo / "src" / "b.py", (1, 1))
    before = seen_of(repo)
    tree = opened(repo, job)
    assert tree.notices == ("the working tree has changes that are not in it: a.py, untracked",)
    assert (tree.root / "a.py").read_text() == "one\nmore\n"
    work(tree)
    run(tree.close(keep=False))
    run(undo_tree(tree.record, job))
    assert seen_of(repo) == before


def test_detached_and_under_way(repo, job, git):
    git(repo, "checkout", "-q", "--detach", "HEAD~1")
    tree = opened(repo, job)
    assert tree.notices == (f"HEAD is detached; the job begins at {tree.base[:12]}",)
    git(repo, "checkout", "-qb", "other")
    (repo / "a.py").write_text("different\n")
    git(repo, "commit", "-qam", "third")
    git(repo, "merge", "main", check=False)
    second = job.parent / "2"
    second.mkdir()
    tree = opened(repo, second)
    assert tree.notices[-1] == "a merge is under way here; the job begins at the last commit"
    assert (tree.root / "a.py").read_text() == "different\n"
    assert (repo / ".git" / "MERGE_HEAD").exists()


def test_files_that_are_not_wanted_are_not_in_it(repo, job, git):
    """Sparse checkout, which git notes in a second file for each working tree."""
    git(repo, "sparse-checkout", "set", "--no-cone", "/a.py")
    tree = opened(repo, job)
    assert sorted(path.name for path in tree.root.iterdir()) == [".git", "a.py"]
    assert run(tree.changes()).files == ()
    (tree.root / "a.py").write_text("work\n")
    run(tree.commit("work"))
    assert git(tree.root, "status", "--porcelain") == ""
    run(tree.close(keep=False))
    assert git(repo, "show", "--name-only", "--format=", tree.branch) == "a.py\n"


def test_the_users_git_works_in_the_tree_too(repo, job, git):
    git(repo, "tag", "v1")
    tree = opened(repo, job)
    assert git(tree.root, "status", "--porcelain", "--branch") == "## callboard/x\n"
    assert git(tree.root, "log", "--format=%s", "v1", "main", "--") == "second\nfirst\n"
    work(tree)
    run(tree.close(keep=True))
    assert git(tree.root, "fsck") == git(repo, "fsck") == ""


def test_git_works_in_the_tree_for_a_command_too(repo, job, git):
    git(repo, "gc", "-q")
    tree = opened(repo, job)
    (tree.root / "a.py").write_text("work\n")
    confinement = Confinement(workspace=tree.root, read_only=(".git",), readable=tree.readable)

    async def command(*words):
        try:
            sandbox = await find_sandbox()
        except SandboxUnavailable as error:
            pytest.skip(f"no sandbox: {error}")
        return (await sandbox.run(words, confinement)).output.decode()

    assert run(command("git", "status", "--porcelain")) == " M a.py\n"
    assert run(command("git", "log", "--format=%s")) == "second\nfirst\n"


@pytest.mark.parametrize("options", [["--object-format=sha256"], []])
def test_formats_and_shallow_clones(tmp_path, job, git, options):
    """What git keeps in another way is in another way in the clone too."""
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", *options, str(source))
    for text in ("one\r\n", "two\r\n"):
        (source / "a.py").write_text(text)
        (source / "ignored").touch()
        git(source, "add", "a.py")
        git(source, "commit", "-qm", text.strip())
    git(tmp_path, "clone", "-q", "--depth=1", source.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    git(shallow, "config", "user.email", "local@example.org")
    (shallow / ".git" / "info" / "exclude").write_text("ignored\n")
    tree = opened(shallow, job)
    (tree.root / "ignored").touch()
    (tree.root / "a.py").write_text("three\n")
    run(tree.commit("three"))
    assert [each.subject for each in run(tree.repository.log())] == ["three", "two"]
    run(tree.close(keep=False))
    assert git(shallow, "log", "--format=%s %ae", tree.branch) == "three local@example.org\ntwo ada@example.org\n"
    assert git(shallow, "show", "--name-only", "--format=", tree.branch) == "a.py\n"


def test_a_branch_that_somebody_else_made_meanwhile_stays(repo, job, git):
    tree = opened(repo, job)
    work(tree)
    git(repo, "branch", "callboard/x", "main~1")
    git(repo, "branch", "line\u2028break")
    run(tree.deliver())
    assert tree.branch == "callboard/x-2"
    (tree.root / "more").write_text("more\n")
    last = run(tree.commit("fifth"))
    run(tree.close(keep=False))
    assert git(repo, "rev-parse", "callboard/x-2", "callboard/x") == git(repo, "rev-parse", last, "main~1")
    assert "callboard/x-2 is gone" in run(undo_tree({}, job))
    assert git(repo, "branch", "--list", "callboard/*") == "  callboard/x\n"


def test_a_branch_that_the_user_checked_out_is_not_moved(repo, job, git):
    tree = opened(repo, job)
    delivered = work(tree)
    run(tree.deliver())
    git(repo, "checkout", "-q", "callboard/x")
    (tree.root / "more").write_text("more\n")
    last = run(tree.commit("fifth"))
    with pytest.raises(CallerError, match="callboard/x is checked out; check another"):
        run(tree.deliver())
    assert git(repo, "rev-parse", "callboard/x").strip() == delivered
    git(repo, "checkout", "-q", "main")
    run(tree.close(keep=False))
    assert git(repo, "rev-parse", "callboard/x").strip() == last


def test_from_another_commit(repo, job):
    tree = opened(repo, job, at="HEAD~1")
    assert (tree.root / "a.py").read_text() == "one\n"
    second = job.parent / "2"
    second.mkdir()
    for name in ("nothing", "--force", "-"):
        with pytest.raises(CallerError, match="unknown commit"):
            opened(repo, second, at=name)
    with pytest.raises(CallerError, match="is no name for a branch"):
        opened(repo, second, branch="--orphan")
    assert not (second / "tree").exists()


def test_from_a_folder_of_the_repository(repo, job):
    tree = opened(repo / "src", job)
    assert (tree.root / "a.py").exists()
    assert tree.repository.folder == "src"


def test_a_job_has_one_tree(repo, job):
    opened(repo, job)
    with pytest.raises(CallerError, match="has a tree already"):
        opened(repo, job)


def test_two_at_once(repo, job, git, seen_of):
    before = seen_of(repo)
    folders = [job.parent / f"many-{number}" for number in range(6)]
    for folder in folders:
        folder.mkdir()

    async def both():
        trees = await asyncio.gather(*[open_tree(repo, folder, "callboard/x", "HEAD") for folder in folders])
        for number, tree in enumerate(trees):
            (tree.root / f"{number}").write_text(f"{number}\n")
        commits = await asyncio.gather(*[tree.commit("work") for tree in trees])
        await asyncio.gather(*[tree.close(keep=False) for tree in trees])
        return trees, commits

    trees, commits = run(both())
    assert len({tree.branch for tree in trees}) == len(set(commits)) == 6
    for number, tree in enumerate(trees):
        assert git(repo, "show", "--name-only", "--format=", tree.branch) == f"{number}\n"
        run(undo_tree(tree.record, folders[number]))
    assert seen_of(repo) == before


def test_hooks_and_filters_do_not_run_when_it_is_made(repo, job, git, tmp_path):
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    script.chmod(0o755)
    (repo / ".gitattributes").write_text("*.py filter=x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "attributes")
    for name in ("smudge", "clean", "process"):
        git(repo, "config", f"filter.x.{name}", str(script))
    git(repo, "config", "filter.x.required", "true")
    hooks = repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-commit", "reference-transaction", "pre-commit"):
        (hooks / name).symlink_to(script)
    tree = opened(repo, job)
    (tree.root / "a.py").write_text("work\n")
    (tree.root / "x.txt").write_text("work\n")
    run(tree.commit("work"))
    assert "a.py" in tree.notices[-1]
    run(tree.changes())
    run(tree.close(keep=False))
    run(undo_tree(tree.record, job))
    assert not (tmp_path / "ran").exists()


def test_what_is_installed_is_borrowed(repo, job, git):
    (repo / ".gitignore").write_text(".venv/\nnode_modules/\n")
    (repo / "web").mkdir()
    (repo / "web" / "package.json").write_text("{}")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "ignore")
    for name in (".venv", "node_modules", "web/node_modules", "venv"):
        (repo / name).mkdir()
        (repo / name / "x").touch()
    tree = opened(repo, job)
    assert tree.borrowed == {name: repo / name for name in (".venv", "node_modules", "web/node_modules")}
    assert not (tree.root / ".venv").exists()
    (tree.root / "node_modules").symlink_to(repo / "node_modules")
    assert run(tree.commit("nothing")) is None
    assert run(tree.changes()).files == ()


def test_an_environment_is_borrowed_without_a_gitignore_unless_a_commit_has_it(repo, job, git):
    for name in (".venv", "venv"):
        (repo / name).mkdir()
        (repo / name / "pyvenv.cfg").touch()
    git(repo, "add", "venv")
    git(repo, "commit", "-qm", "an environment")
    tree = opened(repo, job)
    assert (tree.borrowed, (tree.root / "venv/pyvenv.cfg").exists()) == ({".venv": repo / ".venv"}, True)
    assert run(tree.changes()).files == ()


# Undoing


def test_it_is_not_undone_where_somebody_built_upon_it(repo, job, git):
    tree = opened(repo, job)
    last = work(tree)
    run(tree.close(keep=False))
    git(repo, "checkout", "-q", "callboard/x")
    with pytest.raises(CallerError, match="is checked out"):
        run(undo_tree(tree.record, job))
    (repo / "more").write_text("more\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "more")
    git(repo, "checkout", "-q", "main")
    with pytest.raises(CallerError, match="is not where the job left it"):
        run(undo_tree(tree.record, job))
    git(repo, "branch", "-f", "callboard/x", last)
    git(repo, "merge", "-q", "--no-ff", "-m", "merge", "callboard/x")
    with pytest.raises(CallerError, match="is part of main; git revert undoes it"):
        run(undo_tree(tree.record, job))
    assert git(repo, "rev-parse", "callboard/x").strip() == last
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert "is gone" in run(undo_tree(tree.record, job))


def test_undoing_says_that_commits_which_were_not_delivered_are_deleted(repo, job):
    work(opened(repo, job))
    assert run(undo_tree({}, job)) == "The job's tree is gone; it left no branch, and its commits are deleted."


def test_a_job_whose_first_commit_was_pruned_can_be_undone(repo, job, git):
    git(repo, "checkout", "-q", "-b", "topic")
    git(repo, "commit", "-q", "--allow-empty", "-m", "topic")
    work(opened(repo, job))
    git(repo, "checkout", "-q", "main")
    git(repo, "branch", "-q", "-D", "topic")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    with pytest.raises(CallerError, match="or the commit that the job began at was pruned"):
        run(reopen_tree(repo, job, ""))
    assert run(undo_tree({}, job)) == "The job's tree is gone; it left no branch."
    assert not (job / "tree.git").exists()


def test_what_was_pushed_is_told(repo, job, git, tmp_path, home):
    git(home, "config", "--global", "protocol.file.allow", "always")
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "far.git"))
    config = (repo / ".git" / "config").read_text()
    tree = opened(repo, job)
    work(tree)
    run(tree.push())
    run(tree.close(keep=False))
    assert run(undo_tree(tree.record, job)).endswith("brings it back. It is still at origin/callboard/x.")
    assert (repo / ".git" / "config").read_text() == config


def test_a_job_without_a_tree(job):
    assert run(undo_tree({}, job)) == "The job made no tree."


def test_a_repository_that_is_gone(repo, job):
    tree = opened(repo, job)
    work(tree)
    shutil.rmtree(repo)
    assert "is gone, and so is the job's tree" in run(undo_tree(tree.record, job))
    assert not tree.root.exists()


SCRIPT = """
import asyncio, sys
from pathlib import Path
from callboard.coding.git.open_tree import open_tree, undo_tree

async def main(repo, job):
    tree = await open_tree(repo, job, "callboard/x")
    for number in range(3):
        (tree.root / "a.py").write_text(f"work {number}\\n")
        (tree.root / f"{number}.py").write_text("new\\n")
        await tree.commit(f"work {number}")
        await tree.changes()
    await tree.close(keep=False)
    await undo_tree(tree.record, job)

async def told():
    print("begun", flush=True)
    await main(Path(sys.argv[1]), Path(sys.argv[2]))

import callboard.coding.git.process as program
real, left = program.run_git, [int(sys.argv[3])]

async def counted(*arguments, **options):
    # Killed while this call of git runs.
    left[0] -= 1
    if not left[0]:
        import os, signal
        asyncio.get_running_loop().call_later(0.001, os.kill, os.getpid(), signal.SIGKILL)
    return await real(*arguments, **options)

import callboard.coding.git.repository
for module in (program, callboard.coding.git.repository):
    module.run_git = counted
asyncio.run(told())
"""


@pytest.mark.parametrize("number", [4, 9, 10, 11, 12, 14, 20, 30, 45, 60])
def test_it_is_killed_in_the_middle(repo, job, seen_of, number):
    """At some call of git, whichever that is; afterwards the job is undone, and another one works as if nothing was."""
    before = seen_of(repo)
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(repo), str(job), str(number)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        check=False,
    )
    assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr.decode()
    # What it started ends by itself.
    while _is_worked_in(repo.parent):
        time.sleep(0.005)
    record = TreeRecord.load(job)
    run(undo_tree({}, job))
    assert seen_of(repo) == before
    second = job.parent / "2"
    second.mkdir()
    tree = opened(repo, second)
    assert tree.branch == "callboard/x" or record is None
    assert work(tree)
    run(tree.close(keep=False))
    run(undo_tree({}, second))
    assert seen_of(repo) == before


def _is_worked_in(folder):
    """Whether a process of git has its current directory there."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str((process / "cwd").readlink()).startswith(f"{folder}/") and (process / "comm").read_text() == "git\n":
                return True
    return False


# Copies


@pytest.fixture
def plain(tmp_path, home):
    assert home.is_dir()
    root = tmp_path / "plain"
    (root / "src").mkdir(parents=True)
    (root / "a.py").write_bytes(b"one\r\ntwo\n")
    (root / "src" / "b.py").write_text("two\n")
    (root / "node_modules").mkdir()
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    return root


def test_nothing_is_written_where_a_link_of_an_unpacked_archive_leads(plain, job, tmp_path):
    (plain / ".git").symlink_to(tmp_path / "victim")
    tree = opened(plain, job)
    assert tree.record["kind"] == "copy"
    assert (tree.root / ".git").read_text().startswith("gitdir: ")
    assert not (tmp_path / "victim").exists()


def test_a_folder_without_git_is_copied(plain, job, git):
    tree = opened(plain, job)
    assert tree.record["kind"] == "copy"
    assert tree.notices == (f"{plain} is no git repository: the job works on a copy, and its result is a patch",)
    assert tree.borrowed == {"node_modules": plain / "node_modules"}
    assert run(tree.changes()).files == ()
    work(tree)
    (tree.root / "later").write_text("later\n")
    changes = run(tree.changes())
    assert changes.files == ("a.py", "later", "new.py", "src/b.py")
    assert [each.subject for each in changes.commits] == ["fourth", "third"]
    found = run(find_repository(tree.root / "src"))
    assert found is not None
    assert found.root == tree.root
    run(tree.close(keep=False))
    assert sorted(path.name for path in job.iterdir()) == ["changes.patch", "tree.git", "tree.json"]
    assert (plain / "a.py").read_bytes() == b"one\r\ntwo\n"
    git(plain, "apply", str(tree.patch))
    assert (plain / "a.py").read_text() == "work\n"
    assert not (plain / "src" / "b.py").exists()
    assert "the changes are still in" in run(undo_tree(tree.record, job)).lower()


def test_a_repository_without_a_commit_is_copied(tmp_path, git, job):
    git(tmp_path, "init", "-q", "new")
    root = tmp_path / "new"
    (root / "a").write_text("x\n")
    git(root, "add", "a")
    index = (root / ".git" / "index").read_bytes()
    tree = opened(root, job)
    assert tree.record["kind"] == "copy"
    assert "is in no commit yet" in tree.notices[0]
    (tree.root / "a").write_text("y\n")
    assert run(tree.commit("work"))
    run(undo_tree(tree.record, job))
    assert not (job / "tree").exists()
    assert (root / ".git" / "index").read_bytes() == index
    assert (root / "a").read_text() == "x\n"


def test_a_folder_that_the_last_commit_does_not_know_is_copied(repo, job):
    (repo / "lab").mkdir()
    (repo / "lab" / "x").write_text("x\n")
    tree = opened(repo / "lab", job)
    assert tree.record["kind"] == "copy"
    assert sorted(path.name for path in tree.root.iterdir()) == [".git", "x"]


@pytest.mark.usefixtures("home")
def test_an_empty_folder_is_copied(tmp_path, job):
    (tmp_path / "empty").mkdir()
    tree = opened(tmp_path / "empty", job)
    (tree.root / "x").write_text("x\n")
    assert run(tree.commit("first"))
    assert run(tree.changes()).files == ("x",)


def test_a_copy_that_was_not_finished(plain, job):
    tree = opened(plain, job)
    (job / "tree.json").write_text((job / "tree.json").read_text().replace(tree.base, ""))
    run(undo_tree({}, job))
    assert not (job / "tree").exists()


NEWER = '{"kind": "clone", "job": "x", "directory": "x", "branch": "x", "version": 2}'


@pytest.mark.parametrize("content", ["", "[]", "{", '{"kind": "worktree"}', NEWER])
def test_a_record_that_is_none(job, content):
    (job / "tree.json").write_text(content)
    with pytest.raises(CallerError, match="not the record of a tree"):
        TreeRecord.load(job)


def test_undoing_writes_nothing_where_nothing_is_to_be_taken_back(repo, job):
    tree = opened(repo, job)
    config = (repo / ".git" / "config").stat()
    run(tree.close(keep=False))
    run(undo_tree(tree.record, job))
    assert (repo / ".git" / "config").stat() == config


def test_undoing_deletes_beneath_the_jobs_folder_alone(repo, job, tmp_path):
    tree = opened(repo, job)
    run(tree.close(keep=False))
    other = tmp_path / "other"
    (other / "tree").mkdir(parents=True)
    told = (job / "tree.json").read_text().replace(str(job), str(other))
    (job / "tree.json").write_text(told)
    run(undo_tree({}, job))
    assert (other / "tree").is_dir()


# Git-lfs


@pytest.fixture
def lfs(repo, git, tmp_path, monkeypatch):
    """A repository with a file of git-lfs, and a stand-in for the program that knows one content."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "git-lfs"
    pointer = "version https://git-lfs.github.com/spec/v1\\n"
    program.write_text(
        f"#!/bin/sh\nread -r line\ncase $1 in\nclean) printf '{pointer}' ;;\n"
        f"smudge) [ -e {tmp_path}/fetched ] && echo content || printf '{pointer}' ;;\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("clean", "smudge"):
        git(repo, "config", "--global", f"filter.lfs.{name}", f"git-lfs {name} -- %f")
    (repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repo / "x.bin").write_text("content\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "large")
    return tmp_path


def test_files_of_git_lfs_are_put_in_place(lfs, repo, job, git):
    (lfs / "fetched").touch()
    tree = opened(repo, job)
    assert (tree.root / "x.bin").read_text() == "content\n"
    assert tree.notices == ()
    (tree.root / "new.bin").write_text("content\n")
    run(tree.commit("more"))
    run(tree.deliver())
    assert git(repo, "show", f"{tree.branch}:new.bin") == "version https://git-lfs.github.com/spec/v1\n"


@pytest.mark.usefixtures("lfs")
def test_files_that_git_lfs_has_not_fetched_are_told(repo, job):
    tree = opened(repo, job)
    assert "git-lfs has not fetched these here (git lfs pull does): x.bin" in tree.notices
    assert run(tree.changes()).files == ()


def test_git_lfs_is_given_no_address_unless_the_user_says_so(lfs, repo, git):
    """What a `.lfsconfig` of the tree says counts less than what git is given."""
    (repo / ".lfsconfig").write_text("[lfs]\n\turl = https://example.org/\n")
    git(repo, "config", "lfs.url", "https://example.com/")
    git(repo, "config", "lfs.extension.x.clean", f"touch {lfs}/ran")
    repository = run(find_repository(repo))
    assert run(repository.git("config", "--get", "lfs.url")).text == "none\n"
    assert run(repository.git("config", "--get-regexp", "^lfs[.]ext", check=False)).text == ""
    assert run(repository.git("config", "--get", "lfs.storage")).text == f"{repo}/.git/lfs\n"
