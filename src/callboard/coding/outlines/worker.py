"""A process that parses texts.

Run by its path, in Python's isolated mode. It reads requests: the name of a language and how many bytes follow, on a
line, then a text in UTF-8. To each it answers with the length of what follows, on a line, and JSON: what was read, or
null. It ends when nothing more is asked.
Laws: a text that takes more time or memory than it may ends this process and nobody else's; so does the end of
whoever asks, also in the midst of a text.

A grammar is C that was generated from what others wrote: of `"a<" * 20_000` in Java, tree-sitter's parser makes
3.6 GiB, and of half as many again it ends by a signal. Its own limit of time is asked too seldom to stop that: the last
two calls of its callback are 30 seconds apart. So the time that a text may take grows with its size.
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
"""A text gets one second, and one more for so many bytes. Dense ordinary text takes half of that on a free processor."""
CLOCK = 10
"""Seconds of wall-clock time for one text, for a busy machine."""


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
    import msgspec  # noqa: PLC0415  # found behind our own place, see below

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
    # Behind what Python has itself: where callboard is, which the isolated mode does not know if it is not installed.
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    confine()
    serve(sys.stdin.buffer, sys.stdout.buffer)
