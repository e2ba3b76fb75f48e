"""The doctor on a model of this machine: half a minute on cores of its own, which is why it is asked here."""

import json
import subprocess
import sys


def test_a_model_of_this_machine():
    command = "from callboard.cli import main; main()"
    asked = subprocess.run(
        [sys.executable, "-c", command, "doctor", "--local", "qwen2.5-coder-0.5b", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.stdout, asked.stderr
    told = json.loads(asked.stdout)
    backend = {row["name"]: row for row in told["backend"]}
    assert backend["answers"]["state"] == "yes"
    assert {row["detail"] for row in told["clients"]} == {"written into the text"}
    assert [row["state"] for row in told["clients"]] == ["yes"] * len(told["clients"]), told["clients"]
    assert (asked.returncode, told["works"], told["flags"]) == (0, True, [])
    assert "Unclosed" not in asked.stderr
