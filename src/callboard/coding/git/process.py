"""Run the program git, with every way closed by which a repository could run something.

Law: git is started by its absolute path, never through a shell; nothing that a repository holds names a program
that it runs. Hooks, monitors, pagers, editors, signers, external diffs and prompts are off; so is the network, except
for calls that ask for it, which are the ones the user asked for.

There are three walls, and each would do alone. Of the configuration only what `settings.py` lists reaches git; what
git offers to turn off is off besides; and where the kernel has Landlock, git can run nothing but itself and what
`programs` names, write nothing but what `writable` names, and open no connection. A call that may reach other
machines is without the last: it runs what the user's own configuration says, such as ssh and its helpers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

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
"""The first git that can be told to leave the user's configuration out (`GIT_CONFIG_GLOBAL`)."""

_MAX_ERROR = 64 * 1024
_GRACE = 3.0
_CHUNK = 256 * 1024

_NOWHERE: Final = "none"
"""An address that git-lfs cannot take for one."""

_SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.quotePath", "false"),
    ("diff.external", ""),
    ("diff.noprefix", "false"),
    ("diff.mnemonicPrefix", "false"),
    ("diff.relative", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("color.ui", "false"),
    ("protocol.ext.allow", "never"),
    # A repository that lies in another one as plain files, as a clone can bring it, is not looked into.
    ("safe.bareRepository", "explicit"),
)
_OFFLINE: Final[tuple[tuple[str, str], ...]] = (
    ("protocol.allow", "never"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.askPass", ""),
    ("credential.helper", ""),
    # Git-lfs then puts in place what it has, and leaves the rest: a `.lfsconfig` of the tree counts less.
    ("lfs.url", _NOWHERE),
)

# Where the loader of programs is, which the kernel runs with each of them.
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
    """Where git is. Raises CallerError."""
    path = find_program("git")
    if path is None:
        raise CallerError("git is not installed", hint="install git 2.32 or later")
    return path


async def run_git(
    arguments: Sequence[str],
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    settings: Iterable[tuple[str, str]] = (),
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
        directory: Where it runs.
        environment: Variables that replace ours.
        settings: Settings that replace ours.
        stdin: Its input.
        limit: Bytes of output after which it is ended.
        seconds: Seconds after which it is ended.
        online: Whether it may reach other machines, with the user's own keys, and fetch the files of git-lfs.
        configured: Whether it reads the user's own and the system's configuration: to list what is in them, and
            whose repositories the user trusts.
        writable: The folders that it may change; they need not exist.
        programs: Programs that it may run besides itself.

    Raises:
        CallerError: Git is missing, or takes longer than it may; or there is no such directory.
    """
    program = git_path()
    permission = None if online else _permission(program, writable, programs)
    try:
        process = start_restricted(
            [program, arguments[0], *_FLAGS.get(arguments[0], ()), *arguments[1:]],
            permission,
            cwd=directory,
            env={**git_environment(settings, online=online, configured=configured), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C ends us, not git, and git has no terminal to ask on.
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError):
        raise CallerError("there is no such folder", path=str(directory)) from None
    outcome = await _GitProcess(process, stdin, limit, seconds).outcome()
    if outcome is None:
        hint = "something holds it up: look for other processes of git"
        raise CallerError(f"git took more than {seconds:g} s", path=str(directory), hint=hint)
    return outcome


def git_error(outcome: GitOutcome, arguments: Sequence[str], path: str) -> GitFailed:
    """The error of a failed call, in git's own words."""
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


def git_environment(
    settings: Iterable[tuple[str, str]] = (), *, online: bool, configured: bool = False
) -> dict[str, str]:
    """The environment for git, or for a program that runs it, with every way closed that git itself can close."""
    pairs = [*_SETTINGS, *(() if online else _OFFLINE), *settings]
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


def _permission(program: str, writable: Sequence[Path], programs: Sequence[Path]) -> Permission | None:
    """What git may do; None where the kernel cannot enforce it."""
    own = _own_programs(program)
    return Permission((*own, *programs), tuple(writable)) if own else None


@functools.cache
def _own_programs(program: str) -> tuple[Path, ...]:
    """Git's own programs; empty where git does not run with them alone, as where `git` is a script."""
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


class _GitProcess:
    """A process of git and its pipes, which a thread serves.

    Event loops can serve pipes too, but they differ when a task is cancelled while the process starts; and git has to
    end then, and remove its locks, whatever the loop does.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int, seconds: float) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._input = memoryview(stdin)
        self._limit = limit
        self._deadline = monotonic() + seconds
        self._output, self._error = bytearray(), bytearray()
        self._stopped, self._stop = os.pipe()

    async def outcome(self) -> GitOutcome | None:
        """Wait for it to end; None if it took too long. Cancelling ends it, and waits until it has ended."""
        ended: concurrent.futures.Future[GitOutcome | None] = concurrent.futures.Future()
        threading.Thread(target=self._serve, args=[ended], daemon=True).start()
        waiting = asyncio.wrap_future(ended)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            os.write(self._stop, b"x")
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                # A second cancellation.
                _signal(self._process, signal.SIGKILL)
                await asyncio.wait([waiting])
            raise
        finally:
            os.close(self._stop)
            os.close(self._stopped)

    def _serve(self, ended: concurrent.futures.Future[GitOutcome | None]) -> None:
        try:
            ended.set_result(self._run())
        except BaseException as error:  # noqa: BLE001  # raised where the future is awaited
            ended.set_exception(error)

    def _run(self) -> GitOutcome | None:
        try:
            complete = self._serve_pipes()
            cut = len(self._output) > self._limit
            if not complete and not cut:
                return None
            if cut:
                _end(self._process)
            code = self._process.wait(max(0.0, self._deadline - monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(self._process)
            for pipe in (self._stdin, self._stdout, self._stderr):
                with suppress(OSError):
                    pipe.close()
        error = self._error.decode("utf-8", "replace").strip()
        return GitOutcome(0 if cut else code, bytes(self._output[: self._limit]), error, cut)

    def _serve_pipes(self) -> bool:
        """Until all output is read; False if it is more than the limit, or git was stopped or took too long."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stopped, selectors.EVENT_READ)
            selector.register(self._stdout, selectors.EVENT_READ, self._output)
            selector.register(self._stderr, selectors.EVENT_READ, self._error)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while self._stdout in selector.get_map() or self._stderr in selector.get_map():
                ready = selector.select(max(0.0, self._deadline - monotonic()))
                if not ready or any(key.fileobj == self._stopped for key, _ in ready):
                    return False
                for key, _ in ready:
                    if not self._transfer(key):
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._stdin:
                            self._stdin.close()
                if len(self._output) > self._limit:
                    return False
        return True

    def _transfer(self, key: selectors.SelectorKey) -> bool:
        """Read from or write to a pipe that is ready; False at its end."""
        if key.fileobj is self._stdin:
            try:
                self._input = self._input[os.write(key.fd, self._input[:_CHUNK]) :]
            except BrokenPipeError:  # it may end without reading all
                self._input = memoryview(b"")
            return bool(self._input)
        chunk = os.read(key.fd, _CHUNK)
        output: bytearray = key.data
        output += chunk
        if output is self._error:
            del output[_MAX_ERROR:]
        return bool(chunk)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, first by SIGTERM so that it removes its locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        _signal(process, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
