"""The tool `git`: read the repository's history, and commit.

Law: every path is beneath the root of the workspace. A job stays on its branch. Nothing leaves the machine. Files that
the rules deny to a call are not in a diff, not staged and not restored.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from callboard.coding.git.process import GitFailed
from callboard.coding.git.repository import Repository, find_repository, is_below
from callboard.coding.tools.action_tool import ActionTool, action
from callboard.coding.workspace.directory_walk import describe_omitted
from callboard.coding.workspace.workspace import Workspace, get_workspace
from callboard.text.display import display_names
from callboard.tools import Context, Subject

MAX_DIFF: Final = 60_000
"""Bytes of a patch that a model gets."""
MAX_LOG: Final = 100
MAX_STATUS: Final = 200
"""Files that are listed."""
SECONDS: Final = 600.0
SUBJECTS: Final[dict[str, Subject]] = {"files": "further_path"}
"""The arguments that a permission rule with a path pattern is about; otherwise the rule for the action decides."""


async def find_workspace_repository(workspace: Workspace) -> Repository | None:
    """Return the repository of a workspace; for a job, its tree's repository. Raises CallerError."""
    return workspace.tree.repository if workspace.tree else await find_repository(workspace.root)


@action(timeout=SECONDS)
async def git_status(context: Context) -> str:
    """Shows the branch, and which files changed."""
    repository = await _repository(context)
    branch = await repository.branch()
    lines = [f"On branch {branch}" if branch else f"HEAD detached at {(await repository.head())[:7]}"]
    if repository.operation:
        lines.append(f"A {repository.operation} is under way")
    status = await repository.status()
    lines += [f"{each.staged}{each.unstaged} {display_names([each.path])}" for each in status.changes[:MAX_STATUS]]
    if len(status.changes) > MAX_STATUS:
        lines.append(f"and {len(status.changes) - MAX_STATUS} more")
    return "\n".join(lines if status.changes else [*lines, "nothing to commit, working tree clean"])


@action(timeout=SECONDS, cli={"-b": "base"}, subjects=SUBJECTS)
async def git_diff(
    context: Context,
    base: Annotated[str, "The branch or commit to compare with, by default the last commit"] = "",
    branch: Annotated[str, "The branch whose changes since base are shown, instead of those of the files"] = "",
    files: Annotated[Sequence[str], "Only these files or folders"] = (),
) -> str:
    """Shows what changed, as a patch."""
    workspace, repository = get_workspace(context), await _repository(context)
    paths = _paths(workspace, repository, files)
    denied = _denied_paths(context, repository, await repository.diff_names(base, branch, paths))
    outcome = await repository.diff(base, branch, paths, limit=MAX_DIFF, leave_out=denied)
    text = outcome.output.decode("utf-8", "replace")
    if outcome.cut:
        text = f"{text.rpartition(chr(10))[0]}\n[the patch goes on: ask for single files]"
    new = [] if branch else [path for path in await repository.new_files() if _is_within(path, paths)]
    also = f"New files, not in the patch: {display_names(new, 20)}" if new else ""
    without = f"({describe_omitted(len(denied))})" if denied else ""
    return "\n".join([part for part in (text.rstrip("\n"), also, without) if part]) or "no changes"


@action(timeout=SECONDS, cli={"-n": "limit"})
async def git_log(context: Context, limit: Annotated[int, "How many commits"] = 10) -> str:
    """Shows the last commits, the newest first."""
    repository = await _repository(context)
    commits = await repository.log(min(max(limit, 1), MAX_LOG))
    return "\n".join([f"{each.id[:7]} {each.date} {each.subject}" for each in commits]) or "no commits yet"


@action(timeout=SECONDS, approval=True, subjects=SUBJECTS)
async def git_add(context: Context, files: Annotated[Sequence[str], "The files or folders; . is all"]) -> str:
    """Stages files for the next commit."""
    workspace, repository = get_workspace(context), await _repository(context)
    paths = _paths(workspace, repository, files)
    denied = await _denied_changes(context, repository)
    skipped = await repository.stage(paths or None, denied)
    staged = [each for each in (await repository.status(every=True)).changes if each.staged not in " ?"]
    within = [each.path for each in staged if _is_within(each.path, paths)]
    summary = f"Staged {display_names(within, 20)}" if within else "Nothing to stage there: these files did not change"
    why = "larger than 50 MB, another repository, or for a filter that is not run here"
    left_out = f"\nLeft out: {display_names(skipped)} ({why})" if skipped else ""
    omitted = f"\n{describe_omitted(len(denied))}: {display_names(denied)}" if denied else ""
    return f"{summary}{left_out}{omitted}"


@action(timeout=SECONDS, approval=True, cli={"-m": "message"})
async def git_commit(context: Context, message: Annotated[str, "What was changed and why"]) -> str:
    """Commits what is staged; where nothing is staged, all that changed."""
    repository = await _repository(context)
    if not message.strip():
        raise ValueError("a commit needs a message")
    denied = await _denied_changes(context, repository)
    commit = await repository.commit(message, leave_out=denied)
    remaining = [each.path for each in (await repository.status()).changes]
    also = f"\nNot in it: {display_names(remaining)}" if remaining else ""
    subject = message.strip().splitlines()[0]
    return f"[{await repository.branch() or 'detached HEAD'} {commit[:7]}] {subject}{also}"


@action(timeout=SECONDS, approval=True, cli={"-u": "remote"})
async def git_push(
    branch: Annotated[str, "The branch, by default the current one"] = "",  # noqa: ARG001  # models know it
    remote: Annotated[str, "Where to"] = "origin",  # noqa: ARG001
) -> str:
    """Pushes a branch to a remote."""
    raise PermissionError("nothing is pushed from here: the user pushes with --push")


@action(timeout=SECONDS, approval=True, subjects={"branch": "further_path"})
async def git_checkout(
    context: Context, branch: Annotated[str, "The branch; or a file, which is put back as in the last commit"]
) -> str:
    """Switches to a branch, or puts a file back as it is in the last commit."""
    workspace, repository = get_workspace(context), await _repository(context)
    if branch in await repository.branches():
        if repository.only_branch and branch != repository.only_branch:
            raise PermissionError(f"this work stays on its branch {repository.only_branch}")
        await repository.switch(branch)
        return f"Switched to branch '{branch}'"
    (path,) = _paths(workspace, repository, [branch]) or ("",)
    tracked = await repository.tracked_files(path) if path else ()
    if not tracked:
        raise GitFailed(f"{branch!r} is neither a branch nor a file of the last commit")
    if denied := _denied_paths(context, repository, tracked):
        raise PermissionError(f"a rule keeps this call from {display_names(denied)}")
    await repository.restore([path])
    return f"{display_names([path])} is as in the last commit"


@action(timeout=SECONDS, approval=True, aliases={"name": "branch"})
async def git_branch(context: Context, branch: Annotated[str, "Its name"]) -> str:
    """Makes a branch and switches to it."""
    repository = await _repository(context)
    if repository.only_branch:
        return f"You are on branch {repository.only_branch}, which was made for this work: commit there."
    await repository.create_branch(branch)
    await repository.switch(branch)
    return f"Switched to a new branch '{branch}'"


git = ActionTool(
    "git",
    "Looks into the repository's history, and commits.",
    {
        "status": git_status,
        "diff": git_diff,
        "log": git_log,
        "add": git_add,
        "commit": git_commit,
        "push": git_push,
        "checkout": git_checkout,
        "create_branch": git_branch,
    },
    default="status",
    approval=True,
    timeout=SECONDS,
    subjects={"action": "command"},
)


async def _repository(context: Context) -> Repository:
    workspace = get_workspace(context)
    repository = await find_workspace_repository(workspace)
    if repository is None:
        raise GitFailed("not a git repository", path=str(workspace.root), hint="git init makes one")
    return repository


def _paths(workspace: Workspace, repository: Repository, files: Sequence[str]) -> list[str]:
    """Paths relative to the repository. Raises PermissionError for one outside of the root."""
    relative = []
    for each in files:
        path = Path(os.path.normpath(workspace.root / each))
        if not path.is_relative_to(workspace.root) or not path.is_relative_to(repository.root):
            raise PermissionError(f"{each!r} is outside of {str(workspace.root)!r}")
        relative.append(str(path.relative_to(repository.root)))
    return relative


def _denied_paths(context: Context, repository: Repository, paths: Sequence[str]) -> list[str]:
    """Return the paths, as git writes them, that the rules deny to a call."""
    workspace = get_workspace(context)
    prefix = os.path.relpath(repository.root, workspace.root)

    def is_permitted(path: str) -> bool:
        own = os.path.normpath(f"{prefix}/{path}")
        try:
            names = [own, *workspace.aliases(own)]
        except OSError:  # it was deleted, or is not beneath the root
            names = [own]
        return all(map(context.permits, names))

    return [path for path in paths if not is_permitted(path)]


async def _denied_changes(context: Context, repository: Repository) -> list[str]:
    return _denied_paths(context, repository, [each.path for each in (await repository.status(every=True)).changes])


def _is_within(path: str, folders: Sequence[str]) -> bool:
    return not folders or any(is_below(path, each) for each in folders)
