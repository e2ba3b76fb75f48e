"""The size of the house: lines of Python in each room, and how many files there are.

A new feature takes its lines from something else, or raises a budget in a commit that says why. The total may not grow.
"""

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/callboard"
BUDGETS = {
    "servers": 15_419,
    "coding": 12_727,
    "wires": 9_005,
    "cli": 7_595,
    "jobs": 6_597,
    "dialects": 6_248,
    "mcp": 3_775,
    "providers": 3_652,
    "sandbox": 3_197,
    "evaluation": 2_770,
    "agent": 2_422,
    "tools": 2_338,
    "schema": 1_969,
    "modes": 1_953,
    "configuration": 1_905,
    "loop": 1_818,
    "execution": 1_671,
    "core": 1_365,
    "telemetry": 1_269,
    "text": 1_237,
    "testing": 1_024,
    "profiles": 761,
    "adapters": 722,
    "storage": 484,
    "root": 392,
}
"""Lines of each room, and of the modules beside the rooms ("root")."""
FILES = 492
TEST_LINES = 89_670


def count_lines(folder):
    return {path.relative_to(folder): path.read_text("utf-8").count("\n") for path in folder.rglob("*.py")}


def test_each_room_holds_its_budget():
    lines = Counter()
    for path, count in count_lines(PACKAGE).items():
        lines[path.parts[0] if len(path.parts) > 1 else "root"] += count
    assert {room: count for room, count in lines.items() if count > BUDGETS.get(room, 0)} == {}
    assert lines.keys() == BUDGETS.keys()


def test_there_are_no_more_files_and_no_more_lines_of_tests():
    assert len(count_lines(PACKAGE)) <= FILES
    assert sum(count_lines(Path(__file__).parent).values()) <= TEST_LINES
