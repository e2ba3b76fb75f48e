"""A tree for a job with the files that another job's tree had earlier.

Laws: the new tree begins at the commit, or at the files, that the other job's began at, so its change is the whole one;
of the other job nothing is changed, and the new one needs nothing of it when its tree is made.
"""

from __future__ import annotations

from pathlib import Path

from callboard.coding.git.object_files import link_objects
from callboard.coding.git.open_tree import reopen_tree
from callboard.coding.git.tree import Tree, TreeRecord
from callboard.errors import CallerError


async def fork_tree(source: Path, state: str, directory: Path, job: Path, branch: str, *, fetch: bool = False) -> Tree:
    """Make the tree. Where the process died while it was made, another call makes it whole.

    Args:
        source: The folder of the other job.
        state: What `Tree.keep` gave there.
        directory: As of `open_tree`, and so are those that follow.
        job: The folder of the job that gets the tree.
        branch: The name of its branch.
        fetch: Whether what is not here of the commit is fetched.

    Raises:
        CallerError: The other job's files are gone, or the folder that it copied has changed since.
    """
    other = TreeRecord.load(source)
    if other is None or not other.states.is_dir():
        raise CallerError("the files of the job that it is a fork of are gone", path=str(source))
    is_copy = other.kind == "copy"
    states = TreeRecord.states_in(job)
    await link_objects(other.states / "objects", states / "objects")
    if is_copy:
        await link_objects(Path(other.repository) / "objects", states / "objects")
    tree = await reopen_tree(directory, job, branch, "HEAD" if is_copy else other.base, fetch=fetch)
    if await tree.tree_of(tree.base) != await tree.tree_of(other.base):
        raise CallerError("its files have changed since the job began, so no fork of it can begin", path=str(directory))
    await tree.restore(state)
    return tree
