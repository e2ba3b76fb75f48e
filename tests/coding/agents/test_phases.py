from dataclasses import dataclass
from typing import get_args

from tests.tables import table

from callboard.coding.agents.phases import Evidence, Facts, actions_of_groups, missing_evidence, phases_of, refusal
from callboard.coding.job import Finding

KINDS = ["build", "debug", "review", "triage"]


@table(
    ("kind", "names"),
    [
        ("build", ["analyze", "plan", "implement", "validate", "deliver"]),
        ("debug", ["reproduce", "investigate", "isolate", "fix", "verify", "commit"]),
        ("review", ["gather", "security", "quality", "compile"]),
        ("triage", ["gather", "diagnose"]),
    ],
)
def test_the_phases_are_those_of_the_seed(kind, names):
    assert [phase.name for phase in phases_of(kind, "phased")] == names


@table("kind", KINDS)
def test_the_short_form_is_one_phase_with_few_tools(kind):
    (phase,) = phases_of(kind, "short")
    assert len(actions_of_groups(phase.tools)) <= 5


@table("workflow", ["phased", "short"])
@table("kind", ["review", "triage"])
def test_who_looks_only_has_no_tool_that_edits(kind, workflow):
    edits = {*actions_of_groups(("edit",)), *actions_of_groups(("commit",))}
    for phase in phases_of(kind, workflow):
        assert not edits & {*actions_of_groups(phase.tools)}


@table("workflow", ["phased", "short"])
@table("kind", KINDS)
def test_prompts_tell_no_stories(kind, workflow):
    """Examples of conversations teach models to make results up (seed 003's lesson 4)."""
    for phase in phases_of(kind, workflow):
        assert "```" not in phase.prompt
        assert "xample" not in phase.prompt
        assert phase.rounds > 0


def test_groups_are_their_actions_once():
    assert actions_of_groups(("look", "read_file", "bash"))[-1] == "bash"
    assert len(set(actions_of_groups(("look", "look")))) == len(actions_of_groups(("look",)))


@dataclass
class Report:
    is_good: bool = True
    total: int = 3
    summary: str = "3 passed"


BAD = Report(is_good=False, summary="1 of 3 tests fails: test_sum")


@table(
    ("evidence", "facts", "lack"),
    [
        ("files_read", Facts(), "no file was looked at"),
        ("files_read", Facts(files_read=1), ""),
        ("answer", Facts(answer=" \n"), "no answer in words"),
        ("answer", Facts(answer="The cause is x."), ""),
        ("changed", Facts(answer="I changed everything. Task complete."), "no file has changed"),
        ("changed", Facts(), "edit the files with a tool."),
        ("changed", Facts(has_tools=False), "change nothing, answer with the changed code in a fence."),
        ("changed", Facts(changed_files=["a.py"]), ""),
        ("tests", Facts(is_testable=True), "have not been run"),
        ("tests", Facts(is_testable=True, report=BAD), "1 of 3 tests fails: test_sum"),
        ("tests", Facts(is_testable=True, report=Report()), ""),
        ("tests", Facts(is_testable=False), ""),
        ("tests", Facts(is_testable=True, report=Report(total=2), tests_before=3), "only 2 tests ran, and 3 before"),
        (
            "tests",
            Facts(is_testable=True, report=Report(), changed_guarded_files=["test_a.py"]),
            "test_a.py may not be changed",
        ),
        ("failure_seen", Facts(answer="I saw it fail."), "nothing was seen to fail"),
        ("failure_seen", Facts(saw_failure=True), ""),
        ("findings", Facts(), "no findings in the form"),
        ("findings", Facts(findings=[]), ""),
        (
            "findings",
            Facts(findings=[Finding("b.py", 1, "low", "x")], reviewed_lines={"a.py": {1}}),
            "no file of the change",
        ),
        ("findings", Facts(findings=[Finding("a.py", 1, "low", "x")], reviewed_lines={"a.py": {1}}), ""),
        ("file_named", Facts(answer="Somewhere.", files=["src/a.py"]), "no file of the repository"),
        ("file_named", Facts(answer="In a.py, line 3.", files=["src/a.py"]), ""),
        ("file_named", Facts(answer="In `src/a.py:3`.", files=["src/a.py"]), ""),
    ],
)
def test_what_is_missing_is_said(evidence, facts, lack):
    lacks = missing_evidence([evidence], facts)
    assert lack in "".join(lacks)
    assert bool(lacks) == bool(lack)


def test_a_refusal_names_all_that_is_missing():
    told = refusal(missing_evidence(["changed", "tests"], Facts(is_testable=True)))
    assert told.splitlines() == [
        "This is not done yet:",
        "- no file has changed: words alone change nothing, edit the files with a tool.",
        "- the tests have not been run on the files as they are now.",
        "Go on with the tools.",
    ]


@table("evidence", get_args(Evidence))
def test_no_tool_is_named_to_a_model_that_has_none(evidence):
    lacks = missing_evidence([evidence], Facts(has_tools=False, is_testable=True, files_read=evidence == "files_read"))
    assert "tool" not in refusal(lacks, has_tools=False)


@table("workflow", ["phased", "short"])
@table("kind", ["build", "debug"])
def test_what_is_handed_over_has_changed_and_passes_its_tests(kind, workflow):
    """Words alone never end a job (seed 003's lessons 1 and 4)."""
    asked = {each for phase in phases_of(kind, workflow) for each in phase.evidence}
    assert {"changed", "tests"} <= asked
    for phase in phases_of(kind, workflow):
        assert phase.evidence, f"{phase.name} could be claimed to be done"
