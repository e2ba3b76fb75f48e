"""A command that fills the disk, on a small one of its own."""

import os
import subprocess
import sys

import pytest

FILLS = """
import asyncio, subprocess, sys
from pathlib import Path
from callboard.sandbox import CommandLimits, Confinement, find_sandbox
from callboard.sandbox.process import free_bytes

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)

async def main():
    sandbox = await find_sandbox(unconfined=sys.argv[2] == "none", prefer="" if sys.argv[2] == "none" else sys.argv[2])
    command = ["/bin/sh", "-c", "head -c 60000000 /dev/zero > full; sleep 4711"]
    outcome = await sandbox.run(command, Confinement(workspace=place, read_only=()))
    print(outcome.stop_reason, free_bytes(place) > 0)
    little = ["/bin/sh", "-c", "rm full; head -c 1000000 /dev/zero > some; echo wrote"]
    print((await sandbox.run(little, Confinement(workspace=place, read_only=()))).output)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["bubblewrap", "none"])
def test_who_takes_the_disks_room_is_ended(tmp_path, worked, name):
    worked(name)
    apart = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]
    ran = subprocess.run(
        [*apart, sys.executable, "-c", FILLS, str(tmp_path), name], capture_output=True, text=True, check=False
    )
    if "unshare failed" in ran.stderr or "'mount'" in ran.stderr:
        pytest.skip(f"there is no private mount namespace: {ran.stderr.splitlines()[-1]}")
    assert ran.stdout.splitlines() == ["disk True", "b'wrote\\n'"], ran.stderr
