from __future__ import annotations

import io
import json

from callboard.coding.search.python_worker import MAX_LINES, serve


def answers(pattern, *texts, ignore_case=False):
    asked = json.dumps([pattern, ignore_case]).encode() + b"\n"
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        asked += len(data).to_bytes(8, "big") + data
    answered = io.BytesIO()
    serve(io.BytesIO(asked), answered)
    return [json.loads(line) for line in answered.getvalue().splitlines()]


def test_each_text_has_an_answer():
    assert answers("a$", "a\nb\nba\n", "", "x", "a") == [[1, 3], [], [], [1]]
    assert answers("A", "a", ignore_case=True) == [[1]]
    assert answers("^$", "\n\n", "a\n\n") == [[1, 2], [2]]


def test_numbers_are_bounded():
    assert len(answers("", "\n" * 5000)[0]) == MAX_LINES
