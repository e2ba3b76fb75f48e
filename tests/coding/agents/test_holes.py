"""Jobs that ask a model for one line at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.agents.holes import BETWEEN, MAX_HOLES, SAMPLES, Attempts, Hole, find_holes
from callboard.coding.agents.prompts import Part
from callboard.core import ReplyFailed
from callboard.providers.local.fill import HOLE

DEBUG = {"description": "test_add fails"}
SAME = "calc.py\n```python\ndef add(a, b):\n    return a ^ b\n```"
CODE = '"""Sums."""\n\n\ndef add(a, b):\n    # Adds.\n    total = a ^ b\n    return total\n\n\ndef other():\n    return 0\n'


@pytest.fixture
def sums(repository):
    (repository.root / "calc.py").write_text(CODE)
    repository.commit("Sums")
    return repository


def test_a_line_that_the_model_does_not_see_is_written_again(run, sums):
    done = run("debug", DEBUG, [SAME], fills=["def add(a, b):", "total = a + b"])
    assert (done.job.state, done.job.rounds, done.job.output.files) == ("completed", 3, ("calc.py",))
    assert sums.git("show", f"{done.job.output.branch}:calc.py") == CODE.replace("a ^ b", "a + b")
    first, second = done.prompts[1:]
    assert f"\n{HOLE}\n    # Adds." in first
    assert f"    # Adds.\n    {HOLE}\n    return total" in second
    assert "a ^ b" not in second
    assert second.startswith("# ")
    assert "assert 1 == 5" in second.partition('"""Sums."""')[0]


@pytest.mark.usefixtures("sums")
def test_whole_functions_are_asked_for_again_after_some_lines(run):
    fills = [
        "def add(a, b):",
        "total = b ^ a",
        "return 0",
        *[f"def add{number}(a, b):" for number in range(BETWEEN - 3)],
    ]
    done = run("debug", DEBUG, [SAME, SAME], fills=[*fills, "return a + b"])
    assert done.job.state == "completed"
    assert [HOLE in each for each in done.prompts] == [False, *[True] * BETWEEN, False, True]
    asked = [each.controls for each in done.model.filler.requests]
    assert [each.temperature for each in asked[:9]] == [0.0] * 5 + [0.8, 0.8, 1.0, 0.8]
    assert [each.stop for each in asked[5:8]] == [("\n",), ("\n    # Adds.",), ("\n",)]
    assert len({each.seed for each in asked}) == len(asked)
    assert done.model.requests[1].controls.temperature == 0.4


@pytest.mark.usefixtures("sums")
def test_a_model_that_cannot_write_lines_is_asked_for_whole_functions(run):
    right = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```"
    cannot = ReplyFailed("provider", "infill", "it has no such tokens")
    done = run("debug", DEBUG, [SAME, right], fills=[[cannot]])
    assert (done.job.state, len(done.prompts)) == ("completed", 3)
    assert "it has no such tokens" in done.notices
    # A line that was not written is no wrong answer.
    assert "no code in a fence" not in " ".join([*done.notices, *done.prompts])


def test_two_faults_are_mended_line_by_line(run, repository):
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a ^ b\n\n\ndef double(a):\n    return a\n")
    test = "import calc\n\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n\n\ndef test_double():\n    assert calc.double(2) == 4\n"
    (repository.root / "test_calc.py").write_text(test)
    repository.commit("Two faults")
    fills = ["def add(a, b):", "return a + b", "def double(a):", "return 2 * a"]
    done = run("debug", DEBUG, [SAME, SAME], fills=fills)
    assert done.job.state == "completed"
    code = repository.git("show", f"{done.job.output.branch}:calc.py")
    assert code == "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"


@pytest.mark.parametrize("rule", ['ask = ["put_code"]', 'deny = ["put_code(calc.py)"]', 'deny = ["file"]'])
@pytest.mark.usefixtures("sums")
def test_nobody_is_asked_about_single_lines(run, rule):
    done = run("debug", DEBUG, [SAME, SAME], fills=[], rounds=2, settings=f"[permissions]\n{rule}\n")
    assert len(done.prompts) == 2
    assert not [each for each in done.prompts if HOLE in each]
    assert len(done.asked) == 2 * rule.startswith("ask")


@pytest.mark.usefixtures("sums")
def test_a_line_with_which_the_file_does_not_parse_is_not_tested(run):
    done = run("debug", DEBUG, [SAME], fills=["def add(a, b:", "total = a + b"])
    assert (done.job.state, done.job.rounds) == ("completed", 3)
    assert "does not parse" in done.results[1]
    assert done.notices.count("running the tests") == 3


def test_a_mark_of_the_encoding_stays_and_is_not_part_of_a_line(run, repository):
    (repository.root / "calc.py").write_bytes(b"\xef\xbb\xbfdef add(a, b):\r\n\treturn a ^ b")
    repository.commit("A file of Windows")
    done = run("debug", DEBUG, [SAME], fills=["def add(a, b):", "return a + b"])
    assert "\ufeff" not in " ".join(done.prompts)
    assert not [each for each in done.results if "nothing would change" in each]
    code = repository.git("cat-file", "blob", f"{done.job.output.branch}:calc.py")
    assert code == "\ufeffdef add(a, b):\n\treturn a + b"


def test_lines_that_the_tests_do_not_name_are_asked_for_too(run, repository):
    (repository.root / "calc.py").write_text("import math\n\nLIMIT = 9\n\n\ndef add(a, b):\n    return a ^ b\n")
    test = "import calc\n\n\ndef test_add():\n    assert getattr(calc, 'ad' + 'd')(2, 3) == 5\n    assert calc.LIMIT == 9\n"
    (repository.root / "test_calc.py").write_text(test)
    repository.commit("A function without its name")
    done = run("debug", DEBUG, [SAME], fills=["LIMIT = 9", "def add(a, b):", "return a + b"])
    assert (done.job.state, done.job.rounds) == ("completed", 4)


def test_lines_that_the_tests_use_come_first_and_imports_never():
    lines = ["import os", "a = 1", "b = 2", "c = 3"]
    holes = find_holes([Part("a.py", 3, 3), Part("a.py", 1, 4)], lambda _: lines, "")
    assert [each.line for each in holes] == [3, 2, 4]


LINES = st.lists(st.sampled_from(["a = 1", "    return a", "# a", "", '"""a', "if a:", "\tb()", ")"]), max_size=60)


@given(LINES)
def test_the_line_in_the_hole_makes_the_file_again(lines):
    holes = [*find_holes([Part("a.py", 1, len(lines)), Part("a.py", 2, 3)], lambda path: lines, "wrong\nvalue")]
    assert len(holes) <= MAX_HOLES
    assert len({each.line for each in holes}) == len(holes)
    for each in holes:
        assert each.prompt.count(HOLE) == 1
        assert each.prompt.replace(HOLE, each.text) == "\n".join(["# wrong", "# value", *lines, ""])
        assert [each.next_line] == (lines[each.line : each.line + 1] or [""])


@given(st.integers(0, 40), st.integers(0, 9), st.integers(0, 100))
def test_each_line_is_asked_for_in_turn(begin, count, more):
    attempts = Attempts(begin)
    attempts.begin(begin, [Hole("a.py", number, "", "", "") for number in range(count)])
    asked, temperatures = [], []
    for number in range(begin, begin + more + 1):
        attempts.number = number
        asked.append(attempts.hole.line if attempts.hole else None)
        if attempts.hole:
            temperatures.append(attempts.controls.temperature)
        assert attempts.answers == asked[:-1].count(None)
    places = range(0, more + 1, 1 + BETWEEN) if count else range(more + 1)
    assert [place for place, line in enumerate(asked) if line is None] == [*places]
    lines = [line for line in asked if line is not None]
    later = [line for line in range(count) for _ in SAMPLES] * len(lines)
    assert lines == [*range(count), *later][: len(lines)]
    assert temperatures[:count] == [0.0] * min(count, len(lines))
    assert 0.0 not in temperatures[count:]
