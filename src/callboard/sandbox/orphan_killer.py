"""Kill sandboxes that outlive us when we are killed.

A watcher process starts with our first sandbox. When we are killed, it removes our private copy of bubblewrap, and kills
every process that has our mark on its command line. Bubblewrap ends with its parent, except while it starts: then its
first process waits for ever for one that is gone (https://github.com/containers/bubblewrap/issues/633). On a busy
machine that start takes long.
Law: the watcher does nothing if we end on our own.
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
[ -z "$1" ] || rm -rf "$1"
for pause in 1 1 1 2 3 5; do
    sleep $pause
    for each in /proc/[0-9]*; do
        [ "$each" = "/proc/$$" ] || ! grep -qs "$0" "$each/cmdline" || kill -KILL "${each#/proc/}"
    done
done
"""
# In the background of a shell that ends: no child of ours, so a program that waits for its children does not meet it.
_BEHIND: Final = 'exec 3<&0; "$@" <&3 3<&- &'


@cache
def start_watcher(directory: str) -> str:
    """Start the watcher; return the mark that the command lines of our sandboxes must have.

    Args:
        directory: The directory to remove, "" for none.
    """
    name = f"callboard-{secrets.token_hex(12)}"
    reading, writing = os.pipe()
    command = ["/bin/sh", "-c", _BEHIND, "sh", "/bin/sh", "-c", _SCRIPT, name, directory]
    try:
        subprocess.run(  # noqa: S603  # our own script, and a name that we made
            command, stdin=reading, stdout=DEVNULL, stderr=DEVNULL, cwd="/", start_new_session=True, check=True
        )
    finally:
        os.close(reading)
    atexit.register(os.write, writing, b"\n")
    return name
