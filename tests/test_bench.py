"""That every bench can be started, and that those that start processes measure; their figures mean nothing here."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.postgresql import find_control

ROOT = Path(__file__).resolve().parents[1]
BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_is_a_module_that_can_be_started(name, monkeypatch):
    """As a script it would put its folder before the peers' packages, and `agents.py` is the name of one."""
    monkeypatch.syspath_prepend(ROOT)
    import_module(f"bench.{name}")
    commands = (ROOT / "Makefile").read_text("utf-8").splitlines()
    assert any(line.removesuffix(" $(OPTIONS)").endswith(f"python -m bench.{name}") for line in commands)


def measure(name, *options):
    """What a bench prints as JSON, started as the Makefile starts it."""
    command = [sys.executable, "-m", f"bench.{name}", "--quick", "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def test_gateway():
    found = measure("gateway", "--no-peers")
    assert list(found["rows"]) == ["direct", "callboard", "callboard, chat", "callboard, messages"]
    for row in found["rows"].values():
        assert all(isinstance(row[name], float) for name in ("whole", "five", "first", "pieces/s"))
        assert row["slow"]["failed"] == 0
    assert found["calls"].keys() == {"responses", "chat", "messages"}


def test_board_of_the_gateway():
    found = measure("gateway", "--board")
    assert list(found["board"]) == [
        "whole", "stream of 5 pieces", "stream of 300 pieces", "stream of 2,000 pieces",
    ]  # fmt: skip
    assert all(cells["on"] > 0 for cells in found["board"].values())


def test_telemetry():
    found = measure("telemetry")
    assert list(found["microseconds"]) == ["off", "on", "on, every tenth"]
    assert all(cost > 0 for costs in found["microseconds"].values() for cost in costs.values())


def test_mcp_servers():
    found = measure("mcp_servers")
    assert list(found["calls"]) == [
        "SDK, SDK", "link, SDK", "ensemble, SDK", "SDK, callboard", "ensemble, callboard",
    ]  # fmt: skip
    assert all(value > 0 for cells in found["calls"].values() for value in cells.values())
    assert (found["connects"]["processes"], found["connects"]["files"]) == (0, 0)


def test_jobs():
    found = measure("jobs", "--no-peers", "commit", "rounds", "list")
    assert list(found) == ["commit", "rounds", "list"]
    assert list(found["list"]) == ["sqlite", *(["postgresql"] if find_control() else [])]
    assert all(cells["first"] > 0 for cells in found["rounds"].values())
