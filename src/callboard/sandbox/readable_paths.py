"""The paths of this machine that a command may read: the system's, the programs of PATH with what they need, our own
interpreter, and the repository of a worktree.

Law: never a home directory, nor a parent of one, nor a place where keys are stored, unless the caller names it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from callboard.errors import CallerError
from callboard.sandbox.policy import Confinement

SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")))
"""Programs and libraries, readable by everybody; some are links to others."""

SYSTEM_FILES = tuple(
    Path("/etc") / name
    for name in [
        "alternatives", "ca-certificates", "crypto-policies", "debian_version", "fonts", "gai.conf",
        "host.conf", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk",
        "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "lsb-release", "magic", "mime.types",
        "nsswitch.conf", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "protocols", "python3",
        "python3.11", "python3.12", "python3.13", "python3.14", "services", "ssl/cert.pem", "ssl/certs",
        "ssl/openssl.cnf", "timezone",
    ]
)  # fmt: skip
"""The files of /etc that programs ask for; none of them is a secret."""

_SECRETS = [
    ".aws", ".azure", ".cargo/credentials", ".cargo/credentials.toml", ".claude", ".codex", ".config",
    ".databrickscfg", ".docker", ".gem/credentials", ".git-credentials", ".gnupg", ".gradle", ".kube",
    ".local/share/keyrings", ".m2", ".mozilla", ".my.cnf", ".netrc", ".npmrc", ".oci", ".password-store",
    ".pgpass", ".pypirc", ".ssh", ".terraform.d", ".thunderbird", ".vault-token",
]  # fmt: skip
"""Places in a home directory where keys are stored."""

# A mark in or beside a directory of PATH, and the path that its programs then need.
_TOOLCHAINS = (
    ("../pyvenv.cfg", ".."),
    ("../conda-meta", ".."),
    ("../src/runtime", ".."),  # Go
    ("../lib/node_modules", "../lib"),
    ("../shims", ".."),  # pyenv, rbenv, asdf
    ("../versions", ".."),
)

_MAX_FILE = 64 * 1024


def find_readable_paths(confinement: Confinement) -> list[Path]:
    """Return the paths to show in addition to the system's, unmoved, none of them beneath another."""
    wanted_paths = [
        *(
            place
            for directory in confinement.bind_mounts.values()
            for place in (directory, *_find_base_python(directory))
        ),
        *worktree_paths(confinement.workspace),
    ]
    for place in confinement.readable:
        if not os.access(place, os.R_OK) and os.path.lexists(place):  # pathlib's raises here
            raise CallerError("cannot be read, and so not be shown", path=str(place), hint="take it off `readable`")
    homes = _find_homes()
    entries = confinement.environment.get("PATH", os.environ.get("PATH", "")).split(":")
    # Commands can write to some directories of PATH, and so could have forged what these claim to need.
    own = [confinement.workspace, *([confinement.home] if confinement.home else [])]
    foreign = [
        entry
        for entry in entries
        if not any(_is_beneath(each, own) for each in (Path(os.path.realpath(entry)), Path(entry)))
    ]
    paths = {
        *_find_programs_and_python(tuple(foreign), homes),
        *(place for place in map(_absolute, wanted_paths) if _may_be_shown(place, homes)),
        # Paths that the caller names need no permission.
        *map(_absolute, confinement.readable),
    }
    shown: list[Path] = []
    for place in sorted(paths):
        if not _is_beneath(place, (*SYSTEM, *shown)) and is_reachable(place):
            shown.append(place)
    return shown


def interpreter_paths() -> list[Path]:
    """Return the directories of our own Python."""
    return [Path(sys.prefix), Path(sys.base_prefix), *_find_base_python(Path(sys.prefix))]


def is_reachable(place: Path) -> bool:
    """Return whether the path exists; False, without an error, in a directory that we may not search."""
    return os.path.exists(place)  # noqa: PTH110  # pathlib's raises for what may not be looked at


def rustup_home() -> Path:
    return Path(os.environ.get("RUSTUP_HOME", "~/.rustup")).expanduser()


def worktree_paths(workspace: Path) -> list[Path]:
    """Return the directory of the repository if the workspace is a git worktree, else none.

    The `.git` of a worktree is a file, which a command may have written. So it counts only where the repository points
    back: gitrepository-layout(5), `worktrees/<id>/gitdir`.
    """
    pointer = workspace / ".git"
    with suppress(OSError, ValueError):
        if pointer.is_symlink() or not pointer.is_file():
            return []
        place = Path(os.path.realpath(workspace / _read_text(pointer).removeprefix("gitdir:").strip()))
        common = place.parent.parent
        points_back = os.path.realpath(place / _read_text(place / "gitdir").strip()) == os.path.realpath(pointer)
        if place.parent.name == "worktrees" and points_back and (common / "objects").is_dir():
            return [common]
    return []


def holds_keys(directory: Path) -> bool:
    """Return whether a directory is a home directory, a directory in which keys are stored, or contains one of these."""
    return not _may_be_shown(_absolute(directory), _find_homes())


def resolve_writable_places(confinement: Confinement) -> Confinement:
    """The confinement with the real paths of its workspace and home. Raises CallerError as `resolve_writable` does."""
    home = resolve_writable(confinement.home) if confinement.home else None
    return replace(confinement, workspace=resolve_writable(confinement.workspace), home=home)


def resolve_writable(directory: Path) -> Path:
    """Return the real path of a directory that a command may write to. Raises CallerError."""
    place = Path(os.path.realpath(directory))
    if not place.is_dir():
        raise CallerError("there is no such directory", path=str(directory))
    if _is_beneath(place, map(Path, ("/proc", "/sys", "/dev"))):
        raise CallerError("this is the kernel's, and no place to work in", path=str(directory))
    if any(_is_beneath(home, [place]) for home in _find_homes()):
        raise CallerError(
            "a command that may write here could read every key in your home directory",
            path=str(directory),
            hint="work in a directory beneath it",
        )
    return place


@functools.lru_cache(maxsize=8)
def _find_programs_and_python(entries: tuple[str, ...], homes: frozenset[Path]) -> list[Path]:
    """Cached: commands run often, and the directories of PATH do not change."""
    paths = [Path(entry) for entry in entries if entry.startswith("/")]
    wanted_paths = [*(place for path in paths for place in _find_toolchain_paths(path)), *interpreter_paths()]
    shown = {place for place in map(_absolute, wanted_paths) if _may_be_shown(place, homes)}
    return [place for place in sorted(shown) if not _is_beneath(place, SYSTEM)]


def _find_toolchain_paths(entry: Path) -> Iterator[Path]:
    if not os.path.isdir(entry):  # noqa: PTH112  # as in can_be_reached
        return
    yield entry
    there = Path(os.path.realpath(entry))
    for mark, part in _TOOLCHAINS:
        if is_reachable(there / mark):
            yield there / part
    if is_reachable(there / "rustup"):
        yield rustup_home()
    yield from _find_base_python(there.parent)


def _find_base_python(prefix: Path) -> Iterator[Path]:
    with suppress(OSError, ValueError):
        for line in _read_text(prefix / "pyvenv.cfg").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home" and value.strip().startswith("/"):
                base = Path(value.strip()).parent
                yield base
                yield Path(os.path.realpath(base))


def _may_be_shown(place: Path, homes: Iterable[Path]) -> bool:
    """Return whether neither the path nor its target is or contains a home directory or keys."""
    for each in {place, Path(os.path.realpath(place))}:
        for home in homes:
            if _is_beneath(home, [each]):
                return False
            if each.is_relative_to(home):
                inside = str(each.relative_to(home))
                if any(f"{inside}/".startswith(f"{name}/") or f"{name}/".startswith(f"{inside}/") for name in _SECRETS):
                    return False
    return True


def _find_homes() -> frozenset[Path]:
    homes = {os.path.expanduser("~")}  # noqa: PTH111  # pathlib's raises if there is no home
    with suppress(ImportError, KeyError):
        import pwd  # noqa: PLC0415  # not on Windows

        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    return frozenset(
        Path(spelled) for home in homes if home.startswith("/") for spelled in (home, os.path.realpath(home))
    )


def _is_beneath(place: Path, roots: Iterable[Path]) -> bool:
    # As is_relative_to of pathlib, which takes a command milliseconds.
    return any(f"{place}/".startswith(f"{str(root).rstrip('/')}/") for root in roots)


def _absolute(place: Path) -> Path:
    return Path(os.path.abspath(place))  # noqa: PTH100  # the link is shown as it is spelled


def _read_text(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_MAX_FILE).decode()
