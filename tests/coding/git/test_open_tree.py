"""Trees of jobs whose process died, at whatever it was doing, opened again."""

import asyncio
import shutil

import pytest

from callboard.coding.git import open_tree as open_tree_module
from callboard.coding.git.open_tree import is_closed, open_tree, reopen_tree
from callboard.coding.git.tree import TreeRecord
from callboard.errors import CallerError

BRANCH = "callboard/build-1"


class Killed(BaseException):
    """The process died."""


def reopen(repo, job):
    return asyncio.run(reopen_tree(repo, job, BRANCH))


def test_a_job_that_has_no_tree_yet_gets_one(repo, job):
    assert reopen(repo, job).branch == BRANCH


async def test_what_was_not_committed_is_there_and_what_dead_processes_left_is_not(repo, job, git):
    tree = await open_tree(repo, job, BRANCH)
    (tree.root / "deep").mkdir()
    (tree.root / "a.py").write_text("committed\n")
    await tree.commit("Half")
    (tree.root / "a.py").write_text("changed\n")
    (tree.root / "new.py").write_text("new\n")
    digest, _ = await tree.inspect()
    for name in ("index.lock", f"refs/heads/{BRANCH}.lock", "branch.bundle.lock", "../branch.bundle.lock"):
        (job / "tree.git" / name).touch()
    for folder in (tree.root, tree.root / "deep"):  # a write that was cut
        (folder / ".callboard-0123456789abcdef").write_text("half\n")
    again = await reopen_tree(repo, job, BRANCH)
    assert (again.base, again.branch, again.root) == (tree.base, tree.branch, tree.root)
    assert await again.inspect() == (digest, ("a.py", "new.py"))
    assert await again.commit("Whole")
    assert len((await again.changes()).commits) == 2
    await again.close(keep=False)
    assert git(repo, "show", f"{BRANCH}:new.py") == "new\n"


@pytest.mark.parametrize("step", ["create_repository", "_copy_configuration", "_check_out", "_open"])
@pytest.mark.parametrize("after", [False, True])
def test_a_tree_whose_making_was_cut_is_made(repo, job, monkeypatch, step, after):
    original = getattr(open_tree_module, step)

    async def cut(*arguments, **named):
        if after:
            await original(*arguments, **named)
        raise Killed

    async def begin():
        with pytest.raises(Killed):
            await open_tree(repo, job, BRANCH)

    with monkeypatch.context() as patched:
        patched.setattr(open_tree_module, step, cut)
        asyncio.run(begin())
    tree = reopen(repo, job)
    assert (tree.root / "a.py").read_text() == "one\nmore\n"
    assert asyncio.run(tree.inspect())[1] == ()
    assert tree.branch == BRANCH


async def test_a_tree_that_was_taken_away_is_checked_out_from_its_branch(repo, job):
    tree = await open_tree(repo, job, BRANCH)
    (tree.root / "a.py").write_text("changed\n")
    await tree.commit("Changed")
    assert not is_closed(job)
    await tree.close(keep=False)
    assert is_closed(job)
    again = await reopen_tree(repo, job, BRANCH)
    assert (again.root / "a.py").read_text() == "changed\n"
    assert not is_closed(job)


def test_a_repository_of_the_job_that_is_gone_is_said(repo, job):
    asyncio.run(open_tree(repo, job, BRANCH))
    shutil.rmtree(job / "tree.git")
    with pytest.raises(CallerError, match="the repository that the job worked in is gone"):
        reopen(repo, job)


def test_a_repository_that_is_gone_or_another_is_said(repo, job, git):
    asyncio.run(open_tree(repo, job, BRANCH))
    moved = repo.rename(repo.with_name("moved"))
    repo.mkdir()
    with pytest.raises(CallerError, match="the repository that the job began in is gone"):
        reopen(repo, job)
    git(repo, "init", "-q")
    with pytest.raises(CallerError, match="not the repository that the job began in"):
        reopen(repo, job)
    assert moved.is_dir()


@pytest.fixture
def folder(tmp_path, home):
    place = tmp_path / "folder"
    place.mkdir()
    (place / "a.txt").write_text("one\n")
    assert home.is_dir()
    return place


async def test_a_copy_goes_on_with_what_was_changed(folder, job):
    tree = await open_tree(folder, job, BRANCH)
    (tree.root / "a.txt").write_text("two\n")
    (job / "tree.git" / "index.lock").touch()
    again = await reopen_tree(folder, job, BRANCH)
    assert again.base == tree.base
    assert (await again.inspect())[1] == ("a.txt",)
    await again.commit("Two")
    await again.close(keep=False)
    assert "+two" in (job / "changes.patch").read_text()
    assert ((await reopen_tree(folder, job, BRANCH)).root / "a.txt").read_text() == "two\n"


async def test_a_copy_that_was_not_whole_is_made_anew(folder, job):
    tree = await open_tree(folder, job, BRANCH)
    record = TreeRecord.load(job)
    TreeRecord(kind="copy", job=record.job, directory=record.directory, branch=record.branch, base="").save()
    shutil.rmtree(tree.root)
    again = await reopen_tree(folder, job, BRANCH)
    assert (again.root / "a.txt").read_text() == "one\n"
