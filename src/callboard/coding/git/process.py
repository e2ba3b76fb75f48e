"""Run the program git, so that a repository cannot make it run another program.

Law: git is started by its absolute path, never through a shell. No content of a repository names a program that git
runs. Hooks, monitors, pagers, editors, signers, external diffs and prompts are off. The network is off, except for
calls that the user asked for.

Two walls enforce this, and each is enough on its own. First, only the configuration that `settings.py` lists reaches
git. Second, with Landlock in the kernel, git can run only itself and `programs`, write only `writable`, and open no
connection. Calls with network access lack the second wall: they run programs that the user configured, such as ssh.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from callboard.coding.git.settings import PROTOCOLS
from callboard.errors import CallerError
from callboard.programs import find_program, trusted_search_path
from callboard.sandbox.landlock_process import Permission, landlock_version, start_restricted

MAX_OUTPUT: Final = 64 * 1024 * 1024
"""Bytes of output that are kept; git is ended where it writes more."""
SECONDS: Final = 600.0
"""That a call of git may take."""
OLDEST: Final = (2, 32)
"""First git version that can ignore the user's configuration (`GIT_CONFIG_GLOBAL`)."""

_MAX_ERROR = 64 * 1024
_GRACE = 3.0
_CHUNK = 256 * 1024

_NOWHERE: Final = "none"
"""An address that git-lfs cannot take for one."""

_SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    ("core.hooksPath", os.devnull),
    ("core.quotePath", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    # A repository that lies in another one as plain files, as a clone can bring it, is not looked into.
    ("safe.bareRepository", "explicit"),
)
# Git-lfs then puts in place what it has, and leaves the rest: a `.lfsconfig` of the tree counts less.
_OFFLINE: Final = ("lfs.url", _NOWHERE)

# Paths of the program loader, which the kernel runs with each program.
_LOADERS: Final = ("/lib64/ld-linux*.so*", "/lib/ld-linux*.so*", "/lib/ld-musl-*.so*", "/libx32/ld-linux*.so*")
_NO_PROTOCOL: Final = "none"

# A submodule's own configuration could name a filter, so none is looked into; its commit is what counts.
_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("--ignore-submodules=dirty",),
    **dict.fromkeys(
        ("diff", "diff-tree", "diff-index", "diff-files", "show", "log"),
        ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    ),
}

_checked: set[str] = set()
"""The programs that `check_git` found to be new enough."""

_INHERITED: Final = ("HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "TMPDIR")
_INHERITED_ONLINE: Final = (
    *("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)


class GitFailed(CallerError):
    """Git refused; the message is its own."""


class GitOutcome(msgspec.Struct, frozen=True):
    """How a call ended."""

    code: int
    output: bytes
    error: str
    cut: bool = False
    """Whether it wrote more than the limit."""

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 become surrogates, as in names of files."""
        return os.fsdecode(self.output)

    @property
    def items(self) -> list[str]:
        """The output as a list, for commands with `-z`."""
        return os.fsdecode(self.output).split("\0")[:-1]


def git_path() -> str:
    """Return the path of git. Raises CallerError."""
    path = find_program("git")
    if path is None:
        raise CallerError("git is not installed", hint="install git 2.32 or later")
    return path


async def run_git(
    arguments: Sequence[str],
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    limit: int = MAX_OUTPUT,
    seconds: float = SECONDS,
    online: bool = False,
    configured: bool = False,
    writable: Sequence[Path] = (),
    programs: Sequence[Path] = (),
) -> GitOutcome:
    """Run git in a directory. Cancelling ends it.

    Args:
        arguments: A command of git and its arguments.
        directory: The working directory.
        environment: Variables that replace ours.
        stdin: Its input.
        limit: Maximum bytes of output; git is ended after them.
        seconds: Time limit in seconds.
        online: True to allow the network, with the user's own keys, and to fetch files of git-lfs.
        configured: True to read the user's and the system's configuration: to list it, and to know which
            repositories the user trusts.
        writable: The folders that git may change; they need not exist.
        programs: Other programs that git may run.

    Raises:
        CallerError: Git is missing or too slow, or the directory does not exist.
    """
    program = git_path()
    own = () if online else _own_programs(program)
    permission = Permission((*own, *programs), tuple(writable)) if own else None
    # Files, so that only one pipe needs a reader.
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as error:
        source.write(stdin)
        source.seek(0)
        try:
            process = start_restricted(
                [program, arguments[0], *_FLAGS.get(arguments[0], ()), *arguments[1:]],
                permission,
                cwd=directory,
                env={**git_environment(online=online, configured=configured), **(environment or {})},
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=error,
                # Ctrl-C ends us, not git, and git has no terminal to ask on.
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError):
            raise CallerError("there is no such folder", path=str(directory)) from None
        outcome = await _wait_for(process, error, limit, seconds)
    if outcome is None:
        hint = "something holds it up: look for other processes of git"
        raise CallerError(f"git took more than {seconds:g} s", path=str(directory), hint=hint)
    return outcome


def git_error(outcome: GitOutcome, arguments: Sequence[str], path: str) -> GitFailed:
    """Return the error of a failed call, in git's own words."""
    lines = [line.removeprefix("fatal: ").removeprefix("error: ") for line in outcome.error.splitlines()]
    message = "; ".join([line for line in lines if line and not line.startswith("hint:")][:4])
    return GitFailed(message or f"git {arguments[0]} ended with status {outcome.code}", path=path)


async def check_git() -> None:
    """Check that git is installed and not too old; once for each program. Raises CallerError."""
    program = git_path()
    if program not in _checked:
        check_version((await run_git(["version"], Path("/"))).text)
        _checked.add(program)


def check_version(text: str) -> None:
    """Raise CallerError for the output of `git version` of a git that is too old."""
    numbers = text.split()[2].split(".") if len(text.split()) > 2 else []
    if len(numbers) < 2 or not all(each.isdigit() for each in numbers[:2]):
        raise CallerError(f"{text.strip()!r} is no version of git")
    if (int(numbers[0]), int(numbers[1])) < OLDEST:
        raise CallerError(f"git {'.'.join(numbers)} is too old", hint="install git 2.32 or later")


def git_environment(*, online: bool, configured: bool = False) -> dict[str, str]:
    """Return the environment for git, or for a program that runs git, with every protection that git offers."""
    pairs = [*_SETTINGS, *(() if online else (_OFFLINE,))]
    inherited = (*_INHERITED, *(_INHERITED_ONLINE if online else ()))
    environment = {name: os.environ[name] for name in inherited if name in os.environ}
    environment |= {
        "PATH": trusted_search_path(),
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        # Counts more than what a repository's `protocol.NAME.allow` says.
        "GIT_LFS_SKIP_DOWNLOAD_ERRORS": "1",
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS) if online else _NO_PROTOCOL,
        "GIT_CONFIG_COUNT": str(len(pairs)),
    }
    if not online:
        environment["GIT_NO_LAZY_FETCH"] = "1"
    if not configured:
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    for index, (key, value) in enumerate(pairs):
        environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return environment


@functools.cache
def _own_programs(program: str) -> tuple[Path, ...]:
    """Return git's own programs; empty if git needs other programs, for example if `git` is a script."""
    if not landlock_version():
        return ()
    environment = git_environment(online=False)
    command = [program, "--exec-path"]
    path = subprocess.run(command, env=environment, capture_output=True, check=False).stdout  # noqa: S603  # git itself
    loaders = [loader for pattern in _LOADERS for loader in Path("/").glob(pattern.removeprefix("/"))]
    programs = (Path(program), Path(os.fsdecode(path.strip()) or program), *loaders)
    try:
        probe = start_restricted(
            [program, "version"],
            Permission(programs),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ()
    output, _ = probe.communicate()
    return programs if output.startswith(b"git version") else ()


async def _wait_for(process: subprocess.Popen[bytes], error: BinaryIO, limit: int, seconds: float) -> GitOutcome | None:
    """Wait until git has ended; None if it takes too long. If that or a cancellation ends git, wait for it too.

    A thread reads, since event loops differ when a task is cancelled while a process starts; and git has to end then,
    and remove its locks, whatever the loop does.
    """
    ended: concurrent.futures.Future[GitOutcome] = concurrent.futures.Future()

    def read() -> None:
        try:
            ended.set_result(_read_outcome(process, error, limit))
        except BaseException as failure:  # noqa: BLE001  # raised where the future is awaited
            ended.set_exception(failure)

    threading.Thread(target=read, daemon=True).start()
    waiting = asyncio.wrap_future(ended)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(waiting)
    except TimeoutError:
        return None
    finally:
        if not waiting.done():
            try:
                _signal(process, signal.SIGTERM)
                await asyncio.wait([waiting], timeout=_GRACE)
            finally:
                # After the grace, or at a second cancellation.
                _signal(process, signal.SIGKILL)
                await asyncio.wait([waiting])


def _read_outcome(process: subprocess.Popen[bytes], error: BinaryIO, limit: int) -> GitOutcome:
    output = bytearray()
    with process:
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        while len(output) <= limit and (chunk := os.read(process.stdout.fileno(), _CHUNK)):
            output += chunk
        if cut := len(output) > limit:
            # It only reads: what writes prints little.
            _signal(process, signal.SIGKILL)
        code = process.wait()
        error.seek(0)
        text = error.read(_MAX_ERROR).decode("utf-8", "replace").strip()
    return GitOutcome(0 if cut else code, bytes(output[:limit]), text, cut)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # Not `poll`, which reaps git: one of its programs may still have its output open, and is in the group.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
