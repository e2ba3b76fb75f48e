"""Recorded outputs and report files: what is read from them whole, cut anywhere, and spoilt."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.test_runners import RUNNERS, ProjectFolder
from callboard.coding.test_runners.report import MAX_LINE, TestOutput, make_report, strip_terminal_codes

VECTORS = Path(__file__).parents[2] / "vectors" / "runners"
CASES = tomllib.loads((VECTORS / "cases.toml").read_text())["case"]
BY_NAME = {runner.name: runner for runner in RUNNERS}
FOLDER = ProjectFolder(root="/home/dev/calc", texts={"go.mod": "module example.org/calc\n"})


def read(name, output, code, reports=None):
    runner = BY_NAME[name]
    tally = runner.parse(TestOutput(text=strip_terminal_codes(output), code=code, reports=reports or {}), FOLDER)
    return make_report(tally, runner=name, command=("test",), code=code, output=output, root=FOLDER.root)


def text_of(case):
    return (VECTORS / case["output"]).read_text()


def reports_of(case):
    """The report files of a case, by the names under which their runner writes them."""
    name = case["output"].removesuffix(".txt")
    paths = [VECTORS / f"{name}{suffix}" for suffix in (".xml", ".json")]
    return {f"{name.partition('-')[0]}{path.suffix}": path.read_bytes() for path in paths if path.exists()}


@table("case", CASES, ids=lambda case: case["output"].removesuffix(".txt"))
def test_what_was_recorded(case):
    report = read(case["runner"], text_of(case), case["code"], reports_of(case))
    assert [report.passed, report.failed, report.skipped, report.errors] == case["counts"]
    assert (report.complete, report.is_good) == (case["complete"], case["good"])
    told = [[each.name, each.location, each.message.split("\n")[0][:110]] for each in report.failures]
    assert told == case.get("failures", [])


def test_every_recording_has_a_case():
    assert sorted(path.name for path in VECTORS.glob("*.txt")) == sorted(case["output"] for case in CASES)


@table("case", [case for case in CASES if not case["good"]], ids=lambda case: case["output"])
def test_no_run_that_failed_becomes_good(case):
    """Whatever tests print, and whatever reports they write: the exit code decides."""
    for good in [each for each in CASES if each["good"]]:
        for output in (text_of(case) + text_of(good), text_of(good) + text_of(case)):
            for reports in (reports_of(case), reports_of(good), {**reports_of(good), **reports_of(case)}):
                if case["code"]:
                    assert not read(case["runner"], output, case["code"], reports).is_good
                assert not read(case["runner"], output, None, reports).is_good


REPORTED = [case for case in CASES if case["good"] and reports_of(case)]


@table("case", REPORTED, ids=lambda case: case["output"])
def test_a_report_that_was_cut_is_not_good(case):
    """A runner writes its report at the end. Without the whole report, nobody knows what was tested."""
    assert not read(case["runner"], text_of(case), 0).is_good
    ((name, data),) = reports_of(case).items()
    for end in range(len(data.rstrip())):
        assert not read(case["runner"], text_of(case), 0, {name: data[:end]}).is_good


@given(case=st.sampled_from(CASES), data=st.data())
def test_spoilt_output_is_read_without_complaint(case, data):
    def spoil(text, junk):
        begin, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        return text[:begin] + junk + text[end:]

    name = data.draw(st.sampled_from(sorted(BY_NAME)))
    reports = {key: spoil(report, data.draw(st.binary(max_size=40))) for key, report in reports_of(case).items()}
    text = spoil(text_of(case), data.draw(st.text(max_size=40)))
    report = read(name, text, data.draw(st.sampled_from([0, 1, 2, None])), reports)
    assert report.passed >= 0
    assert report.summary.startswith(f"{name}: ")


@table("piece", ["=", "_", "= ", "_ ", "(", "at (", "1 a", "a:1:", "● ", "' panicked at ", "---- ", "{", "\\u"])
@table("name", sorted(BY_NAME))
def test_a_hostile_line_costs_no_more_than_its_length(name, piece):
    for text in (piece * 200_000, f"{piece * 50}\n" * 3000):
        read(name, text, 1, {"pytest.xml": text.encode(), "jest.json": text.encode()})


def test_colours_and_long_lines():
    assert strip_terminal_codes("\x1b[1m\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n") == "red link\n"
    assert len(strip_terminal_codes("x" * 10_000)) == MAX_LINE


def test_the_words_for_models():
    case = next(case for case in CASES if case["output"] == "pytest-failed.txt")
    report = read("pytest", text_of(case), 1, reports_of(case))
    assert report.summary.splitlines()[:5] == [
        "pytest: 3 failed, 1 error, 2 passed, 2 skipped",
        "- tests/test_calc.py::test_add (tests/test_calc.py:14)",
        "    assert -1 == 5",
        "     +  where -1 = add(2, 3)",
        "- tests/test_calc.py::test_zero[0] (tests/test_calc.py:19)",
    ]
    text = "long " * 500
    many = "".join(
        [f'<testcase name="t.T.test_{number}"><failure>{text}</failure></testcase>' for number in range(500)]
    )
    report = read("unittest", "", 1, {"unittest.xml": f"<testsuite>{many}</testsuite>".encode()})
    assert (report.failed, report.passed, len(report.failures)) == (500, 0, 200)
    assert len(report.summary) < 12_000
    assert "more: t.T.test_" in report.summary


CASE = '<testsuite><testcase name="a" classname="a"/></testsuite>'
NONE = "<testsuite></testsuite>"


@pytest.mark.parametrize(
    ("name", "output", "report", "code", "headline"),
    [
        ("pytest", "", "", 0, "pytest: no tests ran; the run ended early, with exit code 0"),
        ("pytest", "=== 3 passed in 0.1s ===", "", 0, "pytest: no tests ran; the run ended early, with exit code 0"),
        ("pytest", "FAIL Required test coverage of 90%", CASE, 1, "pytest: 1 passed; but the exit code is 1"),
        ("pytest", "no tests ran in 0.01s", NONE, 5, "pytest: not tested: no tests were found"),
        ("unittest", "Ran 0 tests in 0.0s\n\nNO TESTS RAN\n", NONE, 5, "unittest: not tested: no tests were found"),
        ("tox", "anything", "", 0, "tox: 1 passed"),
        ("tox", "anything", CASE, 1, "tox: 1 passed; but the exit code is 1"),
        ("tox", "anything", CASE.replace("/><", "><skipped/></testcase><"), 0, "tox: 1 skipped"),
        ("nox", "=== 3 passed in 0.1s ===", "", 1, "nox: 1 failed"),
        ("make", "anything", "", 0, "make: 1 passed"),
        ("make", "=== 3 passed in 0.1s ===\n", "", 0, "make: 1 passed"),
        ("make", "", CASE.replace("<testcase", '<testcase name="b"/><testcase'), 0, "make: 2 passed"),
        ("make", "", CASE, 2, "make: 1 passed; but the exit code is 2"),
        ("cargo test", "test result: ok. 9 passed; 0 failed", "", 0, "cargo test: not tested: no tests were found"),
        (
            "cargo test",
            "error: unclosed table",
            "",
            101,
            "cargo test: no tests ran; the run ended early, with exit code 101",
        ),
        (
            "cargo test",
            "running 2 tests\ntest a ... ok\n   Doc-tests x\n",
            "",
            0,
            "cargo test: 1 passed; the run ended early, with exit code 0",
        ),
    ],
)
def test_headlines(name, output, report, code, headline):
    reports = {"pytest.xml": report.encode()} if report else {}
    assert read(name, output, code, reports).headline == headline


def go_events(*lines):
    """The events of a test that prints these lines and fails, then passes when it is repeated."""
    package = {"Package": "example.org/calc"}
    test = {**package, "Test": "TestX"}
    events = [{"Action": "start", **package}, *({"Action": "output", "Output": f"{line}\n", **test} for line in lines)]
    events += [{"Action": "fail", **test}, {"Action": "pass", **test}, {"Action": "fail", **package}]
    return "\n".join(map(json.dumps, events))


def cargo_error(message):
    spans = [{"file_name": "src/lib.rs", "line_start": 7, "is_primary": True}]
    return json.dumps({"reason": "compiler-message", "message": {"message": message, "level": "error", "spans": spans}})


def node_report(name, text):
    return f"<testsuites><testcase name='{name}'><failure message='x'>{text}</failure></testcase></testsuites>".encode()


@table(
    ("text", "location"),
    [
        ("server.py:80: is down", ""),
        ("127.0.0.1:80: refused", ""),
        ("x_test.py:3: in test_x\n    f()\nx.py:7: in f\nE   ValueError: y.py:9: bad", "x.py:7"),
        ("Expected:\n    1\n\n/home/dev/calc/x.py:7: DocTestFailure", "x.py:7"),
    ],
)
def test_the_location_of_a_failure_of_pytest(text, location):
    assert read("pytest", "", 1, {"pytest.xml": node_report("t", text)}).failures[0].location == location


@table(
    ("name", "text", "location"),
    [
        ("t", "Error: bad\n    at 10:04:31\n    10:05:31\n    at f (/home/dev/calc/x.js:7:12)", "x.js:7"),
        ("t", "Error: bad\n    at file:///home/dev/calc/x.mjs?v=3:7:12", "x.mjs?v=3:7"),
        ("adds numbers", "oops", ""),
        ("/home/dev/calc/x.test.js", "[Error: test failed]", "x.test.js:1"),
    ],
)
def test_the_location_of_a_failure_of_node(name, text, location):
    assert read("npm test", "", 1, {"node.xml": node_report(name, text)}).failures[0].location == location


@table(
    ("name", "output", "location"),
    [
        ("go test", go_events("server.go:10: listening", "    x_test.go:9: bad"), "x_test.go:9"),
        ("go test", go_events(f"    x_test.go:9: {'x' * MAX_LINE}"), "x_test.go:9"),
        ("cargo test", cargo_error("x" * MAX_LINE), "src/lib.rs:7"),
        ("make", "127.0.0.1:8080: connection failed\nsrc/x.c:3:4: error: bad", "src/x.c:3"),
    ],
)
def test_the_location_of_a_failure(name, output, location):
    assert read(name, output, 1).failures[0].location == location
