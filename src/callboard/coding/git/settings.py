"""Which settings of git count when we run it: a table of settings that cannot make git run a program.

A repository's own configuration can name programs in more than thirty keys, and each release of git adds some (2.54:
`hook.NAME.command`), so a list of dangerous keys is never complete. Therefore git never reads that file here. We read
it with `git config --list`, which runs nothing, keep the keys in the tables below, and give git a file with only these
keys. A key that is in no table does not count, whatever it means in a later release.

Law: a value from the repository is data: a name, a flag, an encoding, an address. Programs and network settings come
from the user's own and the system's configuration, and only for calls that may use the network. The only filters are
the exact ones of git-lfs, which run no code of the tree. There are no hooks.

Git takes its configuration and its hooks from the directory in `GIT_COMMON_DIR`. In our directory, we write `config`,
there are no hooks, and links lead to the rest of the repository: objects, branches, the other working trees. HEAD and
the index are not in it, so git uses the repository's own. `git-new-workdir` in git's sources does the reverse.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from callboard.errors import CallerError

_EVERY: Final = frozenset({"*"})

# By section, with `.*` after it if the key has a name in the middle; lower-case names, as git lists them.
_FROM_ANYBODY: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset(
        {
            *("repositoryformatversion", "filemode", "symlinks", "ignorecase", "precomposeunicode", "sharedrepository"),
            *("protecthfs", "protectntfs", "trustctime", "checkstat", "longpaths", "autocrlf", "eol", "safecrlf"),
            *("checkroundtripencoding", "bigfilethreshold", "compression", "loosecompression", "logallrefupdates"),
            *("sparsecheckout", "sparsecheckoutcone", "untrackedcache", "commitgraph", "multipackindex"),
            *("whitespace", "fsync", "fsyncmethod", "excludesfile", "attributesfile"),
        }
    ),
    # Git refuses unknown extensions, since the files may be in another format; so all of them are passed on.
    "extensions": _EVERY,
    "index": frozenset({"sparse", "version", "skiphash", "threads"}),
    "feature": frozenset({"manyfiles"}),
    "i18n": frozenset({"commitencoding", "logoutputencoding"}),
    "user": frozenset({"name", "email", "useconfigonly"}),
    "author": frozenset({"name", "email"}),
    "committer": frozenset({"name", "email"}),
    "diff": frozenset({"algorithm", "renames", "renamelimit", "indentheuristic"}),
    # Files that are not there may be had from that remote: git then does without them instead of failing.
    "remote.*": frozenset({"promisor", "partialclonefilter"}),
    "lfs": frozenset({"fetchinclude", "fetchexclude"}),
}
_FROM_ANYBODY_ONLINE: Final[Mapping[str, frozenset[str]]] = {
    "remote.*": frozenset({"url", "pushurl", "fetch", "lfsurl", "lfspushurl", "gh-resolved"}),
    "branch.*": frozenset({"remote", "merge", "pushremote", "gh-merge-base"}),
    # How continuous integration signs in: it is sent to the address that it is for.
    "http": frozenset({"extraheader"}),
    "http.*": frozenset({"extraheader"}),
    "lfs": frozenset({"url", "pushurl"}),
}
_FROM_USER: Final[Mapping[str, frozenset[str]]] = {"lfs": frozenset({"storage"})}
_FROM_USER_ONLINE: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset({"sshcommand", "gitproxy", "askpass"}),
    "ssh": _EVERY,
    "credential": _EVERY,
    "credential.*": _EVERY,
    "http": _EVERY,
    "http.*": _EVERY,
    "https": _EVERY,
    "https.*": _EVERY,
    "url.*": frozenset({"insteadof", "pushinsteadof"}),
    "remote.*": _EVERY,
    "lfs": _EVERY,
    "lfs.*": _EVERY,
}
# It has git read a second file of the repository; what that file says is among the settings that were listed.
_WORKTREE_CONFIG: Final = "extensions.worktreeconfig"
# Programs that git-lfs runs on each file, in a name that it reads in small letters.
_LFS_EXTENSION: Final = "extension."
# After a push git records the position of the remote's branch under this name, which must not be a branch of the user.
_TRACKING: Final = ":refs/remotes/"
# The format of the repository, which only its own file can say.
_FORMAT: Final = frozenset({"core.repositoryformatversion"})

_OF_USER: Final = frozenset({"system", "global"})
_OURS: Final = "command"

PROTOCOLS: Final = ("https", "http", "ssh", "git")
"""How other machines are reached, unless the user's own configuration allows more: `protocol.NAME.allow`."""
_RUNS_ANYTHING: Final = "ext"
"""The protocol whose addresses are commands."""

_LFS: Final = frozenset(
    {
        "git-lfs clean -- %f",
        "git-lfs smudge -- %f",
        "git-lfs smudge --skip -- %f",
        "git-lfs filter-process",
        "git-lfs filter-process --skip",
    }
)
_FILTER: Final = frozenset({"clean", "smudge", "process"})
_QUOTED: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


class Setting(msgspec.Struct, frozen=True):
    """A setting as git lists it; `value` is None for a flag without one, which means true."""

    scope: str
    section: str
    subsection: str | None
    name: str
    value: str | None

    @property
    def key(self) -> str:
        middle = "" if self.subsection is None else f".{self.subsection}"
        return f"{self.section}{middle}.{self.name}"

    @property
    def is_of_user(self) -> bool:
        """Whether it is the user's own or the system's, in contrast to the repository's."""
        return self.scope in _OF_USER


def parse_settings(items: Iterable[str]) -> tuple[Setting, ...]:
    """Parse the output of `git config --list --show-scope -z`, without the settings that we gave ourselves."""
    settings = []
    fields = iter(items)
    for scope, item in zip(fields, fields, strict=False):
        key, specified, value = item.partition("\n")
        section, _, rest = key.partition(".")
        subsection, dot, name = rest.rpartition(".")
        if scope != _OURS:
            settings.append(Setting(scope, section, subsection if dot else None, name, value if specified else None))
    return tuple(settings)


def allowed_settings(settings: Sequence[Setting], *, online: bool) -> tuple[Setting, ...]:
    """Return the settings that git may see; with `online` also those for a call that may reach other machines."""
    filters = {each.subsection for each in settings if _is_lfs(each)} - {*unused_filters(settings)}
    return tuple([each for each in settings if _is_allowed(each, filters, online=online)])


def unused_filters(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the names of the filters that are configured and not run."""
    filters = [setting for setting in settings if _is_filter(setting)]
    return tuple(sorted({each.subsection or "" for each in filters if not _is_lfs(each)}))


def runs_lfs(settings: Iterable[Setting]) -> bool:
    """Return whether a filter of git-lfs is among them."""
    return any(_is_lfs(setting) for setting in settings)


def is_partial(settings: Iterable[Setting]) -> bool:
    """Return whether it is a partial clone, where objects that a remote promised may be missing."""
    return any(
        (setting.section, setting.name) in (("remote", "promisor"), ("extensions", "partialclone"))
        for setting in settings
    )


def allowed_protocols(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the protocols for other machines: the usual ones, and those that the user's own configuration allows."""
    own = {
        setting.subsection: setting.value
        for setting in settings
        if setting.is_of_user and (setting.section, setting.name) == ("protocol", "allow") and setting.subsection
    }
    refused = {_RUNS_ANYTHING, *(name for name, value in own.items() if value == "never")}
    return tuple([name for name in dict.fromkeys([*PROTOCOLS, *own]) if name not in refused])


def format_settings(settings: Iterable[Setting]) -> str:
    """Format settings as a file for git."""
    lines = []
    for setting in settings:
        middle = "" if setting.subsection is None else f' "{setting.subsection.translate(_QUOTED)}"'
        value = "" if setting.value is None else f' = "{setting.value.translate(_ESCAPED)}"'
        lines.append(f"[{setting.section}{middle}]\n\t{setting.name}{value}\n")
    return "".join(lines)


def _is_allowed(setting: Setting, filters: Collection[str | None], *, online: bool) -> bool:
    is_extension = setting.section == "lfs" and (setting.subsection or "").lower().startswith(_LFS_EXTENSION)
    if not _is_plain(setting) or setting.key == _WORKTREE_CONFIG or is_extension:
        return False
    if setting.section == "filter":
        return setting.subsection in filters and (_is_lfs(setting) or setting.name == "required")
    if (setting.section, setting.name) == ("remote", "fetch") and _TRACKING not in (setting.value or ""):
        return False
    if setting.is_of_user and (setting.section == "extensions" or setting.key in _FORMAT):
        return False
    tables = [
        _FROM_ANYBODY,
        *([_FROM_ANYBODY_ONLINE] if online else []),
        *([_FROM_USER] if setting.is_of_user else []),
        *([_FROM_USER_ONLINE] if setting.is_of_user and online else []),
    ]
    section = setting.section if setting.subsection is None else f"{setting.section}.*"
    known = [table.get(section, frozenset()) for table in tables]
    return any(names is _EVERY or setting.name in names for names in known)


def _is_plain(setting: Setting) -> bool:
    """Return whether git reads the written name unchanged, as it does all of its own names."""
    plain = _NAME.fullmatch(setting.section) and _NAME.fullmatch(setting.name)
    return bool(plain) and "\n" not in (setting.subsection or "")


def _is_filter(setting: Setting) -> bool:
    return setting.section == "filter" and setting.name in _FILTER


def _is_lfs(setting: Setting) -> bool:
    return _is_filter(setting) and (setting.value or "").strip() in _LFS


_FILES: Final = ("HEAD", "packed-refs", "shallow")
_FOLDERS: Final = ("objects", "refs", "reftable", "logs", "info", "worktrees")
_MADE: Final = "logs"
_WRITTEN: Final = frozenset({"refs", "reftable", "logs", "info"})
_UNUSED: Final = frozenset({"hooks", "lfs", "modules", "svn", "description"})


@contextmanager
def private_common_directory(common: Path, configuration: str) -> Iterator[Path]:
    """Return a directory that replaces `common` and has this configuration; it is deleted after use."""
    # Git makes it where it is missing, but not at the end of a link.
    with suppress(OSError):
        (common / _MADE).mkdir()
    with tempfile.TemporaryDirectory(prefix="callboard-git-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "config").write_bytes(os.fsencode(configuration))
        # Also to a file that is not there: git makes it where the link leads.
        for part in (*[each for each in _FOLDERS if (common / each).is_dir()], *_FILES):
            (folder / part).symlink_to(common / part)
        yield folder


def check_location(directory: Path, root: Path, git_directory: Path, common: Path) -> None:
    """Check that a repository is at the path in its `.git`, and that its parts are inside it.

    Args:
        directory: The directory of the search.
        root: The top of its working tree, according to git.
        git_directory: Its folder for this working tree.
        common: The folder that all of its working trees share.

    Raises CallerError for a bare repository among the folder's files, a working tree elsewhere, or links that lead out
    of the repository.
    """
    if not _leads_to(root / ".git", git_directory) or not directory.resolve().is_relative_to(root.resolve()):
        raise CallerError(
            "the repository that git finds here is not that of a .git in a folder above",
            path=str(git_directory),
            hint="it may be an embedded one, or core.worktree may lead elsewhere; work in a clone of it",
        )
    inside = common.resolve()
    for folder in {git_directory, common}:
        for link in _links(folder):
            if not link.resolve().is_relative_to(inside):
                raise CallerError(
                    "a part of this repository is a link that leads out of it",
                    path=str(link),
                    hint="clone it, and work in the clone",
                )


def _links(folder: Path) -> Iterator[Path]:
    """Return the links in a repository's folder, where git writes by name; the names of objects say what is in them."""
    for top, folders, files in os.walk(folder):
        names = [name for name in (*folders, *files) if top != str(folder) or name not in _UNUSED]
        yield from [path for name in names if (path := Path(top, name)).is_symlink()]
        if top == str(folder):
            folders[:] = [name for name in folders if name in _WRITTEN]


def _leads_to(pointer: Path, git_directory: Path) -> bool:
    """Return whether the `.git` of a working tree is, or names, this folder."""
    with suppress(OSError, ValueError):
        if pointer.is_dir():
            return pointer.samefile(git_directory)
        named = pointer.read_bytes().removeprefix(b"gitdir:").strip()
        return (pointer.parent / os.fsdecode(named)).samefile(git_directory)
    return False
