"""What all tests share."""

import os
import signal

import pytest
from hypothesis import settings

# Where the tests run in the background the shell has ctrl-C ignored, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline is wall-clock time, which says more of the machine than of the code. CI asks the same of every commit:
# its examples are those of the test, not of chance; elsewhere each run tries others.
settings.register_profile("callboard", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("callboard")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    """No test reaches a provider because of what is in its user's environment."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path_factory):
    """No test reads its user's callboard.toml."""
    for name in list(os.environ):
        if name.startswith("CALLBOARD_"):
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
