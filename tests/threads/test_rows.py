"""What users reported of requests, as rows of `tests/vectors/threads.jsonl`.

A row has its thread, the `front` and the `body` of a request, facts about the `backend` and the servers whose refusals hold
(`strict`). The gateway answers with `status`, what it `dropped` and an `error`; the backend is `sent` a body, or null for none.
"""

import json
from itertools import groupby
from pathlib import Path

from tests.tables import table
from tests.threads.passing import through

VECTORS = Path(__file__).parents[1] / "vectors" / "threads.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
GROUPS = {thread: list(rows) for thread, rows in groupby(ROWS, key=lambda row: row["thread"])}


@table("rows", GROUPS.values(), ids=GROUPS)
def test_a_request_reaches_the_backend_as_it_takes_it(rows):
    for (strict, facts), same in groupby(rows, key=lambda row: (row.get("strict", ()), row.get("backend", {}))):
        group = list(same)
        asks = [(row["front"], row["body"]) for row in group]
        answers, sent = through(["Hello."] * len(asks), *asks, strict=strict, **facts)
        assert [answer.status for answer in answers] == [row["status"] for row in group]
        assert [answer.headers.get("x-callboard-dropped") for answer in answers] == [
            row.get("dropped") for row in group
        ]
        assert sent == [row["sent"] for row in group if row["sent"] is not None]
        for answer, row in zip(answers, group, strict=True):
            assert answer.status == 200 or answer.body["error"] == row["error"]
            if row["body"].get("stream"):
                assert answer.events[-1]["type"] == "response.completed"
