"""Does our checker say what BFCL's official one says?

Both are asked about the same answers to every task of one turn whose calls are compared: right answers, and right ones
that were changed in one place, to other values, types, names and numbers of calls. The official checker runs in
`.venv-bfcl` (bench/bfcl.txt). Printed for each category: tasks, answers, how many the official one takes, on how many
it fails itself (ours says no), and on how many the two differ, which has to be none; then how often we give each label.

With `--write`, a choice of these answers and of what the official checker says of them is written to
tests/vectors/evaluation, where the tests find them.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from bench.contenders import ROOT, row
from bench.contenders.bfcl_answers import Call, answers

from callboard.core import InvocationCanister
from callboard.evaluation import Attempt, Judgement, Task, check_step, encode_task, load_bfcl
from callboard.evaluation.bfcl import CATEGORIES, has_answers

PYTHON = ROOT / ".venv-bfcl/bin/python"
VECTORS = ROOT / "tests/vectors/evaluation/bfcl.jsonl"
COMPARED = tuple(category for category in CATEGORIES if has_answers(category))
LONGEST = 1_500
"""Bytes of a task in the vectors."""
A_CHANGE = 1
"""Answers of each change, category and judgement in the vectors."""


class Answer(NamedTuple):
    task: Task
    change: str
    calls: list[Call]

    def judge(self) -> Judgement:
        calls = tuple(InvocationCanister(str(n), name, arguments) for n, (name, arguments) in enumerate(self.calls))
        return check_step(self.task, self.task.steps[0], Attempt(calls))


def ask_official(asked: list[Answer]) -> list[bool | None]:
    lines = [
        json.dumps(
            {"task": task.identifier, "category": task.category, "calls": [{name: given} for name, given in calls]}
        )
        for task, _, calls in asked
    ]
    command = [str(PYTHON), "-m", "bench.contenders.bfcl_"]
    ran = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False, cwd=ROOT)
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    if ran.returncode or len(said) != len(asked):
        sys.exit(f"the official checker: {ran.stderr[-500:]}")
    return said


def data_folder() -> Path:
    command = [str(PYTHON), "-m", "bench.contenders.bfcl_", "--folder"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return Path(ran.stdout.strip())


def vectors(asked: list[Answer], official: list[bool | None]) -> Iterator[bytes]:
    """The shortest tasks that have each change, in each category, with each judgement."""
    wanted: Counter[tuple[Any, ...]] = Counter()
    chosen: defaultdict[str, list[Any]] = defaultdict(list)
    tasks = {answer.task.identifier: answer.task for answer in asked}
    sizes = {name: len(encode_task(task)) for name, task in tasks.items()}
    for answer, valid in sorted(zip(asked, official, strict=True), key=lambda pair: sizes[pair[0].task.identifier]):
        key = answer.task.category, answer.change, valid
        if valid is not None and sizes[answer.task.identifier] <= LONGEST and wanted[key] < A_CHANGE:
            wanted[key] += 1
            row = {"change": answer.change, "calls": answer.calls, "valid": valid}
            chosen[answer.task.identifier].append(row)
    for name, rows in chosen.items():
        yield msgspec.json.encode({"task": msgspec.Raw(encode_task(tasks[name])), "answers": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the vectors of the tests")
    options = parser.parse_args()
    if not PYTHON.exists():
        sys.exit("BFCL is not there: make conformance-bfcl installs it in .venv-bfcl")
    tasks = load_bfcl(data_folder(), COMPARED)
    asked = [Answer(task, change, calls) for task in tasks for change, calls in answers(task)]
    official = ask_official(asked)
    judgements = [answer.judge() for answer in asked]
    print(row("", "tasks", "answers", "taken", "it fails", "differ"))
    differ = 0
    for category in (*COMPARED, ""):
        pairs = [
            (valid, judgement.solved)
            for answer, valid, judgement in zip(asked, official, judgements, strict=True)
            if answer.task.category == category or not category
        ]
        differ = sum(ours != bool(valid) for valid, ours in pairs)
        known = sum(task.category == category or not category for task in tasks)
        accepted, failed = sum(valid is True for valid, _ in pairs), sum(valid is None for valid, _ in pairs)
        print(row(category or "all", known, len(pairs), accepted, failed, differ))
    print()
    for label, count in Counter(judgement.label or "solved" for judgement in judgements).most_common():
        print(row(label, count))
    for answer, valid, judgement in [
        each for each in zip(asked, official, judgements, strict=True) if each[2].solved != bool(each[1])
    ][:10]:
        print(answer.task.identifier, answer.change, answer.calls, "official:", valid, "ours:", judgement)
    if options.write:
        VECTORS.parent.mkdir(parents=True, exist_ok=True)
        VECTORS.write_bytes(b"\n".join(vectors(asked, official)) + b"\n")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
