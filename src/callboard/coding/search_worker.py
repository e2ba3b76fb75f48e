"""A process that searches texts for one pattern.

Run by its path, with only Python. It reads the pattern and its flags as a line of JSON, then texts: the length in eight
bytes, then UTF-8. For each text it writes the numbers of the matching lines, as a line of JSON.
Law: the parent may kill it at any time; an endless expression stops only this process.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from typing import BinaryIO

MAX_LINES = 1000
"""Numbers of lines of one text."""


def numbers(expression: re.Pattern[str], text: str) -> Iterator[int]:
    """Return the numbers of the lines that match, from 1. An empty text has none."""
    search = expression.search
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        if search(line):
            yield number


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore")
    pattern, ignore_case = json.loads(requests.readline())
    expression = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    while len(size := requests.read(8)) == 8:
        text = requests.read(int.from_bytes(size, "big")).decode("utf-8", "surrogatepass")
        lines = [number for number, _ in zip(numbers(expression, text), range(MAX_LINES), strict=False)]
        answers.write(json.dumps(lines).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
