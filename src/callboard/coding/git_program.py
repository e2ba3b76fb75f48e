"""The program git, with every way closed by which a repository could run something.

Owns its settings, its environment, the cap on what it says, and its end. Knows nothing of what it is asked.
Law: git is started by its absolute path, never through a shell; nothing that a repository holds names a program
that it runs. Hooks, monitors, pagers, editors, signers, external diffs and prompts are off; so is the network, but
for calls that ask for it, which are the ones the user asked for.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from callboard.errors import CallerError

MAX_OUTPUT: Final = 64 * 1024 * 1024
"""Bytes of output that are kept; git is ended where it writes more."""
SECONDS: Final = 600.0
"""That a call of git may take."""
OLDEST: Final = (2, 31)
"""The first git whose settings can be given in its environment (`GIT_CONFIG_COUNT`)."""

_MAX_ERROR = 64 * 1024
_GRACE = 3.0
_CHUNK = 256 * 1024

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
    ("safe.directory", "*"),
)
_OFFLINE: Final[tuple[tuple[str, str], ...]] = (
    ("protocol.allow", "never"),
    ("core.sshCommand", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),
)

# A submodule's own configuration could name a filter, so none is looked into; its commit is what counts.
_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("--ignore-submodules=dirty",),
    **dict.fromkeys(
        ("diff", "diff-tree", "diff-index", "diff-files", "show", "log"),
        ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    ),
}

_KEPT: Final = ("HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "TMPDIR")
_KEPT_ONLINE: Final = (
    *("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)


class GitFailed(CallerError):
    """Git refused; the message is its own."""


class GitOutcome(msgspec.Struct, frozen=True):
    """What came of a call: its exit code, its output, what it said of errors. `cut` says that it wrote more."""

    code: int
    output: bytes
    error: str
    cut: bool = False

    @property
    def text(self) -> str:
        """The output as text; bytes that are none stay as surrogates, as in names of files."""
        return os.fsdecode(self.output)

    @property
    def items(self) -> list[str]:
        """The output as a list, where git was told to end each item with a zero byte."""
        return os.fsdecode(self.output).split("\0")[:-1]


def git_path() -> str:
    """Where git is. Raises CallerError."""
    found = shutil.which("git", path=search_path())
    if found is None:
        raise CallerError("git is not installed", hint="install git 2.31 or later")
    return found


def search_path() -> str:
    """PATH without what depends on the current directory, which may be one that a model writes to."""
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([each for each in given if os.path.isabs(each)])  # noqa: PTH117  # no path yet


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
) -> GitOutcome:
    """Runs git in a directory, with further environment and settings. Cancelling ends it.

    `online` lets it reach other machines, with the user's own keys, and fetch the files of git-lfs.
    Raises CallerError where git is missing, too old, or takes longer than it may.
    """
    program = git_path()
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *_with_flags(arguments),
            cwd=directory,
            env={**_environment(settings, online=online), **(environment or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for us, and there is no terminal to ask on.
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError):
        raise CallerError("there is no such folder", path=str(directory)) from None
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError
    telling = asyncio.create_task(_tell(process.stdin, stdin))
    complaint = asyncio.create_task(_beginning(process.stderr))
    try:
        async with asyncio.timeout(seconds):
            output, cut = await _read(process.stdout, limit)
            if cut:
                await _end(process)
            code = await process.wait()
            error = await complaint
    except TimeoutError:
        hint = "something holds it up: look for other processes of git"
        raise CallerError(f"git took more than {seconds:g} s", path=str(directory), hint=hint) from None
    finally:
        telling.cancel()
        complaint.cancel()
        await _end(process)
        await asyncio.gather(telling, complaint, return_exceptions=True)
    return GitOutcome(0 if cut else code, output, error.decode("utf-8", "replace").strip(), cut)


def failed(outcome: GitOutcome, arguments: Sequence[str], path: str) -> GitFailed:
    """The error of an outcome, in git's own words."""
    lines = [line.removeprefix("fatal: ").removeprefix("error: ") for line in outcome.error.splitlines()]
    said = "; ".join([line for line in lines if line and not line.startswith("hint:")][:4])
    return GitFailed(said or f"git {arguments[0]} ended with status {outcome.code}", path=path)


def check_version(said: str) -> None:
    """Raises CallerError for an answer of `git version` that is older than we can use."""
    numbers = said.split()[2].split(".") if len(said.split()) > 2 else []
    if len(numbers) < 2 or not all(each.isdigit() for each in numbers[:2]):
        raise CallerError(f"{said.strip()!r} is no version of git")
    if (int(numbers[0]), int(numbers[1])) < OLDEST:
        raise CallerError(f"git {'.'.join(numbers)} is too old", hint="install git 2.31 or later")


def _with_flags(arguments: Sequence[str]) -> list[str]:
    return [arguments[0], *_FLAGS.get(arguments[0], ()), *arguments[1:]]


def _environment(settings: Iterable[tuple[str, str]], *, online: bool) -> dict[str, str]:
    given = [*_SETTINGS, *(() if online else _OFFLINE), *settings]
    kept = (*_KEPT, *(_KEPT_ONLINE if online else ()))
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {
        "PATH": search_path(),
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": str(len(given)),
    }
    # What a model may point at another place is never fetched without being asked.
    found |= {"GIT_LFS_SKIP_DOWNLOAD_ERRORS": "1"} if online else {"GIT_LFS_SKIP_SMUDGE": "1", "GIT_NO_LAZY_FETCH": "1"}
    for index, (key, value) in enumerate(given):
        found |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return found


async def _tell(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):  # it may end without reading all
        stdin.write(data)
        await stdin.drain()
        stdin.close()


async def _read(stdout: asyncio.StreamReader, limit: int) -> tuple[bytes, bool]:
    kept = bytearray()
    while chunk := await stdout.read(_CHUNK):
        kept += chunk
        if len(kept) > limit:
            return bytes(kept[:limit]), True
    return bytes(kept), False


async def _beginning(stderr: asyncio.StreamReader) -> bytes:
    kept = b""
    while chunk := await stderr.read(_CHUNK):
        kept = (kept + chunk)[:_MAX_ERROR]
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends it, first so that it takes its locks away."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        _signal(process, how)
        try:
            await asyncio.wait_for(process.wait(), _GRACE)
        except TimeoutError:
            continue
        except asyncio.CancelledError:
            _signal(process, signal.SIGKILL)
            raise


def _signal(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
