"""A git repository and its working tree, used through the program git.

Laws: each call passes the paths of the repository and of its working tree, so a `.git` that is put into the tree later
has no effect. A model's text is never an option: names are checked, paths come after `--` and are taken literally,
lists of paths go through standard input.

Filters (clean, smudge) are programs of the user's own configuration, named by files of the tree. They run outside of
every sandbox, and many run code of the tree: `python -m nbstripout` imports modules from it. So only the exact filters
of git-lfs run, which run no code of the tree. Files with another filter stay as git has stored them, and are not
staged: their content may be only for the filter, such as a secret.

Git does not read the repository's own configuration, which may name programs. `settings.py` lists the settings that
count, and hides the rest from git.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from callboard.coding.git.files import NEW_FILES, is_generated, large_files, split_deleted
from callboard.coding.git.process import MAX_OUTPUT, GitFailed, GitOutcome, check_git, git_error, run_git
from callboard.coding.git.settings import (
    Setting,
    allowed_protocols,
    allowed_settings,
    check_location,
    format_settings,
    is_partial,
    parse_settings,
    private_common_directory,
    runs_lfs,
    unused_filters,
)
from callboard.errors import CallerError
from callboard.programs import find_program
from callboard.text.display import display_names

Operation: TypeAlias = Literal["", "merge", "rebase", "am", "cherry-pick", "revert", "bisect"]

MAX_DIFF: Final = 16 * 1024 * 1024
"""Bytes of a difference that is shown."""
_MAX_ARGUMENTS: Final = 100_000
"""Bytes of paths that one command line holds."""
NAME: Final = ("Callboard", "callboard@localhost")
"""Name and address for commits if the user has not configured any."""

_OPERATIONS: Final[tuple[tuple[str, Operation], ...]] = (
    ("rebase-apply/applying", "am"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)
# A prompt of the user's shell may show the name.
_SAFE_BRANCH = re.compile(r"[\w./+#=@-]+")
_DUBIOUS: Final = re.compile(r"dubious ownership in repository at '(.*)'")
_REFUSED: Final = re.compile(r"transport '(\w+)' not allowed")
_LOCATE: Final = (
    *("rev-parse", "--path-format=absolute", "--is-inside-work-tree"),
    *("--git-dir", "--git-common-dir", "--show-toplevel", "--show-prefix"),
)
_LISTING_SECONDS: Final = 60.0


class StatusEntry(msgspec.Struct, frozen=True):
    """A path that differs."""

    path: str
    staged: str
    """How the index differs from HEAD, in git's letters."""
    unstaged: str
    """How the tree differs from the index."""

    @property
    def untracked(self) -> bool:
        return self.staged == "?"


class WorkingTreeStatus(msgspec.Struct, frozen=True):
    changes: tuple[StatusEntry, ...]
    cut: bool = False
    """Whether there are more."""


class Commit(msgspec.Struct, frozen=True):
    id: str
    subject: str
    date: str = ""


class NothingToCommit(GitFailed):
    """Nothing is staged, and nothing changed that could be."""


class Repository:
    """A repository with a working tree. Made by `find_repository`.

    Args:
        root: The top of the working tree.
        git_directory: The repository's folder for this working tree.
        common: The folder that all its working trees share, by default the same.
        folder: The folder beneath the root from which the repository was found.
        hidden: Paths in the tree that do not belong to it, such as a borrowed `.venv`.
        only_branch: The one branch that may be worked on, "" for any.
        lfs: The folder of git-lfs for its files, by default in the repository.
    """

    def __init__(
        self,
        root: Path,
        git_directory: Path,
        common: Path | None = None,
        *,
        folder: str = "",
        hidden: Collection[str] = (),
        only_branch: str = "",
        lfs: Path | None = None,
    ) -> None:
        self.root = root
        self.git_directory = git_directory
        self.common = common or git_directory
        self.folder = folder
        self.hidden = frozenset(hidden)
        self.only_branch = only_branch
        self.lfs = lfs or self.common / "lfs"
        self._settings: tuple[Setting, ...] | None = None

    async def git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        check: bool = True,
        limit: int = MAX_OUTPUT,
        online: bool = False,
        environment: Mapping[str, str] | None = None,
        writable: Sequence[Path] = (),
    ) -> GitOutcome:
        """Run git on this repository; see `run_git`.

        Raises:
            GitFailed: The exit code is not 0, and `check` is not off.
        """
        settings = await self.settings()
        with self.environment(settings, online=online) as safe:
            variables = {**safe, **(environment or {})}
            outcome = await run_git(
                arguments,
                self.root,
                environment=variables,
                stdin=stdin,
                limit=limit,
                online=online,
                writable=[
                    *(self.root, self.git_directory, self.common, self.lfs, *_own_directories(variables), *writable)
                ],
                programs=_filter_programs(allowed_settings(settings, online=online)),
            )
        if check and outcome.code:
            raise git_error(outcome, arguments, str(self.root))
        return outcome

    async def settings(self) -> tuple[Setting, ...]:
        """Return the whole configuration, read once: the system's, the user's and the repository's.

        The next Repository sees a change. That is safe: git works with what is allowed of this list, and never reads
        the files themselves.

        Raises:
            GitFailed: The configuration cannot be read.
        """
        if self._settings is None:
            settings = parse_settings((await self._run_configured("config", "--list", "--show-scope", "-z")).items)
            if all(setting.is_of_user for setting in settings):
                # For a repository in a format that it does not know, git lists nothing and exits with 0.
                await self._run_configured("rev-parse", "--git-dir")
            self._settings = settings
        return self._settings

    async def _run_configured(self, *arguments: str) -> GitOutcome:
        """Run a command that starts no program, with the configuration as it is. Raises GitFailed."""
        location = {"GIT_DIR": str(self.git_directory), "GIT_COMMON_DIR": str(self.common)}
        outcome = await run_git(arguments, self.root, environment=location, configured=True, seconds=_LISTING_SECONDS)
        if outcome.code:
            raise git_error(outcome, arguments, str(self.root))
        return outcome

    @contextmanager
    def environment(self, settings: Sequence[Setting], *, online: bool) -> Iterator[dict[str, str]]:
        """Return the variables with which git works on this repository and reads only the allowed settings."""
        allowed = allowed_settings(settings, online=online)
        storage = [Setting("local", "lfs", None, "storage", str(self.lfs))] if runs_lfs(allowed) else []
        with private_common_directory(self.common, format_settings([*storage, *allowed])) as folder:
            yield {
                "GIT_DIR": str(self.git_directory),
                "GIT_WORK_TREE": str(self.root),
                "GIT_COMMON_DIR": str(folder),
                **({"GIT_ALLOW_PROTOCOL": ":".join(allowed_protocols(settings))} if online else {}),
            }

    async def is_partial(self) -> bool:
        """Return whether it is a partial clone, where objects that no checkout needed so far are missing."""
        return is_partial(await self.settings())

    async def configure(self, *arguments: str, check: bool = True) -> GitOutcome:
        """Run `git config` on the repository's own file. Raises GitFailed."""
        arguments = ("config", "--file", str(self.common / "config"), *arguments)
        outcome = await run_git(arguments, self.root, writable=[self.common])
        if check and outcome.code:
            raise git_error(outcome, arguments, str(self.root))
        return outcome

    async def head(self) -> str:
        """Return the id of the commit that is checked out, "" if there is none yet."""
        return await self.commit_id("HEAD")

    async def commit_id(self, name: str) -> str:
        """Resolve a name to a commit's id, "" for none."""
        if name.startswith("-"):
            return ""
        outcome = await self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        return outcome.text.strip() if outcome.code == 0 else ""

    async def branch(self) -> str:
        """Return the branch that is checked out, "" if HEAD is detached."""
        outcome = await self.git("symbolic-ref", "--quiet", "--short", "HEAD", check=False)
        return outcome.text.strip()

    async def branches(self) -> dict[str, str]:
        """Return the local branches and their commits."""
        outcome = await self.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
        pairs = [line.split(" ", 1) for line in outcome.text.split("\n")[:-1]]
        return {name.removeprefix("refs/heads/"): commit for commit, name in pairs}

    async def check_not_checked_out(self, branch: str) -> None:
        """Raise GitFailed if a working tree of the repository has this branch checked out."""
        if (await self.git("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}")).text.strip():
            hint = "check another branch out first"
            raise GitFailed(f"the branch {branch} is checked out", path=str(self.root), hint=hint)

    @property
    def operation(self) -> Operation:
        """Return the unfinished operation in the working tree."""
        for name, operation in _OPERATIONS:
            if (self.git_directory / name).exists():
                return operation
        return ""

    async def status(self, *, every: bool = False) -> WorkingTreeStatus:
        """Return the changes, `every` new file by name, else new folders as one; without those ignored or generated."""
        new = "all" if every else "normal"
        outcome = await self.git("status", "--porcelain=v1", "-z", "--no-renames", f"--untracked-files={new}")
        entries = [StatusEntry(item[3:], item[0], item[1]) for item in outcome.items if len(item) > 3]
        changes = [
            each
            for each in entries
            if not self.is_hidden(each.path) and not (each.untracked and is_generated(each.path))
        ]
        return WorkingTreeStatus(tuple(changes), outcome.cut)

    async def diff(
        self,
        base: str = "",
        branch: str = "",
        files: Sequence[str] = (),
        *,
        limit: int = MAX_DIFF,
        leave_out: Sequence[str] = (),
    ) -> GitOutcome:
        """Return a patch: from HEAD or `base` to the working tree, or from the fork point with `base` to `branch`.

        The patch omits the files in `leave_out`. Raises GitFailed for a name that is not a commit.
        """
        commits = await self._diff_range(base, branch)
        excluded = [f":(top,literal,exclude){each}" for each in leave_out]
        if sum(map(len, excluded)) > _MAX_ARGUMENTS:
            raise GitFailed("too many files are to be left out", path=str(self.root), hint="name the files to compare")
        return await self.git("diff", commits, "--", *_pathspecs(files), *excluded, limit=limit)

    async def diff_names(self, base: str = "", branch: str = "", files: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the files that differ, a moved one by both names. Raises GitFailed as `diff` does."""
        commits = await self._diff_range(base, branch)
        outcome = await self.git("diff", "--name-only", "--no-renames", "-z", commits, "--", *_pathspecs(files))
        return tuple(outcome.items)

    async def _diff_range(self, base: str, branch: str) -> str:
        for name in (base, branch):
            if name and not await self.commit_id(name):
                raise GitFailed(f"unknown branch or commit {name!r}", path=str(self.root))
        if branch:
            return f"{base or 'HEAD'}...{branch}"
        # Without a commit, the difference to the empty tree.
        return base or await self.head() or (await self.git("hash-object", "-t", "tree", "--stdin")).text.strip()

    async def log(self, limit: int = 10, since: str = "") -> tuple[Commit, ...]:
        """Return the last commits, the newest first; with `since` only those after that commit."""
        if not since and not await self.head():
            return ()
        commits = f"{since}..HEAD" if since else "HEAD"
        outcome = await self.git("log", f"--max-count={limit}", "-z", "--format=%H %cs %s", commits, "--")
        fields = [item.split(" ", 2) for item in outcome.text.split("\0") if item]
        return tuple([Commit(each[0], each[2] if len(each) > 2 else "", each[1]) for each in fields])

    async def new_files(self) -> tuple[str, ...]:
        """Return the untracked files, without ignored files, generated files and other repositories in the tree."""
        outcome = await self.git("ls-files", "-z", *NEW_FILES)
        return tuple([each for each in outcome.items if not each.endswith("/") and not self.is_hidden(each)])

    async def tracked_files(self, path: str) -> tuple[str, ...]:
        """Return the files that the last commit has at this path or below it."""
        environment = {"GIT_LITERAL_PATHSPECS": "1"}
        if not await self.head():
            return ()
        outcome = await self.git("ls-tree", "-r", "-z", "--name-only", "HEAD", "--", path, environment=environment)
        return tuple(outcome.items)

    async def stage(self, files: Sequence[str] | None = None, leave_out: Collection[str] = ()) -> tuple[str, ...]:
        """Put files into the index as they are.

        Args:
            files: Files and folders, as git writes their paths; by default all changed files.
            leave_out: Files that are not staged.

        Returns:
            Paths that were also left out: other repositories in the tree, files with a filter that is not run, and
            files of more than 50 MB.
        """
        if files is not None and not files:
            return ()
        changes = (await self.status(every=True)).changes
        paths = [each.path for each in changes if each.unstaged != " " and each.path not in leave_out]
        if files is not None:
            paths = [path for path in paths if any(is_below(path, each) for each in files)]
        nested = [path for path in paths if path.endswith("/")]
        plain = [path for path in paths if not path.endswith("/")]
        left_out = await self._with_unused_filter(plain) | {*await asyncio.to_thread(large_files, self.root, plain)}
        await self.update_index([path for path in plain if path not in left_out])
        return (*nested, *sorted(left_out))

    async def update_index(self, paths: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Write into the index what the working tree has at these paths: their content, or that they are gone."""
        existing, deleted = await asyncio.to_thread(split_deleted, self.root, paths)
        for some, flags in ((deleted, ("--force-remove",)), (existing, ("--add", "--remove", "--replace"))):
            if some:
                lines = b"".join([os.fsencode(path) + b"\0" for path in some])
                await self.git("update-index", *flags, "-z", "--stdin", stdin=lines, environment=environment)

    async def commit(self, message: str, files: Sequence[str] | None = None, leave_out: Collection[str] = ()) -> str:
        """Commit what is staged, and `files`; where nothing is staged, all that changed but `leave_out`.

        Returns:
            The commit's id.

        Raises:
            NothingToCommit: Nothing is staged, and nothing that can be staged has changed.
        """
        left_out: tuple[str, ...] = ()
        if files is not None or not await self._is_staged():
            left_out = await self.stage(files, leave_out)
        if not await self._is_staged() and self.operation != "merge":
            but = f" but {display_names(left_out)}" if left_out else ""
            raise NothingToCommit(f"nothing to commit{but}", path=str(self.root))
        arguments = ("commit", "--quiet", "--no-verify", "--cleanup=whitespace", "--file=-")
        await self.git(
            *arguments, stdin=message.encode("utf-8", "replace"), environment=await self.committer_variables()
        )
        return await self.head()

    async def create_branch(self, name: str, at: str = "HEAD") -> None:
        """Make a branch. Raises GitFailed for a name that cannot be one, is taken, or means something in a shell."""
        await self.check_branch(name)
        if not _SAFE_BRANCH.fullmatch(name):
            raise GitFailed(f"{name!r} is no name for a branch", hint="letters, digits, - and / make one")
        await self.git("branch", "--no-track", name, at)

    async def check_branch(self, name: str) -> None:
        """Raise GitFailed if the name is not a valid branch name."""
        valid = not name.startswith("-") and "@{" not in name and name not in ("@", "HEAD")
        if not valid or (await self.git("check-ref-format", f"refs/heads/{name}", check=False)).code:
            raise GitFailed(f"{name!r} is no name for a branch", hint="letters, digits, - and / make one")

    async def switch(self, name: str) -> None:
        """Check a branch out. Changes that are not committed stay, or git refuses. Raises GitFailed."""
        await self.check_branch(name)
        await self.git("checkout", "--quiet", "--no-guess", "--no-recurse-submodules", name, "--")

    async def restore(self, paths: Sequence[str]) -> None:
        """Put files back as they are in the last commit."""
        environment = {"GIT_LITERAL_PATHSPECS": "1"}
        await self.git("checkout", "--quiet", "HEAD", "--", *paths, environment=environment)

    async def push(self, branch: str, remote: str = "origin") -> str:
        """Push a branch, never by force; return git's message. Raises GitFailed.

        Only here, and where a job's tree is made, does git reach another machine, with the user's own keys.
        """
        remotes = remote_names(await self.settings())
        if remote not in remotes:
            raise GitFailed(f"there is no remote {remote!r}", hint=f"there is {display_names(remotes) or 'none'}")
        if branch not in await self.branches():
            raise GitFailed(f"there is no branch {branch!r}", path=str(self.root))
        refs = f"refs/heads/{branch}:refs/heads/{branch}"
        outcome = await self.git("push", "--no-verify", "--", remote, refs, online=True, check=False)
        if outcome.code:
            raise _push_error(outcome, str(self.root))
        await self.configure(f"branch.{branch}.remote", remote)
        await self.configure(f"branch.{branch}.merge", f"refs/heads/{branch}")
        return outcome.error

    async def _with_unused_filter(self, paths: Sequence[str]) -> set[str]:
        """Return the paths with a filter that is configured and not run."""
        filters = unused_filters(await self.settings())
        if not filters or not paths:
            return set()
        lines = b"".join([os.fsencode(path) + b"\0" for path in paths])
        values = (await self.git("check-attr", "-z", "--stdin", "filter", stdin=lines)).items
        return {path for path, value in zip(values[::3], values[2::3], strict=False) if value in filters}

    async def _is_staged(self) -> bool:
        return (await self.git("diff", "--cached", "--quiet", check=False)).code == 1

    async def committer_variables(self) -> dict[str, str]:
        """Return the variables for the committer: none if the user's settings have a name, else ours."""
        allowed = allowed_settings(await self.settings(), online=False)
        known = {setting.key: (setting.value or "").strip() for setting in allowed}
        return {
            f"GIT_{role}_{key.upper()}": own
            for key, own in zip(("name", "email"), NAME, strict=True)
            for role in ("AUTHOR", "COMMITTER")
            if not known.get(f"user.{key}")
        }

    def is_hidden(self, path: str) -> bool:
        """Return whether a path is in `hidden`."""
        return any(is_below(path, each) for each in self.hidden)


async def find_repository(directory: Path) -> Repository | None:
    """Return the repository that contains a directory, or None.

    Raises CallerError if git is missing or too old, if the repository is bare or broken, and if the directory is inside
    the repository's own folder.
    """
    await check_git()
    outcome = await run_git(_LOCATE, directory, configured=True)
    inside, *lines = outcome.text.split("\n")
    # Git prints what it can before it fails: in a bare repository there is no top.
    if inside == "false":
        raise _bare_error(directory)
    if outcome.code:
        if "not a git repository (or any" in outcome.error:
            return None
        raise _find_error(outcome, directory)
    # An empty line follows the fourth line.
    if len(lines) != 5 or not all(lines[:3]):
        raise CallerError("the path of the repository cannot be used: it has a line break", path=str(directory))
    git_directory, common, root = (Path(each) for each in lines[:3])
    await asyncio.to_thread(check_location, directory, root, git_directory, common)
    return Repository(root, git_directory, common, folder=lines[3].rstrip("/"))


async def create_repository(root: Path, git_directory: Path, source: Repository | None = None) -> None:
    """Make a private repository for a tree, outside of the tree; it restores files byte for byte.

    Objects of the repository `source` are not stored twice.
    """
    location = {"GIT_DIR": str(git_directory), "GIT_WORK_TREE": str(root)}
    arguments = ["init", "--quiet", "--template="]
    await run_git(arguments, root, environment=location, writable=[git_directory.parent])
    for folder in ("info", "objects/info"):
        (git_directory / folder).mkdir(exist_ok=True)
    # No line ending, filter or keyword is changed on the way.
    (git_directory / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    if source is not None:
        (git_directory / "objects" / "info" / "alternates").write_text(f"{source.common / 'objects'}\n")


def remote_names(settings: Iterable[Setting]) -> list[str]:
    """Return the remotes that are configured."""
    named = [each.subsection for each in settings if each.section == "remote" and each.name in ("url", "pushurl")]
    return [*dict.fromkeys([name for name in named if name])]


def _find_error(outcome: GitOutcome, directory: Path) -> CallerError:
    """Return the reason why git refuses the repository that it found."""
    if "safe.bareRepository" in outcome.error:
        return _bare_error(directory)
    if match := _DUBIOUS.search(outcome.error):
        return CallerError(
            "dubious ownership: this repository belongs to another user, whose configuration git would follow",
            path=match[1],
            hint=f"if you trust them: git config --global --add safe.directory {shlex.quote(match[1])}",
        )
    return git_error(outcome, _LOCATE, str(directory))


def _bare_error(directory: Path) -> CallerError:
    return CallerError(
        "this is a bare repository, or the inside of one: it has no files",
        path=str(directory),
        hint="clone it, and work in the clone",
    )


def _push_error(outcome: GitOutcome, path: str) -> GitFailed:
    """Git's error, with a hint where the protocol is not allowed."""
    error = git_error(outcome, ["push"], path)
    if match := _REFUSED.search(outcome.error):
        name = match[1]
        hint = f"what is there would run here; if you trust it: git config --global protocol.{name}.allow always"
        return GitFailed(error.message, path=path, hint=hint)
    return error


def _own_directories(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders of an index, or of objects, that the environment names."""
    index, objects = environment.get("GIT_INDEX_FILE"), environment.get("GIT_OBJECT_DIRECTORY")
    return [*([Path(index).parent] if index else []), *([Path(objects)] if objects else [])]


def _filter_programs(settings: Iterable[Setting]) -> list[Path]:
    """Return the programs that git runs for these settings: git-lfs, through a shell."""
    if not runs_lfs(settings):
        return []
    programs = (find_program("git-lfs"), find_program("sh"), "/bin/sh")
    return [Path(each) for each in programs if each]


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is this one, or in this folder; "." is the root."""
    return folder == "." or path in (folder, f"{folder}/") or path.startswith(f"{folder}/")


def _pathspecs(files: Iterable[str]) -> list[str]:
    return [":(top)" if each == "." else f":(top,literal){each}" for each in files]
