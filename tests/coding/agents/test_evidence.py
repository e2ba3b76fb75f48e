from dataclasses import dataclass

import pytest

from callboard.coding.agents.evidence import Facts, Finding, complaint, missing
from callboard.coding.agents.phases import phases_of


@dataclass
class Report:
    is_good: bool = True
    total: int = 3
    summary: str = "3 passed"


BAD = Report(is_good=False, summary="1 of 3 tests fails: test_sum")


@pytest.mark.parametrize(
    ("evidence", "facts", "lack"),
    [
        ("looked", Facts(), "no file was looked at"),
        ("looked", Facts(looked=1), ""),
        ("said", Facts(said=" \n"), "no answer in words"),
        ("said", Facts(said="The cause is x."), ""),
        ("changed", Facts(said="I changed everything. Task complete."), "no file has changed"),
        ("changed", Facts(changed=["a.py"]), ""),
        ("tests", Facts(testable=True), "have not been run"),
        ("tests", Facts(testable=True, report=BAD), "1 of 3 tests fails: test_sum"),
        ("tests", Facts(testable=True, report=Report()), ""),
        ("tests", Facts(testable=False), ""),
        ("tests", Facts(testable=True, report=Report(total=2), before=3), "only 2 tests ran, and 3 before"),
        ("tests", Facts(testable=True, report=Report(), kept=["test_a.py"]), "test_a.py may not be changed"),
        ("reproduced", Facts(said="I saw it fail."), "nothing was seen to fail"),
        ("reproduced", Facts(failed=True), ""),
        ("findings", Facts(), "no findings in the form"),
        ("findings", Facts(findings=[]), ""),
        ("findings", Facts(findings=[Finding("b.py", 1, "low", "x")], reviewed={"a.py": {1}}), "no file of the change"),
        ("findings", Facts(findings=[Finding("a.py", 1, "low", "x")], reviewed={"a.py": {1}}), ""),
        ("names_a_file", Facts(said="Somewhere.", files=["src/a.py"]), "no file of the repository"),
        ("names_a_file", Facts(said="In a.py, line 3.", files=["src/a.py"]), ""),
        ("names_a_file", Facts(said="In `src/a.py:3`.", files=["src/a.py"]), ""),
    ],
)
def test_what_is_missing_is_said(evidence, facts, lack):
    lacks = missing([evidence], facts)
    assert lack in "".join(lacks)
    assert bool(lacks) == bool(lack)


def test_a_complaint_names_all_that_is_missing():
    told = complaint(missing(["changed", "tests"], Facts(testable=True)))
    assert told.splitlines() == [
        "This is not done yet:",
        "- no file has changed: words alone change nothing, edit the files with a tool.",
        "- the tests have not been run on the files as they are now.",
        "Go on with the tools.",
    ]


@pytest.mark.parametrize("form", ["phased", "short"])
@pytest.mark.parametrize("kind", ["build", "debug"])
def test_what_is_handed_over_has_changed_and_passes_its_tests(kind, form):
    """Words alone never end a job (seed 003's lessons 1 and 4)."""
    asked = {each for phase in phases_of(kind, form) for each in phase.evidence}
    assert {"changed", "tests"} <= asked
    for phase in phases_of(kind, form):
        assert phase.evidence, f"{phase.name} could be claimed to be done"
