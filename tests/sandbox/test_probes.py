"""The ways out of a sandbox, each tried in each sandbox that this machine can have, used or not; by root and a user."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROBES = Path(__file__).with_name("probes.py")
EVERYWHERE = ["3 GB of output", "large file", "much memory", "own environment", "a daemon stays", "fork bomb"]
FEWEST = 60
"""As many probes must have been made in each sandbox, so that none is lost unnoticed."""
SOMEBODY = 65533
"""A user without a name, whom root becomes."""

# As `notice`, `open` and `visible` of these say.
TIMES_OF_DEVICES = {"change the times of a device"}
OTHERS = {
    "see a process",
    "watch a file",
    "change permissions",
    "change the owner",
    "change times",
    "set times",
    "change the times of a device",
    "change anything of it all",
}
OTHERS_AS_ROOT = {"change the permissions of a device", "change the owner of a device"}

ROWS = [
    ("system", "mapped", "root", set()),
    ("system", "nested", "root", set()),
    ("system", "nested", "user", set()),
    ("system", "direct", "user", TIMES_OF_DEVICES),
    ("bundled", "mapped", "root", set()),
    ("bundled", "nested", "root", set()),
    ("bundled", "nested", "user", set()),
    ("bundled", "direct", "user", TIMES_OF_DEVICES),
    ("landlock", "", "root", OTHERS | OTHERS_AS_ROOT),
    ("landlock", "", "user", OTHERS),
    ("none", "", "root" if os.getuid() == 0 else "user", None),
]


@pytest.fixture
def program_of(worked, system_bubblewrap):
    """A sandbox as the probes take it. Skips the test where the machine has none."""

    def program_of(name):
        if name == "system":
            if system_bubblewrap is None:
                pytest.skip("there is no bubblewrap of the system")
            return str(system_bubblewrap)
        worked("bubblewrap-bundled" if name == "bundled" else name)
        return name

    return program_of


@pytest.mark.parametrize("row", ROWS, ids=[" ".join(filter(None, row[:3])) for row in ROWS])
def test_nothing_outside_of_the_workspace_can_be_changed(row, program_of, record_property):
    """In a mount namespace of their own, of which nothing is seen outside."""
    name, way, who, passed = row
    if who == "root" and os.getuid():
        pytest.skip("root: a user does not become root")
    program = program_of(name)
    user = 0 if who == "root" else os.getuid() or SOMEBODY
    apart = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]
    # Not pytest's directory, which others may not search.
    with tempfile.TemporaryDirectory(prefix="callboard-probes-") as directory:
        Path(directory).chmod(0o755)
        command = [*apart, sys.executable, "-B", str(PROBES), program, way or "-", str(user), directory]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in ran.stderr or "'mount'" in ran.stderr:
        pytest.skip(f"there is no private mount namespace: {ran.stderr.splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    escaped = {probe for probe, what in found.items() if what != "blocked"}
    if passed is None:
        assert sorted(found) == sorted(EVERYWHERE)
        assert not escaped
        return
    label = " ".join(filter(None, (name, way, who)))
    record_property("sandbox probes", f"{label}: {len(found) - len(escaped)}/{len(found)}")
    assert escaped == passed, ran.stderr
    assert len(found) >= FEWEST
    assert set(EVERYWHERE) <= set(found)


def test_the_docs_say_what_is_tried_and_what_is_not_blocked():
    here = Path(__file__)
    outside = re.findall(r'self\.(?:shell|python)\(\s*"([^"]+)"', PROBES.read_text(encoding="utf-8"))
    tried = here.with_name("inside.py").read_text(encoding="utf-8")
    inside = [*re.findall(r"@tries\ndef (\w+)", tried), *re.findall(r'^    "(.+)": lambda: ', tried, re.MULTILINE)]
    made = [*outside, *(name.replace("_", " ") for name in inside), "TIOCSTI", "TIOCLINUX", "change anything of it all"]
    page = (here.parents[2] / "docs/sandbox.md").read_text(encoding="utf-8").partition("## What is tried")[2]
    tables = re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE)
    tables = [row for row in tables if not row[0].startswith("---")]
    end = tables.index(("where", "not blocked"))
    assert sorted(name for _, names in tables[1:end] for name in names.split(", ")) == sorted(set(made))
    said = dict(tables[end + 1 :])
    assert set(said["bubblewrap, started direct"].split(", ")) == TIMES_OF_DEVICES
    assert set(said["Landlock"].split(", ")) == OTHERS
    assert set(said["Landlock, as root"].split(", ")) == OTHERS_AS_ROOT
