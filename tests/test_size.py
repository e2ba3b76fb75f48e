"""The size of the house: lines of Python in each room, and how many files there are.

A new feature takes its lines from something else, or raises a budget in a commit that says why. The total may not grow.
"""

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/callboard"
BUDGETS = {
    "servers": 15_958,
    "coding": 13_366,
    "wires": 9_314,
    "cli": 7_829,
    "jobs": 7_259,
    "dialects": 6_282,
    "mcp": 4_050,
    "providers": 3_783,
    "sandbox": 3_339,
    "evaluation": 2_902,
    "agent": 2_575,
    "tools": 2_337,
    "modes": 2_143,
    "schema": 2_056,
    "loop": 1_924,
    "configuration": 1_905,
    "execution": 1_815,
    "core": 1_322,
    "telemetry": 1_272,
    "text": 1_204,
    "testing": 1_056,
    "profiles": 761,
    "adapters": 732,
    "storage": 484,
    "root": 363,
}
"""Lines of each room, and of the modules beside the rooms ("root")."""
FILES = 540
TEST_LINES = 96_407


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
