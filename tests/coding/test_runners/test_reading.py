"""What runners printed, and what is read from it: recorded outputs, whole, cut anywhere, and spoilt."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.test_runners import RUNNERS, ProjectFolder
from callboard.coding.test_runners.python import UNITTEST
from callboard.coding.test_runners.report import MAX_LINE, make_report, strip_terminal_codes

VECTORS = Path(__file__).parents[2] / "vectors" / "runners"
CASES = tomllib.loads((VECTORS / "cases.toml").read_text())["case"]
BY_NAME = {runner.name: runner for runner in (*RUNNERS, UNITTEST)}
FOLDER = ProjectFolder(root="/home/dev/calc", texts={"go.mod": "module example.org/calc\n"})


def read(name, output, code):
    runner = BY_NAME[name]
    tally = runner.parse(strip_terminal_codes(output), code, FOLDER)
    return make_report(tally, runner=name, command=("test",), code=code, output=output, root=FOLDER.root)


def text_of(case):
    return (VECTORS / case["output"]).read_text()


@table("case", CASES, ids=lambda case: case["output"].removesuffix(".txt"))
def test_what_was_recorded(case):
    report = read(case["runner"], text_of(case), case["code"])
    assert [report.passed, report.failed, report.skipped, report.errors] == case["counts"]
    assert (report.complete, report.is_good) == (case["complete"], case["good"])
    told = [[each.name, each.location, each.message.split("\n")[0][:110]] for each in report.failures]
    assert told == case.get("failures", [])


def test_every_recording_has_a_case():
    assert sorted(path.name for path in VECTORS.glob("*.txt")) == sorted(case["output"] for case in CASES)


@table("case", [case for case in CASES if not case["good"]], ids=lambda case: case["output"])
def test_no_run_that_failed_becomes_good(case):
    """Whatever tests print, before or after what their runner says: the exit code rules."""
    for good in [text_of(each) for each in CASES if each["good"]]:
        for output in (text_of(case) + good, good + text_of(case)):
            if case["code"]:
                assert not read(case["runner"], output, case["code"]).is_good
            assert not read(case["runner"], output, None).is_good


@table("case", [case for case in CASES if case["good"] and case["runner"] != "make"], ids=lambda case: case["output"])
def test_a_run_that_was_cut_is_not_good(case):
    """Its runner says at the end what came of it; where that is missing, it is not known."""
    lines = text_of(case).splitlines(keepends=True)
    for end in range(len(lines) // 2):
        assert not read(case["runner"], "".join(lines[:end]), 0).is_good


@given(case=st.sampled_from(CASES), data=st.data())
def test_spoilt_output_is_read_without_complaint(case, data):
    text = text_of(case)
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    put = data.draw(st.text(max_size=40))
    name = data.draw(st.sampled_from(sorted(BY_NAME)))
    report = read(name, text[:begin] + put + text[end:], data.draw(st.sampled_from([0, 1, 2, None])))
    assert report.passed >= 0
    assert report.summary.startswith(f"{name}: ")


@table("piece", ["=", "_", "= ", "_ ", "(", "at (", "1 a", "a:1:", "● ", "' panicked at ", "---- ", "{", "\\u"])
@table("name", sorted(BY_NAME))
def test_a_hostile_line_costs_no_more_than_its_length(name, piece):
    read(name, piece * 200_000, 1)
    read(name, f"{piece * 50}\n" * 3000, 1)


def test_colours_and_long_lines():
    assert strip_terminal_codes("\x1b[1m\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n") == "red link\n"
    assert len(strip_terminal_codes("x" * 10_000)) == MAX_LINE


def test_the_words_for_models():
    case = next(case for case in CASES if case["output"] == "pytest-failed.txt")
    report = read("pytest", text_of(case), 1)
    assert report.summary.splitlines()[:5] == [
        "pytest: 3 failed, 1 error, 2 passed, 2 skipped",
        "- tests/test_calc.py::test_add (tests/test_calc.py:14)",
        "    assert -1 == 5",
        "     +  where -1 = add(2, 3)",
        "- tests/test_calc.py::test_zero[0] (tests/test_calc.py:19)",
    ]
    many = "".join(
        f"{'=' * 70}\nFAIL: test_{number} (t.T.test_{number})\n{'-' * 70}\n{'long ' * 500}\n\n" for number in range(500)
    )
    report = read("unittest", many + f"{'-' * 70}\nRan 500 tests in 1.0s\n\nFAILED (failures=500)\n", 1)
    assert (report.failed, report.passed, len(report.failures)) == (500, 0, 200)
    assert len(report.summary) < 12_000
    assert "more: test_" in report.summary


@pytest.mark.parametrize(
    ("name", "output", "code", "headline"),
    [
        ("pytest", "", 0, "pytest: no tests ran; the run ended early, with exit code 0"),
        (
            "pytest",
            "=== 3 passed in 0.1s ===\nFAIL Required test coverage of 90%",
            1,
            "pytest: 3 passed; but the exit code is 1",
        ),
        ("pytest", "3 passed, 1 warning in 61.20s (0:01:01)", 0, "pytest: 3 passed"),
        ("pytest", "1 passed, 2 subtests passed in 0.1s", 0, "pytest: 1 passed"),
        ("pytest", "== 1 failed, 3 passed, 2 subtests failed in 0.12 seconds ==", 1, "pytest: 3 failed, 3 passed"),
        (
            "pytest",
            "= 4 passed, 1 xfailed, 2 xpassed, 9 deselected, 3 rerun in 9.0s =",
            0,
            "pytest: 6 passed, 1 skipped",
        ),
        (
            "pytest",
            "2 passed, 1 skipped, 5 subtests skipped in 90061.00s (1 day, 1:01:01)",
            0,
            "pytest: 2 passed, 1 skipped",
        ),
        ("pytest", "1 failed, 1 passed, 2 errors in 0.1s", 1, "pytest: 1 failed, 2 errors, 1 passed"),
        ("pytest", "no tests ran in 0.01s", 5, "pytest: no tests ran; but the exit code is 5"),
        (
            "unittest",
            f"{'-' * 70}\nRan 0 tests in 0.0s\n\nNO TESTS RAN\n",
            5,
            "unittest: no tests ran; but the exit code is 5",
        ),
        ("make", "anything", 0, "make: 1 passed"),
        ("make", "=== 3 passed in 0.1s ===\n", 0, "make: 3 passed"),
        ("make", "=== 3 passed in 0.1s ===\n", 2, "make: 3 passed; but the exit code is 2"),
    ],
)
def test_headlines(name, output, code, headline):
    assert read(name, output, code).headline == headline
