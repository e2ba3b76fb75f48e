"""The outline of a source text, and its first syntax error, by a process that parses texts.

Laws: a text that cannot be parsed gives None and harms nothing else; it is not parsed twice. The process ends with
ours, however ours ends.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from callboard.coding.outlines import worker
from callboard.coding.outlines.languages import Language, ParsedText, find_language
from callboard.coding.outlines.tree_walk import MAX_BYTES

START: Final = 10.0
"""Seconds more for the first answer, while the process starts."""
PATIENCE: Final = 12.0
"""Seconds for an answer; the process ends itself before."""
MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
REMEMBERED: Final = 32
"""Texts whose answers are cached: an edit asks about the same ones several times."""

_DECODER: Final[msgspec.json.Decoder[ParsedText | None]] = msgspec.json.Decoder(ParsedText | None)


class ParserProcess:
    """One process, started at the first request, and again after it has ended. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._known: OrderedDict[tuple[str, bytes], ParsedText | None] = OrderedDict()

    def parse(self, text: str, language: Language) -> ParsedText | None:
        """Parse a text; None if there is no grammar, or not within the limits."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_BYTES:
            return None
        key = (language.name, hashlib.blake2b(data, digest_size=16).digest())
        with self._lock:
            if key not in self._known:
                self._known[key] = self._ask_process(language.name, data)
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # Nobody needs the unwritten input any more.
                with suppress(OSError):
                    stream.close()
        if self._owner == os.getpid():
            process.kill()
            process.wait()

    def _ask_process(self, name: str, data: bytes) -> ParsedText | None:
        try:
            process, patience = self._ensure_running()
            answer = _exchange(process, f"{name} {len(data)}\n".encode() + data, patience)
            return _DECODER.decode(answer)
        except (OSError, EOFError, ValueError):
            # It crashed or took too long, or it cannot be started: the next text gets a new one.
            self.close()
            return None

    def _ensure_running(self) -> tuple[subprocess.Popen[bytes], float]:
        if self._owner != os.getpid():  # after a fork it is another's
            self.close()
        if self._process is not None and self._process.poll() is None:
            return self._process, PATIENCE
        self.close()
        self._process = _start_process()
        self._owner = os.getpid()
        return self._process, START + PATIENCE


def _start_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-I", str(Path(worker.__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _exchange(process: subprocess.Popen[bytes], request: bytes, seconds: float) -> bytes:
    """Send a request and read the answer. Raises OSError, EOFError and ValueError."""
    assert process.stdin is not None  # noqa: S101  # both are pipes
    assert process.stdout is not None  # noqa: S101
    # The process answers when it has read all of the request, so neither waits for the other.
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        process.stdin.write(request)
        process.stdin.flush()
        size = int(process.stdout.readline() or -1)
        if size > MAX_ANSWER:
            raise ValueError("too long an answer")
        answer = process.stdout.read(max(size, 0))
    finally:
        timer.cancel()
    if size < 0 or len(answer) < size:
        raise EOFError
    return answer


_PARSER: Final = ParserProcess()
atexit.register(_PARSER.close)
parse: Final = _PARSER.parse


def make_outline(text: str, path: str) -> ParsedText | None:
    """Parse a text; None if it cannot be parsed. The path says which language it is in."""
    language = find_language(path)
    return parse(text, language) if language is not None else None


def find_syntax_error(text: str, path: str) -> int | None:
    """Return the line, from 1, of the first syntax error; None if there is none, or the text cannot be parsed."""
    parsed = make_outline(text, path)
    return parsed.broken if parsed is not None else None
