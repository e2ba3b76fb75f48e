"""A process that parses texts.

Run by its path, in Python's isolated mode. A request is a line with a language and the number of bytes, then a text in
UTF-8. An answer is a line with its length, then JSON: the parsed text, or null. The process ends with its input.
Laws: a text that needs too much time or memory ends only this process. The process also ends when its parent ends, even
in the middle of a text.

A grammar is generated C from third parties: for `"a<" * 20_000` in Java, tree-sitter's parser takes 3.6 GiB, and for
half as many again it dies by a signal. Its own time limit is checked too seldom to stop that: the last two calls of its
callback are 30 seconds apart. So the time limit of a text grows with its size.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MEMORY = 1024 * 1024 * 1024
"""Bytes of address space. The largest ordinary text takes a third."""
SECONDS = 4.0
"""Maximum seconds of the processor for one text."""
BYTES_PER_SECOND = 128 * 1024
"""A text gets one second, and one more for each of so many bytes. Dense text needs half of it on a free processor."""
CLOCK = 10
"""Wall-clock limit for one text, in seconds; generous for a busy machine."""


def confine() -> None:
    """Limits this process. Systems without such limits (macOS has none of memory) are left with the clock."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _set_timers(clock: float, processor: float) -> None:
    """Let the kernel end this process after these seconds; 0 for never. Windows has no timers."""
    with suppress(AttributeError):
        signal.setitimer(signal.ITIMER_REAL, clock)
        signal.setitimer(signal.ITIMER_PROF, processor)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the input ends."""
    import msgspec  # noqa: PLC0415  # found on the path that is set below

    from callboard.coding.outlines.languages import LANGUAGES  # noqa: PLC0415
    from callboard.coding.outlines.tree_walk import read_tree  # noqa: PLC0415

    languages = {language.name: language for language in LANGUAGES}
    while line := requests.readline():
        name, size = line.decode().split()
        text = requests.read(int(size)).decode("utf-8", "surrogatepass")
        _set_timers(CLOCK, min(SECONDS, 1 + int(size) / BYTES_PER_SECOND))
        answer = msgspec.json.encode(read_tree(text, languages[name]))
        _set_timers(0, 0)
        answers.write(b"%d\n" % len(answer) + answer)
        answers.flush()


if __name__ == "__main__":
    # After Python's own paths: the path of callboard, unknown in isolated mode if callboard is not installed.
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    confine()
    serve(sys.stdin.buffer, sys.stdout.buffer)
