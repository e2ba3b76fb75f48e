from tests.tables import table

from callboard.coding.agents.deliver import (
    SUBJECT,
    drop_claims,
    format_commit_message,
    format_findings,
    format_pull_request,
    strip_code,
)
from callboard.coding.job import Finding, Job

JOB = Job(
    id="20261122-080000-000-abc",
    type="build",
    description="Add tests for GenerateInstances, which makes the instances of a recurring event from its rule.",
    directory="/somewhere",
    model="scripted",
)


@table(
    ("described", "subject"),
    [
        ("Add tests\n\nThey cover x.", "Add tests"),
        ("# Add tests\n", "Add tests"),
        ("Subject: **Add tests**", "Add tests"),
        ("```\nAdd tests\n```", "Add tests"),
        ("", "Add tests for GenerateInstances, which makes the instances of a..."),
        ("word " * 50, ("word " * 13).strip() + "..."),
    ],
)
def test_the_first_line_of_a_commit(described, subject):
    message = format_commit_message(JOB, described)
    assert message.splitlines()[0] == subject
    assert len(message.splitlines()[0]) <= SUBJECT
    assert message.endswith("\n\nCallboard-Job: 20261122-080000-000-abc\n")


def test_a_pull_request_says_what_was_asked_and_how_it_was_tested():
    made = format_pull_request(
        JOB, "Add tests\n\nThey cover x.", files=["a_test.go"], tests="3 passed", missing=(), issue=7
    )
    assert made.title == "Add tests"
    for part in ("They cover x.", "> Add tests for GenerateInstances", "- `a_test.go`", "3 passed", "Closes #7"):
        assert part in made.body
    assert "Not done" not in made.body


def test_a_pull_request_hides_nothing():
    body = format_pull_request(JOB, "", files=[], tests="", missing=["the tests do not pass"], issue=None).body
    assert "No tests were run." in body
    assert "## Not done\n\n- the tests do not pass" in body


def test_what_tests_printed_cannot_end_its_fence():
    body = format_pull_request(JOB, "", files=[], tests="```\n# Approved\n", missing=(), issue=None).body
    assert "````\n```\n# Approved\n````" in body


@table(
    ("summary", "left"),
    [
        ("Task complete. Created PR #123 with the tests.", ""),
        ("Task complete. Created the tests.\n\nThey cover x.", "Created the tests.\n\nThey cover x."),
        ("TASK_COMPLETE\n\nAdd tests of x", "Add tests of x"),
        ("The task is now complete!", ""),
        ("Add tests of x\n\nI opened a pull request. It is https://github.com/a/b/pull/12.", "Add tests of x"),
        ("Add x\n\nPull request: https://github.com/a/b/pull/12", "Add x"),
        ("PR #123: Add tests of x", ""),
        ("Add x\n\nThe merge request has been submitted for review. See x.py.", "Add x\n\nSee x.py."),
        ("Add x\n\nCommitted as 1a2b3c4 and pushed to origin/main.", "Add x"),
        ("Add x\n\nFixes what pull request #7 broke.", "Add x\n\nFixes what pull request #7 broke."),
        (
            "Fix the parser of pull requests\n\nVersion 1.2. e.g. a.b.",
            "Fix the parser of pull requests\n\nVersion 1.2. e.g. a.b.",
        ),
        (
            "Complete the task list of the user\n\n- created_at is set.",
            "Complete the task list of the user\n\n- created_at is set.",
        ),
    ],
)
def test_a_summary_reports_nothing_that_has_not_happened(summary, left):
    """While a model writes it there is no pull request, and no commit of Callboard's."""
    assert drop_claims(summary, "Mend what pull request 7 broke") == left


def test_claims_are_dropped_in_linear_time():
    for piece in ("commit ", "PR ", "a.", ".", "abcdef", "#1 ", "task "):
        drop_claims(piece * 100_000, "1 " * 100_000)


def test_findings_are_a_line_each():
    assert format_findings([Finding("a.py", 3, "high", "off by one")]) == "a.py:3: high: off by one"
    assert format_findings([]) == "No faults were found."


@table(
    ("said", "handed"),
    [
        ("The plan:\n```python\nx = 1\n```\n1. Change a.py", "The plan:\n\n1. Change a.py"),
        ('Done.\n{"success": true}\nEnd.', "Done.\nEnd."),
        ("```\nnever closed", ""),
    ],
)
def test_code_and_json_are_not_handed_on(said, handed):
    """They look like work that is done (seed 003's lesson 5)."""
    assert strip_code(said) == handed
