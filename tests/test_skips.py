"""That nothing is skipped silently: what may be stands in tests/skips.toml, and a run says what was and why."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
CARGO = "tests/sandbox/test_run.py::TestPrograms::test_run[cargo]"


@pytest.fixture
def conftest(request):
    return next(
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(ROOT / "tests/conftest.py")
    )


def skipped(test, reason):
    return SimpleNamespace(
        nodeid=test, longrepr=("", 1, f"Skipped: {reason}"), skipped=True, passed=False, failed=False, when="setup"
    )


@pytest.mark.parametrize(
    ("skip", "programs", "allowed"),
    [
        ((CARGO, "there is no cargo"), set(), True),
        ((CARGO, "there is no cargo"), {"cargo"}, False),
        ((CARGO, "it is slow"), set(), False),
        (("tests/agent/test_agent.py::test_a_run", "there is no cargo"), set(), False),
    ],
)
def test_only_what_the_table_names_may_be_skipped(conftest, monkeypatch, skip, programs, allowed):
    monkeypatch.setattr(conftest.shutil, "which", lambda name: name if name in programs else None)
    count = conftest.Count()
    count.pytest_runtest_logreport(skipped(*skip))
    session = SimpleNamespace(exitstatus=0)
    count.pytest_sessionfinish(session)
    assert (session.exitstatus == 0) == allowed


def test_a_run_ends_with_a_line_of_what_passed_and_why_not(conftest, capsys):
    count = conftest.Count()
    for when in ("setup", "call", "teardown"):
        count.pytest_runtest_logreport(
            SimpleNamespace(nodeid=CARGO, skipped=False, passed=True, failed=False, when=when)
        )
    count.pytest_runtest_logreport(skipped(CARGO, "there is no cargo"))
    count.pytest_collectreport(skipped("tests/evals", "there is no go"))
    count.pytest_unconfigure()
    assert capsys.readouterr().out == "1 passed, 2 skipped: 1 there is no cargo; 1 there is no go\n"


def test_the_rows_name_tests_that_are_there(conftest):
    for row in conftest.SKIPS:
        assert row["why"]
        assert all(any(ROOT.glob(pattern.partition("::")[0])) for pattern in row["tests"])
