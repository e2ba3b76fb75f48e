"""The size of the house: lines of Python in each room, and how many files there are.

A new feature takes its lines from something else, or raises a budget in a commit that says why. The total may not grow.
"""

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/callboard"
BUDGETS = {
    "servers": 17_863,
    "coding": 16_438,
    "cli": 9_262,
    "wires": 8_851,
    "jobs": 7_439,
    "dialects": 6_539,
    "providers": 5_152,
    "mcp": 3_812,
    "evaluation": 3_529,
    "sandbox": 3_348,
    "agent": 2_511,
    "tools": 2_370,
    "configuration": 2_279,
    "schema": 2_011,
    "modes": 1_971,
    "loop": 1_880,
    "execution": 1_710,
    "core": 1_401,
    "telemetry": 1_306,
    "text": 1_306,
    "testing": 1_037,
    "profiles": 797,
    "adapters": 737,
    "storage": 515,
    "root": 393,
}
"""Lines of each room, and of the modules beside the rooms ("root")."""
FILES = 558
TEST_LINES = 99_308


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
