"""Sandboxes that outlive the process that began them.

Owns a watcher, which begins with the first sandbox of a process, and ends what has the process's mark when the process
was killed. Bubblewrap ends by itself then, but not in the moment in which it starts: its first process waits for ever
for one that is gone (https://github.com/containers/bubblewrap/issues/633). On a busy machine that moment comes late.
Law: where the process ends by itself, the watcher ends nothing.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
from functools import cache
from subprocess import DEVNULL
from typing import Final

_SCRIPT: Final = """
read -r _ && exit
for pause in 1 1 1 2 3 5; do
    sleep $pause
    for each in /proc/[0-9]*; do
        [ "$each" = "/proc/$$" ] || ! grep -qs "$0" "$each/cmdline" || kill -KILL "${each#/proc/}"
    done
done
"""
# Not a child of ours: whoever waits for theirs does not meet it.
_BEHIND: Final = 'exec 3<&0; "$@" <&3 3<&- &'


@cache
def start_watcher() -> str:
    """What the command lines of this process's sandboxes have in them; they are watched from now on."""
    name = f"callboard-{secrets.token_hex(12)}"
    reading, writing = os.pipe()
    command = ["/bin/sh", "-c", _BEHIND, "sh", "/bin/sh", "-c", _SCRIPT, name]
    try:
        subprocess.run(  # noqa: S603  # our own script, and a name that we made
            command, stdin=reading, stdout=DEVNULL, stderr=DEVNULL, cwd="/", start_new_session=True, check=True
        )
    finally:
        os.close(reading)
    atexit.register(os.write, writing, b"\n")
    return name
