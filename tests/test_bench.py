"""That the benches that start processes still measure; their figures mean nothing here."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench"


def test_gateway():
    command = [sys.executable, str(BENCH / "gateway.py"), "--quick", "--no-peers", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert list(found["rows"]) == ["direct", "callboard", "callboard, chat", "callboard, messages"]
    for row in found["rows"].values():
        assert all(isinstance(row[name], float) for name in ("whole", "five", "first", "pieces/s"))
        assert row["slow"]["failed"] == 0
    assert found["calls"].keys() == {"responses", "chat", "messages"}


def test_mcp_servers():
    command = [sys.executable, str(BENCH / "mcp_servers.py"), "--quick", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert list(found["calls"]) == [
        "SDK, SDK", "link, SDK", "ensemble, SDK", "SDK, callboard", "ensemble, callboard",
    ]  # fmt: skip
    assert all(value > 0 for cells in found["calls"].values() for value in cells.values())
    assert (found["connects"]["processes"], found["connects"]["files"]) == (0, 0)
