"""A tree with the files that another job's tree had earlier."""

import asyncio

import pytest

from callboard.coding.git.open_tree import fork_tree, open_tree
from callboard.errors import CallerError

BRANCH = "callboard/build-1"


async def work(place, job):
    """The states of a job's tree: after a change, and after another one that is committed."""
    tree = await open_tree(place, job, BRANCH)
    (tree.root / "a.py").write_text("one\n")
    (tree.root / "new").mkdir()
    (tree.root / "new" / "file.py").write_text("new\n")
    first = await tree.keep()
    (tree.root / "a.py").unlink()
    (tree.root / "new" / "file.py").write_text("newer\n")
    await tree.commit("Half")
    return tree, [first, await tree.keep()]


@pytest.fixture(params=["repository", "folder"])
def place(request, repo, tmp_path):
    if request.param == "repository":
        return repo
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.py").write_text("zero\n")
    (folder / "b.py").write_text("stays\n")
    return folder


@pytest.mark.parametrize("is_closed", [False, True])
async def test_the_files_are_as_they_were_and_the_other_job_keeps_its_own(place, job, is_closed):
    tree, states = await work(place, job)
    if is_closed:
        await tree.close(keep=False)
    names = []
    for number, state in enumerate([states[0], states[1], states[0]]):
        fork = job.with_name(f"fork-{number}")
        fork.mkdir()
        # Twice, as where the process died in between.
        await fork_tree(job, state, place, fork, f"{BRANCH}-{number}")
        forked = await fork_tree(job, state, place, fork, f"{BRANCH}-{number}")
        read = {name: (forked.root / name) for name in ("a.py", "new/file.py")}
        names.append({name: path.read_text() for name, path in read.items() if path.exists()})
        assert (await forked.changes()).files == ("a.py", "new/file.py")
        assert await forked.keep() == state
        assert await forked.commit("All of it")
        # A fork of the fork needs nothing of the first job.
        again = job.with_name(f"again-{number}")
        again.mkdir()
        assert await (await fork_tree(fork, state, place, again, f"{BRANCH}-again")).keep() == state
    assert names == [
        {"a.py": "one\n", "new/file.py": "new\n"},
        {"new/file.py": "newer\n"},
        {"a.py": "one\n", "new/file.py": "new\n"},
    ]
    assert is_closed or (tree.root / "new" / "file.py").read_text() == "newer\n"


@pytest.mark.usefixtures("home")
def test_a_folder_that_has_changed_since_cannot_be_forked(tmp_path, job):
    place = tmp_path / "plain"
    place.mkdir()
    (place / "a.py").write_text("zero\n")

    async def scenario():
        _, states = await work(place, job)
        (place / "a.py").write_text("by the user\n")
        with pytest.raises(CallerError, match="have changed since"):
            await fork_tree(job, states[0], place, job.with_name("fork"), BRANCH)

    job.with_name("fork").mkdir()
    asyncio.run(scenario())


def test_a_job_whose_folder_is_gone_cannot_be_forked(repo, job):
    with pytest.raises(CallerError, match="are gone"):
        asyncio.run(fork_tree(job.with_name("gone"), "0" * 40, repo, job, BRANCH))
