"""The promises of docs/security.md are the names of tests."""

import ast
import re
from pathlib import Path

from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
PROMISE = re.compile(r"^- (?P<sentence>.+?)\. `(?P<path>tests/[\w/]+\.py)`(?: \([^)]*\))?$")
LINES = [line for line in (ROOT / "docs/security.md").read_text("utf-8").splitlines() if line.startswith("- ")]


def name_of(sentence: str) -> str:
    """The test's name: the sentence in lower case, words joined, without apostrophes and marks."""
    words = re.sub(r"[^a-z0-9]+", "_", sentence.lower().replace("'", "")).strip("_")
    return f"test_{words}"


def names_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@table("line", LINES)
def test_each_promise_is_the_name_of_a_test(line):
    promise = PROMISE.match(line)
    assert promise, "a promise is written: - Sentence. `tests/file.py`"
    assert name_of(promise["sentence"]) in names_in(ROOT / promise["path"])


def test_there_are_promises_about_each_part():
    titles = re.findall(r"^## (.+)$", (ROOT / "docs/security.md").read_text("utf-8"), re.MULTILINE)
    assert len(titles) == 11
    assert len(LINES) > 80
