"""What the project's own checkers say about a model's edits, in both workflows."""

from tests.tables import table

from callboard.coding.tools import edited_paths
from callboard.testing import Call

BUILD = {"description": "Make add work in calc.py"}
LOOK = [Call("file", {"path": "calc.py"}), "add is in calc.py.", "1. Mend add."]
UNUSED = "- calc.py:1: `os` imported but unused [F401] (ruff)"


def configure(repository):
    (repository.root / "ruff.toml").touch()
    repository.commit("Settings of a linter")


def test_the_result_of_an_edit_names_new_findings(run, repository):
    configure(repository)
    content = "import os\n\n\ndef add(a, b):\n    return a + b\n"
    edit = Call("file", {"action": "write", "path": "calc.py", "content": content})
    mend = Call("file", {"action": "replace", "path": "calc.py", "old": "import os\n\n\n", "new": ""})
    done = run("build", BUILD, [*LOOK, edit, mend, "Done.", "Done.", "Done."], workflow="phased")
    written = next(each for each in done.results if each.startswith("Wrote"))
    assert written.endswith(f"\nNew findings of the project's checkers since the first edit:\n{UNUSED}")
    replaced = next(each for each in done.results if each.startswith("Replaced"))
    assert "findings" not in replaced
    assert done.job.state == "completed"


def test_a_small_model_reads_them_with_the_reason_for_another_attempt(run, repository):
    configure(repository)
    wrong = "calc.py\n```python\nimport os\n\n\ndef add(a, b):\n    return a | b\n```\n"
    right = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
    done = run("build", BUILD, [wrong, wrong.replace("a | b", "b | a"), right])
    assert done.job.state == "completed"
    assert [UNUSED in prompt for prompt in done.prompts] == [False, False, True]
    assert any(UNUSED in notice for notice in done.notices)


def test_a_finding_alone_does_not_keep_a_job_from_its_end(run, repository):
    configure(repository)
    done = run("build", BUILD, ["calc.py\n```python\nimport os\n\n\ndef add(a, b):\n    return a + b\n```\n"])
    assert (done.job.state, len(done.prompts)) == ("completed", 1)


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n*** End Patch\n"


@table(
    "name, arguments, paths",
    [
        ("file", {"action": "write", "path": "a.py", "content": ""}, ["a.py"]),
        ("write_file", {"path": "a.py", "content": ""}, ["a.py"]),
        ("file", {"action": "read", "path": "a.py"}, []),
        ("code_edit", {"action": "apply_patch", "patch": PATCH}, ["a.py", "b.py"]),
        ("apply_patch", {"patch": PATCH}, ["a.py", "b.py"]),
        ("apply_patch", {"patch": "no patch"}, []),
        ("write_file", {"path": 5}, []),
        ("bash", {"command": "touch a.py"}, []),
    ],
)
def test_which_files_a_call_edits(name, arguments, paths):
    assert edited_paths(name, arguments) == paths
