"""A git repository and its working tree, asked through the program git.

Owns what is asked of git, and what is made of its answers. How git is run is `git_program`'s business.
Law: the repository is the one that was found: git is told where it and its working tree are, so a `.git` that is
put into the tree later means nothing. What a model wrote is never an option: names are checked, paths come after
`--` and are taken literally, lists of paths go through standard input.

Filters (clean, smudge) are those of the user's own configuration, named by files of the tree. Theirs run outside of
every sandbox, and many run something of the tree (`python -m nbstripout` imports what lies beside it), so none is
run but those of git-lfs, word for word, which run nothing of it. Files that another filter is for stay as git has
them stored, and are not staged: what is in them may be meant for the filter only, such as a secret.

Git does not read the repository's own configuration, which may name programs: `git_settings` says what of it counts,
and `git_directory` how git is kept from the rest.
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

from callboard.coding.git.directory import PrivateDirectories, check_place
from callboard.coding.git.process import (
    MAX_OUTPUT,
    GitFailed,
    GitOutcome,
    check_git,
    failed,
    run_git,
)
from callboard.coding.git.settings import (
    Setting,
    allowed_protocols,
    allowed_settings,
    format_settings,
    is_partial,
    parse_settings,
    runs_lfs,
    unused_filters,
)
from callboard.coding.git.tree_state import NEW_FILES, is_generated, large_files, put
from callboard.errors import CallerError
from callboard.programs import find_program
from callboard.text.display import display_names

Operation: TypeAlias = Literal["", "merge", "rebase", "am", "cherry-pick", "revert", "bisect"]

MAX_DIFF: Final = 16 * 1024 * 1024
"""Bytes of a difference that is shown."""
_MAX_ARGUMENTS: Final = 100_000
"""Bytes of paths that one command line holds."""
NAME: Final = ("Callboard", "callboard@localhost")
"""Who commits where the user has told git no name."""

_OPERATIONS: Final[tuple[tuple[str, Operation], ...]] = (
    ("rebase-apply/applying", "am"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)
# They read neither the index nor a file of the working tree, so what is configured of those does not matter.
_PLUMBING: Final = frozenset(
    {
        *("branch", "check-ref-format", "config", "diff-tree", "for-each-ref", "hash-object", "log", "remote"),
        *("rev-list", "rev-parse", "symbolic-ref", "update-ref"),
    }
)
# A prompt of the user's shell may show the name.
_PLAIN = re.compile(r"[\w./+#=@-]+")
_DUBIOUS: Final = re.compile(r"dubious ownership in repository at '(.*)'")
_REFUSED: Final = re.compile(r"transport '(\w+)' not allowed")
_WHERE: Final = (
    *("rev-parse", "--path-format=absolute", "--is-inside-work-tree"),
    *("--git-dir", "--git-common-dir", "--show-toplevel", "--show-prefix"),
)
_PLACES: Final = 5
"""Lines behind the first one in an answer to `_WHERE`; the last is empty."""
_SHELL: Final = "/bin/sh"
_LISTING_SECONDS: Final = 60.0


class Change(msgspec.Struct, frozen=True):
    """A path that differs: how the index differs from HEAD and how the tree from the index, in git's letters."""

    path: str
    staged: str
    unstaged: str

    @property
    def untracked(self) -> bool:
        return self.staged == "?"


class Status(msgspec.Struct, frozen=True):
    """The changes of a working tree; `cut` says that there are more."""

    changes: tuple[Change, ...]
    cut: bool = False


class Commit(msgspec.Struct, frozen=True):
    id: str
    subject: str
    date: str = ""


class Repository:
    """A repository with a working tree. Made by `find_repository`.

    `root` is the top of the working tree, `git_directory` the repository's folder for it, `common` the one that all
    its working trees share. `hidden` are places in the tree that are none of it, such as a borrowed `.venv`.
    `only_branch` is the one branch that may be worked on, "" for any. `folder` is where it was found from, beneath
    the root.
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
    ) -> None:
        self.root = root
        self.git_directory = git_directory
        self.common = common or git_directory
        self.folder = folder
        self.hidden = frozenset(hidden)
        self.only_branch = only_branch
        self._directories = PrivateDirectories(self.common)
        self._settings: tuple[Setting, ...] | None = None
        self._configured: tuple[object, ...] = ()
        """What the files looked like that `_settings` were read from."""
        self._valid: set[str] = set()
        """Names that git was asked about, and takes for branches."""

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
        settings = await self.settings(again=arguments[0] not in _PLUMBING)
        with self.closed(settings, online=online) as closed:
            variables = {**closed, **(environment or {})}
            outcome = await run_git(
                arguments,
                self.root,
                environment=variables,
                stdin=stdin,
                limit=limit,
                online=online,
                writable=[self.root, self.git_directory, self.common, *_own_places(variables), *writable],
                programs=_programs(allowed_settings(settings, online=online)),
            )
        if check and outcome.code:
            raise failed(outcome, arguments, str(self.root))
        return outcome

    async def settings(self, *, again: bool = True) -> tuple[Setting, ...]:
        """All that is configured, whoever did; `again` looks anew where a file of configuration has changed.

        A change of a file that another one includes is seen by the next Repository. That is safe: git works with what
        is allowed of this list, and never reads the files themselves.

        Raises:
            GitFailed: The configuration cannot be read.
        """
        configured = self._configuration_state() if again or self._settings is None else self._configured
        if self._settings is None or configured != self._configured:
            self._configured = configured
            found = parse_settings((await self._ask("config", "--list", "--show-scope", "-z")).items)
            if all(setting.is_of_user for setting in found):
                # Of a repository in a format that it does not know git lists nothing, without a word.
                await self._ask("rev-parse", "--git-dir")
            self._settings = found
        return self._settings

    def _configuration_state(self) -> tuple[object, ...]:
        """What tells whether a file of configuration was changed. HEAD is one: what is included may depend on it."""
        home = Path(os.environ.get("HOME", "/"))
        users = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        places = (
            self.common / "config",
            self.git_directory / "config.worktree",
            self.git_directory / "HEAD",
            home / ".gitconfig",
            users / "git" / "config",
            Path("/etc/gitconfig"),
        )
        return tuple([_state(place) for place in places])

    async def _ask(self, *arguments: str) -> GitOutcome:
        """Ask git what runs nothing, with the configuration as it is. Raises GitFailed."""
        place = {"GIT_DIR": str(self.git_directory), "GIT_COMMON_DIR": str(self.common)}
        asked = await run_git(arguments, self.root, environment=place, configured=True, seconds=_LISTING_SECONDS)
        if asked.code:
            raise failed(asked, arguments, str(self.root))
        return asked

    @contextmanager
    def closed(self, settings: Sequence[Setting], *, online: bool) -> Iterator[dict[str, str]]:
        """The variables with which git works on this repository, and of its configuration reads what is harmless."""
        allowed = allowed_settings(settings, online=online)
        storage = [Setting("local", "lfs", None, "storage", str(self.common / "lfs"))] if runs_lfs(allowed) else []
        # What is for other machines may hold a password.
        with self._directories.open(format_settings([*storage, *allowed]), keep=not online) as folder:
            yield {
                "GIT_DIR": str(self.git_directory),
                "GIT_WORK_TREE": str(self.root),
                "GIT_COMMON_DIR": str(folder),
                **({"GIT_ALLOW_PROTOCOL": ":".join(allowed_protocols(settings))} if online else {}),
            }

    async def filters(self) -> tuple[str, ...]:
        """The filters that are configured and not run."""
        return unused_filters(await self.settings())

    async def is_partial(self) -> bool:
        """Whether it is a partial clone, in which what no checkout needed so far is missing."""
        return is_partial(await self.settings(again=False))

    async def configure(self, *arguments: str, check: bool = True) -> GitOutcome:
        """Run `git config` on the repository's own file. Raises GitFailed."""
        arguments = ("config", "--file", str(self.common / "config"), *arguments)
        outcome = await run_git(arguments, self.root, writable=[self.common])
        if check and outcome.code:
            raise failed(outcome, arguments, str(self.root))
        return outcome

    # What it is

    async def head(self) -> str:
        """The id of the commit that is checked out, "" where there is none yet."""
        return await self.commit_id("HEAD")

    async def commit_id(self, name: str) -> str:
        """The commit that a name stands for, "" for none."""
        if name.startswith("-"):
            return ""
        outcome = await self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        return outcome.text.strip() if outcome.code == 0 else ""

    async def branch(self) -> str:
        """The branch that is checked out, "" where HEAD is detached."""
        outcome = await self.git("symbolic-ref", "--quiet", "--short", "HEAD", check=False)
        return outcome.text.strip()

    async def branches(self) -> dict[str, str]:
        """The local branches and their commits."""
        outcome = await self.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
        pairs = [line.split(" ", 1) for line in outcome.text.splitlines()]
        return {name.removeprefix("refs/heads/"): commit for commit, name in pairs}

    @property
    def operation(self) -> Operation:
        """What is under way in the working tree."""
        for name, operation in _OPERATIONS:
            if (self.git_directory / name).exists():
                return operation
        return ""

    async def status(self, *, every: bool = False) -> Status:
        """The changes, `every` new file by name, else new folders as one; without those ignored or generated."""
        new = "all" if every else "normal"
        arguments = ("status", "--porcelain=v1", "-z", "--no-renames", f"--untracked-files={new}")
        outcome = await self.git(*arguments)
        found = [Change(item[3:], item[0], item[1]) for item in outcome.items if len(item) > 3]
        seen = [each for each in found if not (each.untracked and is_generated(each.path))]
        return Status(tuple([each for each in seen if not self.is_hidden(each.path)]), outcome.cut)

    async def is_dirty(self) -> bool:
        return bool((await self.status()).changes)

    async def diff(
        self,
        base: str = "",
        branch: str = "",
        files: Sequence[str] = (),
        *,
        limit: int = MAX_DIFF,
        leave_out: Sequence[str] = (),
    ) -> GitOutcome:
        """The difference as a patch: of the working tree to HEAD or `base`, or of `branch` since it left `base`.

        `files` are files and folders, by default all; `leave_out` those that are not in it. Raises GitFailed for a
        name that is no commit.
        """
        one = await self._compared(base, branch)
        refused = [f":(top,literal,exclude){each}" for each in leave_out]
        if sum(map(len, refused)) > _MAX_ARGUMENTS:
            raise GitFailed("too many files are to be left out", path=str(self.root), hint="name the files to compare")
        return await self.git("diff", one, "--", *_pathspecs(files), *refused, limit=limit)

    async def diff_names(self, base: str = "", branch: str = "", files: Sequence[str] = ()) -> tuple[str, ...]:
        """The files that differ, those that are moved by both names. Raises GitFailed as `diff` does."""
        one = await self._compared(base, branch)
        outcome = await self.git("diff", "--name-only", "--no-renames", "-z", one, "--", *_pathspecs(files))
        return tuple(outcome.items)

    async def _compared(self, base: str, branch: str) -> str:
        for name in (base, branch):
            if name and not await self.commit_id(name):
                raise GitFailed(f"{name!r} is no branch or commit", path=str(self.root))
        return f"{base or 'HEAD'}...{branch}" if branch else base or await self.head() or await self._nothing()

    async def log(self, limit: int = 10, since: str = "") -> tuple[Commit, ...]:
        """The last commits, the newest first; of those since a commit if given."""
        if not since and not await self.head():
            return ()
        names = [f"{since}..HEAD"] if since else ["HEAD"]
        outcome = await self.git("log", f"--max-count={limit}", "-z", "--format=%H %cs %s", *names, "--")
        found = [item.split(" ", 2) for item in outcome.text.split("\0") if item]
        return tuple([Commit(each[0], each[2] if len(each) > 2 else "", each[1]) for each in found])

    async def new_files(self) -> tuple[str, ...]:
        """The files that git does not know, but for ignored and generated ones, and other repositories in the tree."""
        outcome = await self.git("ls-files", "-z", *NEW_FILES)
        return tuple([each for each in outcome.items if not each.endswith("/") and not self.is_hidden(each)])

    async def tracked(self, path: str) -> tuple[str, ...]:
        """The files that the last commit has at this path or below it."""
        environment = {"GIT_LITERAL_PATHSPECS": "1"}
        if not await self.head():
            return ()
        found = await self.git("ls-tree", "-r", "-z", "--name-only", "HEAD", "--", path, environment=environment)
        return tuple(found.items)

    # What changes it

    async def stage(self, files: Sequence[str] | None = None, leave_out: Collection[str] = ()) -> tuple[str, ...]:
        """Puts files as they are into the index, by default all that changed; gives those that it left out.

        `files` are files and folders, as git writes their paths, `leave_out` files. Left out are also other repositories
        in the tree, files that a filter is for which is not run, and files of more than 50 MB.
        """
        if files is not None and not files:
            return ()
        changes = (await self.status(every=True)).changes
        paths = [each.path for each in changes if each.unstaged != " " and each.path not in leave_out]
        if files is not None:
            paths = [path for path in paths if any(_beneath(path, each) for each in files)]
        nested = [path for path in paths if path.endswith("/")]
        plain = [path for path in paths if not path.endswith("/")]
        left_out = await self._filtered(plain) | {*await asyncio.to_thread(large_files, self.root, plain)}
        await put(self, [path for path in plain if path not in left_out])
        return (*nested, *sorted(left_out))

    async def commit(self, message: str, files: Sequence[str] | None = None, leave_out: Collection[str] = ()) -> str:
        """Commits what is staged, `files` besides; where nothing is staged, all that changed but `leave_out`.

        Gives the id.
        Raises GitFailed where there is nothing to commit.
        """
        left_out: tuple[str, ...] = ()
        if files is not None or not await self._is_staged():
            left_out = await self.stage(files, leave_out)
        if not await self._is_staged() and self.operation != "merge":
            raise GitFailed(
                "nothing to commit" + (f" but {display_names(left_out)}" if left_out else ""), path=str(self.root)
            )
        arguments = ("commit", "--quiet", "--no-verify", "--cleanup=whitespace", "--file=-")
        told = message.encode("utf-8", "replace")
        await self.git(*arguments, stdin=told, environment=await self.identity())
        return await self.head()

    async def create_branch(self, name: str, at: str = "HEAD") -> None:
        """Makes a branch. Raises GitFailed for a name that cannot be one, is taken, or would surprise a shell."""
        await self.check_branch(name)
        if not _PLAIN.fullmatch(name):
            raise GitFailed(f"{name!r} is no name for a branch", hint="letters, digits, - and / make one")
        await self.git("branch", "--no-track", name, at)

    async def check_branch(self, name: str) -> None:
        """Raises GitFailed for what is no name for a branch."""
        if name in self._valid:
            return
        valid = not name.startswith("-") and "@{" not in name and name not in ("@", "HEAD")
        if not valid or (await self.git("check-ref-format", f"refs/heads/{name}", check=False)).code:
            raise GitFailed(f"{name!r} is no name for a branch", hint="letters, digits, - and / make one")
        self._valid.add(name)

    async def switch(self, name: str) -> None:
        """Checks a branch out; what is not committed stays, or git refuses. Raises GitFailed."""
        await self.check_branch(name)
        await self.git("checkout", "--quiet", "--no-guess", "--no-recurse-submodules", name, "--")

    async def restore(self, paths: Sequence[str]) -> None:
        """Puts files back as they are in the last commit."""
        environment = {"GIT_LITERAL_PATHSPECS": "1"}
        await self.git("checkout", "--quiet", "HEAD", "--", *paths, environment=environment)

    async def push(self, branch: str, remote: str = "origin") -> str:
        """Pushes a branch to the remote of that name, never by force; gives what git said. Raises GitFailed.

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
            raise _not_pushed(outcome, str(self.root))
        await self.configure(f"branch.{branch}.remote", remote)
        await self.configure(f"branch.{branch}.merge", f"refs/heads/{branch}")
        return outcome.error

    async def _filtered(self, paths: Sequence[str]) -> set[str]:
        """The paths that a filter is for which is not run."""
        off = await self.filters()
        if not off or not paths:
            return set()
        told = b"".join([os.fsencode(path) + b"\0" for path in paths])
        said = (await self.git("check-attr", "-z", "--stdin", "filter", stdin=told)).items
        return {path for path, value in zip(said[::3], said[2::3], strict=False) if value in off}

    async def _is_staged(self) -> bool:
        return (await self.git("diff", "--cached", "--quiet", check=False)).code == 1

    async def _nothing(self) -> str:
        return (await self.git("hash-object", "-t", "tree", "--stdin")).text.strip()

    async def identity(self) -> dict[str, str]:
        """The environment that says who commits: nothing where the user has told git, else our name."""
        allowed = allowed_settings(await self.settings(), online=False)
        known = {setting.key: (setting.value or "").strip() for setting in allowed}
        return {
            f"GIT_{role}_{key.upper()}": own
            for key, own in zip(("name", "email"), NAME, strict=True)
            for role in ("AUTHOR", "COMMITTER")
            if not known.get(f"user.{key}")
        }

    def is_hidden(self, path: str) -> bool:
        """Whether a path is one of those that are none of the tree."""
        return any(_beneath(path, each) for each in self.hidden)


async def find_repository(directory: Path) -> Repository | None:
    """The repository that a directory is in, None for none.

    Raises CallerError where git is missing or too old, for a bare repository, for one that is broken, and for the
    inside of one's own folder.
    """
    await check_git()
    found = await run_git(_WHERE, directory, configured=True)
    inside, *places = found.text.split("\n")
    # Git says what it can before it fails: in a bare repository there is no top.
    if inside == "false":
        raise _bare(directory)
    if found.code:
        if "not a git repository (or any" in found.error:
            return None
        raise _not_found(found, _WHERE, directory)
    if len(places) != _PLACES or not all(places[:3]):
        raise CallerError("the path of the repository cannot be used: it has a line break", path=str(directory))
    git_directory, common, root = (Path(each) for each in places[:3])
    await asyncio.to_thread(check_place, directory, root, git_directory, common)
    return Repository(root, git_directory, common, folder=places[3].rstrip("/"))


def remote_names(settings: Iterable[Setting]) -> list[str]:
    """The remotes that are configured."""
    named = [each.subsection for each in settings if each.section == "remote" and each.name in ("url", "pushurl")]
    return [*dict.fromkeys([name for name in named if name])]


def _not_found(found: GitOutcome, asked: Sequence[str], directory: Path) -> CallerError:
    """Why git does not take what it found for a repository of the user's."""
    if "safe.bareRepository" in found.error:
        return _bare(directory)
    if match := _DUBIOUS.search(found.error):
        return CallerError(
            "dubious ownership: this repository belongs to another user, whose configuration git would follow",
            path=match[1],
            hint=f"if you trust them: git config --global --add safe.directory {shlex.quote(match[1])}",
        )
    return failed(found, asked, str(directory))


def _bare(directory: Path) -> CallerError:
    return CallerError(
        "this is a bare repository, or the inside of one: it has no files",
        path=str(directory),
        hint="clone it, and work in the clone",
    )


def _not_pushed(outcome: GitOutcome, path: str) -> GitFailed:
    """What git said of a push, and what to do where it was not allowed the way."""
    error = failed(outcome, ["push"], path)
    if match := _REFUSED.search(outcome.error):
        name = match[1]
        hint = f"what is there would run here; if you trust it: git config --global protocol.{name}.allow always"
        return GitFailed(error.message, path=path, hint=hint)
    return error


def _own_places(environment: Mapping[str, str]) -> list[Path]:
    """The folders that git is told to keep an index, or objects, in."""
    found = [Path(environment["GIT_INDEX_FILE"]).parent] if "GIT_INDEX_FILE" in environment else []
    return [*found, *([Path(environment["GIT_OBJECT_DIRECTORY"])] if "GIT_OBJECT_DIRECTORY" in environment else [])]


def _programs(settings: Iterable[Setting]) -> list[Path]:
    """What git has to run for these settings: git-lfs, which it starts through a shell."""
    if not runs_lfs(settings):
        return []
    found = [find_program(name) for name in ("git-lfs", "sh")]
    return [Path(each) for each in (*found, _SHELL) if each]


def _state(place: Path) -> object:
    try:
        status = place.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _beneath(path: str, place: str) -> bool:
    return place == "." or path in (place, f"{place}/") or path.startswith(f"{place}/")


def _pathspecs(files: Iterable[str]) -> list[str]:
    return [":(top)" if each == "." else f":(top,literal){each}" for each in files]
