"""BFCL's official checker said yes or no to these answers, and ours says the same.

`make conformance-bfcl` asks both about all answers; with OPTIONS=--write it writes this choice of them anew. The tasks are
BFCL's (https://github.com/ShishirPatil/gorilla, Apache-2.0), as `load_bfcl` reads them.
"""

import json
from pathlib import Path

from tests.tables import table

from callboard.core import InvocationCanister
from callboard.evaluation import Attempt, check_step, decode_task
from callboard.evaluation.bfcl import CATEGORIES, has_answers

ROWS = [
    json.loads(line)
    for line in Path(__file__).parents[1].joinpath("vectors/evaluation/bfcl.jsonl").read_text("utf-8").splitlines()
]


@table("row", ROWS, ids=lambda row: row["task"]["identifier"])
def test_yes_and_no_are_the_official_checkers(row):
    task = decode_task(json.dumps(row["task"]))
    judged, official = {}, {}
    for number, answer in enumerate(row["answers"]):
        calls = tuple(
            InvocationCanister(str(n), name, arguments) for n, (name, arguments) in enumerate(answer["calls"])
        )
        key = f"{number}: {answer['change']}"
        judged[key] = check_step(task, task.steps[0], Attempt(calls)).solved
        official[key] = answer["valid"]
    assert judged == official


def test_the_vectors_have_every_category_and_right_and_wrong_answers():
    pairs = {(row["task"]["category"], answer["valid"]) for row in ROWS for answer in row["answers"]}
    assert pairs == {(category, valid) for category in CATEGORIES if has_answers(category) for valid in (True, False)}
    assert len({answer["change"] for row in ROWS for answer in row["answers"]}) > 50
