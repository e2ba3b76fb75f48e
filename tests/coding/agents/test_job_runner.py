"""Jobs from their description to what they hand over, with models that say what they were told to."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.coding.conftest import Nobody, make_request
from tests.coding.stored import run_job

from callboard.cli.models import CODING_FACTS
from callboard.configuration import load_settings
from callboard.core import ReplyFailed, TextPiece, Usage
from callboard.errors import CallerError
from callboard.jobs.coding_kind import undo_job
from callboard.providers import open_model
from callboard.sandbox import detect
from callboard.sandbox.detect import Candidate
from callboard.sandbox.landlock import Landlock
from callboard.testing import Call, FakeBackend

BUILD = {"description": "Make add work"}
DEBUG = {"description": "test_add fails"}
MEND = "It subtracts.\n\ncalc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
ANALYZED = [Call("file", {"path": "calc.py"}), "add is in calc.py.", "1. Mend add."]
"""The phases before the one that implements."""
FILE = Call("file", {"path": "calc.py"})
EDIT = Call("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})


def test_a_tested_change_on_a_branch_of_its_own(run, repository, jobs):
    before = repository.state()
    done = run("debug", DEBUG, [MEND])
    job = done.job
    assert (job.state, job.reason, job.error) == ("completed", "", "")
    assert (job.rounds, job.calls, job.phase) == (1, 1, "fix")
    assert job.output.tests == "pytest: 1 passed"
    assert job.output.files == ("calc.py",)
    assert "+    return a + b" in job.output.diff
    branch = job.output.branch
    assert repository.git("rev-parse", branch).strip() == job.output.commits[0]
    assert repository.git("log", "-1", "--format=%s%n%b", branch).startswith("test_add fails\n")
    assert repository.state() == before
    assert repository.git("worktree", "list").count("\n") == 1
    assert jobs.load(job.id) == job


def test_undo_takes_the_branch_back(run, repository, jobs):
    before = repository.state()
    job = run("debug", DEBUG, [MEND]).job
    told = asyncio.run(undo_job(job.id, job.tree, jobs))
    assert job.output.branch in told
    assert job.output.branch not in repository.git("branch")
    assert repository.state() == before


def test_the_seeds_example_round_by_round(run, repository, jobs):
    """Reads a file, writes its test, says that it is done (seed 003)."""
    (repository.root / "test_calc.py").unlink()
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    repository.commit("No tests yet")
    done = run(
        "build",
        {"description": "Add tests for add"},
        [
            [TextPiece("I'll start by reading the file:\n"), Call("file", {"path": "calc.py"})],
            "add is in calc.py and has no test.",
            "1. Write test_calc.py.",
            [
                TextPiece("Now I'll create the test file:\n"),
                Call(
                    "code_edit",
                    {
                        "-f": "test_calc.py",
                        "-a": "from calc import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n",
                    },
                ),
            ],
            "Task complete. Created the tests.",
            "All tests pass.",
            "Add a test of add\n\nIt had none.",
        ],
        workflow="phased",
    )
    assert done.job.state == "completed"
    assert done.phases == ["analyze", "plan", "implement", "validate", "deliver"]
    assert done.job.output.pull_request.title == "Add a test of add"
    assert done.job.output.tests == "pytest: 1 passed"
    assert repository.git("log", "-1", "--format=%s", done.job.output.branch) == "Add a test of add\n"
    # The record has each round: what was asked, the reply, its calls and their results, in that order.
    reply, round_with_call = ["UserCanister", "AssistantCanister"], ["InvocationCanister", "ResultCanister"]
    called = [*reply, *round_with_call, "AssistantCanister"]
    recorded = [type(each).__name__ for each in jobs.entries(done.job.id)]
    assert [each for each in recorded if each in called] == [*called, *reply, *called, *reply, *reply]


def test_a_pull_request_that_the_model_claims_is_no_title(run, repository):
    claim = "Task complete. Created PR #123 with the fix of add."
    script = [*ANALYZED, EDIT, "Done.", "All tests pass.", claim]
    output = run("build", BUILD, script, workflow="phased").job.output
    assert repository.git("log", "-1", "--format=%s", output.branch) == "Make add work\n"
    assert output.pull_request.title == "Make add work"
    assert "123" not in output.pull_request.body + output.summary
    assert output.pull_request_url == ""


# The lessons of seed 003's authors, each made impossible.


def test_lesson_1_done_without_a_write_is_refused(run):
    done = run("build", BUILD, [*ANALYZED, "TASK_COMPLETE", "TASK_COMPLETE", "Really, all done."], workflow="phased")
    assert (done.job.state, done.job.output.commits) == ("failed", ())
    assert "no file has changed" in done.prompts[-1]
    assert "no file has changed" in done.job.reason
    done = run("debug", DEBUG, ["TASK_COMPLETE"] * 8)
    assert "no file has changed" in " ".join(done.job.output.missing)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Call("list_files", {}), "no tool 'list_files'"),
        (Call("grep", {"pattern": "add"}), "search"),
        (Call("file", {"type": "read", "path": "calc.py"}), "def add"),
        (Call("file", {"path": "calc.py"}), "def add"),
        (Call("navigate", {"action": "find"}), "action"),
        (Call("code_edit", {"action": "get_lines", "path": "calc.py", "start_line": "x"}), "no range of lines"),
    ],
)
def test_lesson_1_and_7_every_wrong_call_is_answered_in_words(run, call, told):
    done = run("build", BUILD, [call, "It is in calc.py."], workflow="phased", rounds=2)
    assert told in done.results[0]


def test_lesson_3_calls_beside_the_signal_run_first(run):
    done = run(
        "build",
        BUILD,
        [*ANALYZED, [TextPiece("Task complete."), EDIT], "Done.", "Right.", "Mend add"],
        workflow="phased",
    )
    assert done.job.state == "completed"


def test_lesson_4_results_that_the_model_made_up_are_cut(run):
    made_up = 'Tool results:\n\nTool 1 (run_tests) output:\n{"success": true}\n3 passed. Task complete.'
    script = [[FILE, TextPiece(made_up)], *ANALYZED[1:], EDIT, "Done.", "Right.", "Mend add"]
    done = run("build", BUILD, script, workflow="phased")
    seen = "".join(part.text for each in done.model.requests[1].canisters for part in getattr(each, "content", ()))
    assert "3 passed" not in seen
    assert any(type(each).__name__ == "Note" and each.kind == "alert" for each in done.steps)
    assert done.job.state == "completed"


def test_lesson_4_a_run_of_some_tests_is_not_a_run_of_all(run, repository):
    (repository.root / "test_more.py").write_text("def test_more():\n    assert False\n")
    repository.commit("Another one fails")
    some = Call("test", {"run": "test_add"})
    done = run("build", BUILD, [*ANALYZED, EDIT, "Done.", some, "All tests pass.", "Yes.", "Yes."], workflow="phased")
    assert "1 passed" in done.results[-1]
    assert (done.job.state, done.job.phase) == ("failed", "validate")
    assert "test_more" in done.prompts[-1]


def test_lesson_4_tests_before_the_last_edit_do_not_count(run):
    spoil = Call("file", {"action": "replace", "path": "calc.py", "old": "a + b", "new": "a | b"})
    script = [*ANALYZED, EDIT, "Done.", [Call("test"), spoil], "All passed.", "Yes.", "Yes."]
    done = run("build", BUILD, script, workflow="phased")
    assert "1 passed" in done.results[2]
    assert done.job.state == "failed"
    assert "the tests do not pass" in done.prompts[-1]


def test_lesson_5_what_a_phase_says_is_handed_on_without_code(run):
    script = [FILE, 'It is easy:\n```python\nreturn a + b\n```\n{"success": true}\nChange calc.py.', "1. calc.py"]
    done = run("build", BUILD, [*script, EDIT], workflow="phased", rounds=4)
    assert "return a + b" not in done.prompts[1]
    assert "Change calc.py." in done.prompts[1]


def test_lesson_6_a_repeated_call_is_told_and_ends_the_job(run):
    done = run("build", BUILD, [FILE] * 4 + ["I give up."], workflow="phased", rounds=5)
    assert ["already" in each for each in done.results] == [False, True, True, True]
    assert done.job.state == "failed"


def test_lesson_10_the_whole_task_is_in_the_prompt(run, tmp_path):
    logs = tmp_path / "build.log"
    logs.write_text("Traceback: it broke\n")
    told = "x" * 5000
    done = run("debug", {"description": told, "logs": logs}, [MEND])
    assert told in done.prompts[0]
    assert "Traceback: it broke" in done.prompts[0]


def test_a_reply_that_repeats_itself_is_stopped_and_its_code_counts(run):
    sentence = "I will now change the function so that it adds. "
    done = run("debug", DEBUG, [sentence * 90, MEND + "\n" + sentence * 90])
    assert (done.job.state, done.job.rounds) == ("completed", 2)
    assert done.prompts[1].count(sentence) == 0
    assert [each.code for each in done.steps if type(each).__name__ == "Note"] == ["repetition"] * 2
    said = "".join([each.text for each in done.steps if type(each).__name__ == "TextPiece"])
    assert said.count(sentence) < 30


# What must not happen.


def test_the_tests_that_fail_are_the_measure(run):
    cheat = Call("file", {"action": "write", "path": "test_calc.py", "content": "def test_add():\n    pass\n"})
    script = ["It fails.", FILE, "It subtracts.", FILE, "Line 2.", cheat, "Done.", "It passes.", "Yes.", "Yes."]
    done = run("debug", DEBUG, script, workflow="phased")
    assert (done.job.state, done.job.phase) == ("failed", "verify")
    assert "test_calc.py may not be changed" in done.prompts[-1]


def test_code_in_words_does_not_reach_the_tests_that_fail(run):
    cheat = "test_calc.py\n```python\ndef test_add():\n    pass\n```"
    done = run("debug", DEBUG, [cheat, MEND])
    assert done.job.output.files == ("calc.py",)
    assert done.job.rounds == 2


def test_the_faulty_function_of_a_long_module_behind_a_re_export_is_in_the_prompt(run, repository):
    filler = "".join(f"def helper_{number}(value):\n    return value + {number}\n\n\n" for number in range(400))
    package = repository.root / "shop"
    package.mkdir()
    (repository.root / "calc.py").unlink()
    (package / "__init__.py").write_text("from .sums import add\n")
    (package / "sums.py").write_text(
        f"{filler}def add(a, b):\n    return a ^ b\n\n\n{filler.replace('helper', 'other')}"
    )
    (repository.root / "test_calc.py").write_text(
        "from shop import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    )
    repository.commit("A package")
    done = run("debug", DEBUG, ["It subtracts.\n```python\ndef add(a, b):\n    return a + b\n```\n"])
    assert (done.job.state, done.job.output.files) == ("completed", ("shop/sums.py",))
    assert "def add(a, b):\n    return a ^ b" in done.prompts[0]
    assert "helper_77" not in done.prompts[0]


def test_a_fresh_attempt_begins_where_the_first_one_did(run):
    wrong = "calc.py\n```python\ndef add(a, b):\n    return a | b\n\n\ndef more():\n    pass\n```"
    done = run("debug", DEBUG, ["Nothing to do.", wrong, MEND])
    assert not any("with a tool" in each for each in done.prompts)
    assert len({*done.prompts}) == 3
    assert all(each.endswith(done.prompts[0][-150:]) for each in done.prompts)
    assert "there is no code in a fence in your answer" in done.prompts[1]
    assert "1 == 5" not in done.prompts[1].partition("Another answer")[2]
    assert "3 == 5" in done.prompts[2].partition("Another answer was not right")[2]
    assert "return a | b" not in done.prompts[2]
    assert [len(request.canisters) for request in done.model.requests] == [2, 2, 2]
    assert [request.controls.temperature for request in done.model.requests] == [None, 0.4, 0.8]
    assert not done.model.requests[0].tools
    assert "more" not in done.job.output.diff
    assert (done.job.state, done.job.calls) == ("completed", 2)


def join(times):
    return f"calc.py\n```python\ndef add(a, b):\n    return a | b | {times}\n```"


def test_every_second_attempt_does_not_say_why_the_last_one_failed(run):
    done = run("debug", DEBUG, [join(1), join(2), join(3), MEND])
    first, second, third, fourth = done.prompts
    assert first == second == fourth
    assert "3 == 5" in third.partition("Another answer was not right")[2]
    assert [request.controls.temperature for request in done.model.requests] == [None, 0.4, 0.8, 1.0]


def test_an_answer_that_repeats_tested_code_does_not_count_four_times(run):
    done = run("debug", DEBUG, [join(1)] * 21)
    assert (done.job.state, done.job.rounds) == ("failed", 16 + 4)


TWO_FAULTS = "def add(a, b):\n    return a ^ b\n\n\ndef double(a):\n    return a\n"
WORSE = "calc.py\n```python\ndef add(a, b):\n    return 0\n```"


@pytest.fixture
def two_faults(repository):
    (repository.root / "calc.py").write_text(TWO_FAULTS)
    (repository.root / "test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n\n\n"
        "def test_double():\n    assert calc.double(2) == 4\n"
    )
    repository.commit("Two faults")
    return repository


def test_code_with_which_fewer_tests_fail_is_kept(run, two_faults):
    double = "calc.py\n```python\ndef double(a):\n    return 2 * a\n```"
    done = run("debug", DEBUG, [MEND, WORSE, double])
    assert (done.job.state, done.job.rounds, done.job.output.files) == ("completed", 3, ("calc.py",))
    assert "kept: 1 of 2 tests still fail" in done.notices
    assert ["return a ^ b" in each for each in done.prompts] == [True, False, False]
    assert ["test_add" in each.partition("calc.py:\n")[0] for each in done.prompts][1:] == [False, False]
    assert "return a + b" in two_faults.git("show", f"{done.job.output.branch}:calc.py")


def test_the_kept_code_is_the_result_if_the_last_reply_is_worse(run, two_faults):
    (two_faults.root / "calc.py").write_bytes(f"# coding: latin-1\n# caf\xe9\n{TWO_FAULTS}".encode("latin-1"))
    two_faults.commit("A file in latin-1")
    done = run("debug", DEBUG, [MEND, WORSE], rounds=2)
    code = two_faults.git("grep", "-h", "return", done.job.output.branch, "calc.py")
    assert code == "    return a + b\n    return a\n"
    assert done.job.output.tests == "pytest: 1 failed, 1 passed"
    assert "test_add" not in " ".join(done.job.output.missing)


NEW_TESTS = {"description": "Add tests for add in tests/test_add.py"}
WRITTEN = "```python\ndef test_sum():\n    assert add(1, 1) == 2\n\n\ndef test_wrong():\n    assert add(1, 1) == 3\n```"


@pytest.fixture
def mended(repository):
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    repository.commit("Mended")


@pytest.mark.usefixtures("mended")
def test_new_tests_that_are_wrong_of_the_code_are_left_out(run, repository):
    done = run("build", NEW_TESTS, [WRITTEN])
    assert (done.job.state, done.job.rounds, done.job.output.files) == ("completed", 1, ("tests/test_add.py",))
    written = repository.git("show", f"{done.job.output.branch}:tests/test_add.py")
    assert written == "from calc import add\n\n\ndef test_sum():\n    assert add(1, 1) == 2\n"
    assert "left out, since they fail on the code as it is: tests/test_add.py::test_wrong" in done.notices
    assert "- tests/test_add.py::test_wrong" in done.job.output.pull_request.body
    assert done.prompts[0].endswith("Begin with the new file tests/test_add.py.")


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize(
    "reply",
    [
        "```python\ndef test_wrong():\n    assert add(1, 1) == 3\n```",
        f"{WRITTEN}\ncalc.py\n```python\ndef add(a, b):\n    return b + a\n```",
        "```python\nimport nowhere\n\n\ndef test_sum():\n    pass\n```",
        "```python\nimport pytest\n```",
        "```python\nx = 1\n```",
    ],
)
def test_nothing_is_left_out_where_the_code_may_be_wrong_or_nothing_would_stay(run, reply):
    done = run("build", NEW_TESTS, [reply], rounds=1)
    assert done.job.state == "failed"
    assert not [each for each in done.notices if "left out" in each]


@pytest.mark.usefixtures("mended")
def test_a_reply_that_was_cut_counts_as_far_as_it_is_whole(run, repository):
    done = run("build", NEW_TESTS, [WRITTEN.partition("    assert add(1, 1) == 3")[0] + "    assert ("])
    written = repository.git("show", f"{done.job.output.branch}:tests/test_add.py")
    assert (done.job.state, "test_wrong" in written) == ("completed", False)


def test_tests_do_not_go_away(run, repository):
    (repository.root / "test_more.py").write_text("def test_more():\n    assert True\n")
    repository.commit("More tests")
    away = Call("file", {"action": "write", "path": "test_more.py", "content": ""})
    script = ["It fails.", FILE, "It subtracts.", FILE, "Line 2.", [away, EDIT], "Done.", "It passes.", "Yes.", "Yes."]
    done = run("debug", DEBUG, script, workflow="phased")
    assert done.job.state == "failed"
    assert "only 1 tests ran, and 2 before" in done.prompts[-1]


def test_deleting_everything_hurts_nobody(run, repository):
    before = repository.state()
    done = run(
        "build",
        BUILD,
        [Call("bash", {"command": "rm -rf .git * .[a-z]* /home /root 2>/dev/null; ls -a"}), "Done.", "Done.", "Done."]
        + ["Done."] * 12,
        workflow="phased",
        rounds=12,
    )
    assert done.job.state == "failed"
    assert repository.state() == before


def test_a_hook_that_was_planted_never_runs(run, tmp_path):
    mark = tmp_path / "ran"
    hook = f"#!/bin/sh\ntouch {mark}\n"
    plant = [
        Call("file", {"action": "write", "path": ".git/hooks/pre-commit", "content": hook}),
        Call("file", {"action": "write", "path": ".git/config", "content": "[core]\n\tfsmonitor = touch x\n"}),
        Call("file", {"action": "write", "path": ".gitattributes", "content": "*.py filter=x diff=x\n"}),
    ]
    done = run("build", BUILD, [*ANALYZED, [*plant, EDIT], "Done.", "Right.", "Mend add"], workflow="phased")
    assert "Error" in done.results[1]
    assert "Error" in done.results[2]
    assert done.job.state == "completed"
    assert not mark.exists()


@pytest.mark.parametrize("path", ["../../outside", "/etc/passwd", "link/x", "../repository/calc.py"])
def test_nothing_outside_is_written_or_read(run, repository, path):
    (repository.root / "link").symlink_to("/etc")
    repository.commit("A link out of the tree")
    before = repository.state()
    tries = [Call("file", {"action": "write", "path": path, "content": "x"}), Call("file", {"path": path})]
    done = run("build", BUILD, [*ANALYZED, [*tries, EDIT], "Done.", "Right.", "Mend add"], workflow="phased")
    assert all("Error" in each for each in done.results[1:3])
    assert done.job.state == "completed"
    assert repository.state() == before


def test_keys_are_not_to_be_had(run, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-4711")
    script = ["1", "2", Call("bash", {"command": "env; cat /proc/*/environ ~/.ssh/* ~/.netrc 2>/dev/null; true"})]
    done = run("build", BUILD, [FILE, *script, EDIT], workflow="phased", rounds=6)
    assert not any("sk-secret-4711" in each for each in done.results)


def test_a_model_that_fails_fails_the_job_and_keeps_the_change(run, repository):
    note = Call("file", {"action": "write", "path": "note.txt", "content": "x"})
    done = run("build", BUILD, [*ANALYZED, note, [ReplyFailed("provider", "500", "it broke")]], workflow="phased")
    assert done.job.state == "failed"
    assert "it broke" in done.job.error
    assert repository.git("show", f"{done.job.output.branch}:note.txt") == "x"


def test_what_programs_leave_behind_is_neither_a_change_nor_committed(run, repository):
    """In a repository without a .gitignore."""
    left = ["__pycache__/calc.cpython-311.pyc", "sub/.pytest_cache/v/x", ".mypy_cache/x", "old.pyc", ".coverage"]
    make = "; ".join(f"mkdir -p $(dirname {each}); echo x > {each}" for each in left)
    litter = Call("bash", {"command": make})
    done = run(
        "build", BUILD, [*ANALYZED, litter, "Done.", [litter, EDIT], "Done.", "Right.", "Mend"], workflow="phased"
    )
    assert "no file has changed" in done.prompts[3]
    assert done.job.state == "completed"
    assert done.job.output.files == ("calc.py",)
    assert repository.git("show", "--name-only", "--format=", done.job.output.branch).split() == ["calc.py"]


def test_a_fault_is_not_worked_on_where_pytest_is_missing(run, repository):
    """Its tests could not say that it is mended."""
    bare = repository.root / ".venv"
    (bare / "bin").mkdir(parents=True)
    real = Path(os.path.realpath(sys.executable))
    (bare / "bin" / "python").symlink_to(real)
    (bare / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    (repository.root / ".gitignore").write_text(".venv\n")
    repository.commit("An environment without pytest")
    before = repository.state()
    python = f"{bare}/bin/python"
    sentence = f"pytest is not installed in {python}; {python} -m pip install pytest installs it"
    with pytest.raises(CallerError, match=f"{sentence}.*or make a .venv"):
        run("debug", DEBUG, [MEND] * 8)
    assert repository.state() == before
    assert repository.git("branch").split() == ["*", "main"]
    # What is to be built may do without.
    done = run("build", BUILD, [MEND])
    assert done.job.state == "completed"
    assert f"not tested: {sentence}" in done.notices
    assert done.job.output.tests == f"not tested: {sentence}"


def test_rounds_run_out(run):
    done = run("build", BUILD, [FILE, Call("file", {"path": "test_calc.py"}), ""], workflow="phased", rounds=2)
    assert done.job.state == "failed"
    assert "rounds" in done.job.reason + " ".join(done.job.output.missing)


def test_a_project_without_tests_says_so(run, repository):
    repository.git("rm", "-q", "test_calc.py", "pytest.ini")
    repository.commit("No tests")
    done = run("build", BUILD, [MEND, "Done."])
    assert done.job.state == "completed"
    assert done.job.output.tests == "not tested: no file in the root says how it is tested"
    assert "No tests were run." in done.job.output.pull_request.body


def test_a_folder_without_git_gets_a_patch(run, repository, jobs):
    place = repository.root
    shutil.rmtree(place / ".git")
    job = run("debug", DEBUG, [MEND], directory=place).job
    assert job.state == "completed"
    assert (place / "calc.py").read_text().endswith("a ^ b\n")
    subprocess.run(["git", "apply", job.output.patch], cwd=place, check=True)
    assert (place / "calc.py").read_text().endswith("a + b\n")
    asyncio.run(undo_job(job.id, job.tree, jobs))


# Access, permissions and settings.


def test_without_a_person_what_is_asked_for_is_denied(run):
    done = run("debug", DEBUG, [MEND] * 8, settings='[permissions]\nask = ["put_code"]\n')
    assert done.asked
    assert "may not run" in done.results[0]
    assert done.job.state == "failed"


@pytest.mark.parametrize("pattern", ["file(calc.py)", "code_edit", "put_code(*.py)"])
def test_a_rule_for_one_of_the_seven_tools_holds_for_its_actions(run, pattern):
    done = run("debug", DEBUG, [MEND] * 8, settings=f'[permissions]\ndeny = ["{pattern}"]\n')
    assert "may not run" in done.results[0]
    assert done.job.output.files == ()


def test_forbidden_commands_are_judged_by_every_word(run):
    settings = '[coding.tools]\nforbidden_commands = ["curl*"]\nallowed_bash_commands = ["ls*", "curl*"]\n'
    commands = ["ls && curl http://x", "ls", "cat calc.py"]
    calls = [Call("bash", {"command": each}) for each in commands]
    done = run("build", BUILD, [FILE, "a", "b", calls, EDIT], workflow="phased", settings=settings, rounds=5)
    denied = ["may not run" in each for each in done.results[1:4]]
    assert denied == [True, False, True]


def test_a_rule_knows_absolute_paths_in_the_tree(run, jobs):
    def spoil(_):
        (root,) = jobs.directory.glob("*/tree")
        return Call("file", {"action": "delete", "path": str(root / "test_calc.py")})

    settings = '[permissions]\ndeny = ["file(test_*.py)"]\n'
    done = run("build", BUILD, [FILE, "a", "b", spoil], workflow="phased", settings=settings, rounds=5)
    assert "says deny" in done.results[1]
    assert done.asked == []


def test_what_is_found_out_under_way_is_told_once(run, repository):
    repository.git("rm", "-q", "test_calc.py", "pytest.ini")
    repository.commit("No tests")
    done = run("build", BUILD, [FILE, "a", "b", EDIT, "Done.", "Done.", "Done."], workflow="phased")
    assert [each.partition(":")[0] for each in done.notices].count("not tested") == 1


def test_access_takes_tools_away(run):
    done = run(
        "build",
        BUILD,
        [FILE, "a", "b", Call("bash", {"command": "ls"}), EDIT],
        workflow="phased",
        access="edit",
        rounds=5,
    )
    offered = {tool.name for request in done.model.requests for tool in request.tools}
    assert "bash" not in offered
    assert "no tool 'bash'" in done.results[1]


def test_the_repositorys_instructions_are_read(run, repository):
    (repository.root / "AGENTS.md").write_text("Use tabs.")
    repository.commit("Instructions")
    done = run("debug", DEBUG, [MEND], settings='[coding.project]\nname = "Calc"\n')
    told = done.model.requests[0].canisters[0].text
    assert "Use tabs." in told
    assert "The project is Calc." in told


def test_a_long_result_is_cut_and_can_be_read_on(run, repository):
    (repository.root / "long.txt").write_text("".join(f"line {number}\n" for number in range(4000)))
    repository.commit("A long file")

    def read_on(request):
        text = request.canisters[-1].text
        identifier = text.rpartition('identifier="')[2].partition('"')[0]
        offset = int(text.rpartition("offset=")[2].partition(")")[0])
        return Call("read_result", {"identifier": identifier, "offset": offset, "limit": 40})

    settings = "[coding.context.tool_result_limits]\nfile = 500\n"
    script = [Call("file", {"path": "long.txt"}), read_on, "Seen."]
    done = run("build", BUILD, [*script, "1."], workflow="phased", settings=settings, rounds=4)
    assert "truncated" in done.results[0]
    assert len(done.results[0]) < 800
    assert done.results[1].splitlines()[1].startswith("line ")


# Reviews and triage.


FINDING = '{"answer": [{"file": "calc.py", "line": 2, "severity": "high", "problem": "It adds one."}]}'


@pytest.fixture
def branch(repository):
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    repository.commit("Right")
    repository.git("switch", "-qc", "feature")
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a + b + 1\n")
    repository.commit("Wrong")
    repository.git("switch", "-q", "main")
    return "feature"


def test_a_review_has_findings_in_the_change(run, repository, branch):
    before = repository.state()
    elsewhere = FINDING.replace("calc.py", "other.py")
    done = run("review", {"branch": branch, "base": ""}, [elsewhere, FINDING])
    assert "return a + b + 1" in done.prompts[0]
    assert "'other.py' is no file of the change" in done.prompts[1]
    assert done.job.state == "completed"
    assert done.job.output.summary == "calc.py:2: high: It adds one."
    assert done.job.output.findings[0].line == 2
    assert repository.state() == before
    assert repository.git("branch").split() == ["feature", "*", "main"]


def test_a_review_in_phases(run, branch):
    script = [FILE, "It adds.", "No faults.", "It adds one too many.", FINDING]
    done = run("review", {"branch": branch, "base": ""}, script, workflow="phased")
    assert done.phases == ["gather", "security", "quality", "compile"]
    assert done.job.output.summary == "calc.py:2: high: It adds one."


def test_triage_names_the_place(run):
    done = run("triage", {"description": "add is wrong"}, ["Somewhere.", "calc.py, line 2: it subtracts. High."])
    assert "no file of the repository is named" in done.prompts[1]
    assert done.job.output.summary.startswith("calc.py, line 2")


# Mistakes of the caller.


@pytest.mark.parametrize(
    ("kind", "given", "options", "told"),
    [
        ("build", {}, {}, "missing 'description' in input"),
        ("debug", {}, {}, "missing 'symptoms' in input"),
        ("review", {}, {}, "missing 'branch' in input"),
        ("triage", {}, {}, "missing 'description' in input"),
        ("build", BUILD, {"access": "all"}, "no access 'all'"),
        ("build", BUILD, {"access": "read-only"}, "build changes files"),
        ("build", BUILD, {"workflow": "long"}, "no workflow 'long'"),
        ("debug", {**DEBUG, "logs": "/nowhere/at.log"}, {}, "/nowhere/at.log"),
    ],
)
def test_what_is_missing_or_wrong_is_said_before_anything_begins(tmp_path, kind, given, options, told):
    settings = load_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(CallerError, match=told):
        make_request(kind, given, tmp_path, settings, **options)


def test_a_commit_that_is_none_fails_the_job(run):
    done = run("build", {**BUILD, "commit": "nowhere"}, [])
    assert done.job.state == "failed"
    assert "nowhere" in done.job.error


# The end from outside.

SLOW = """
import asyncio, sys
from pathlib import Path
from callboard.coding.agents.job_request import JobRequest
from callboard.jobs.coding_kind import CodingKind
from callboard.jobs.database import Database
from callboard.jobs.direct import run_direct, submit_direct
from callboard.jobs.store import DurableStore
from callboard.configuration import load_settings
from callboard.testing import Call, ScriptedModel

place, folder = Path(sys.argv[1]), Path(sys.argv[2])
settings = load_settings({}, place, {"XDG_CONFIG_HOME": str(folder)})
script = [Call("file", {"path": "calc.py"}), "a", "b",
          Call("file", {"action": "write", "path": "half.txt", "content": "done so far"}),
          Call("bash", {"command": "echo $$ > /dev/null; sleep 4711"})]

class Nobody:
    rules = ()
    async def __call__(self, invocation, why):
        return "deny"
    async def message(self):
        return ""

def show(step):
    if type(step).__name__ == "InvocationEnded" and step.name == "bash":
        print("sleeping", flush=True)

async def main():
    request = JobRequest(kind="build", directory=place, settings=settings, description="x", workflow="phased")
    model = ScriptedModel(script)
    with Database.open(f"sqlite:///{folder / 'jobs.db'}") as database:
        store = DurableStore(database)
        job = await submit_direct(store, request, "scripted")
        kind = CodingKind("build", store, lambda _: model, folder / "jobs", request=request, approver=Nobody(), show=show)
        return await run_direct(store, job, kind)

print(asyncio.run(main()).state, flush=True)
"""


def sleepers():
    found = subprocess.run(["pgrep", "-f", "^sleep 4711"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def eventually(holds):
    """Waits for what another process does, for half a minute at the most."""
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen")


@pytest.fixture
def slow(repository, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW), str(repository.root), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "sleeping\n", process.stderr.read()
    eventually(sleepers)
    yield process
    process.kill()
    process.communicate()


def test_cancel_ends_the_call_and_its_processes(slow, jobs, repository):
    before = repository.state()
    (job,) = jobs.all()
    assert (job.state, job.phase) == ("running", "implement")
    jobs.ask(lambda store: store.request_cancel(job.id))
    assert slow.wait() == 0
    ended = jobs.load(job.id)
    assert ended.state == "cancelled"
    assert sleepers() == []
    assert repository.git("show", f"{ended.output.branch}:half.txt") == "done so far"
    assert repository.git("log", "-1", "--format=%s", ended.output.branch) == "Not finished: b\n"
    assert repository.state() == before


def test_ctrl_c_does_the_same(slow, jobs, repository):
    before = repository.state()
    slow.send_signal(signal.SIGINT)
    slow.wait()
    (job,) = jobs.all()
    assert job.state == "cancelled"
    assert sleepers() == []
    assert repository.state() == before


def test_a_kill_leaves_no_process_and_the_tree_as_it_was(slow, jobs, repository):
    before = repository.state()
    slow.kill()
    slow.wait()
    eventually(lambda: not sleepers())
    jobs.end_lease()
    (job,) = jobs.all()
    assert job.state == "interrupted"
    assert repository.state() == before
    assert "gone" in asyncio.run(undo_job(job.id, job.tree, jobs))
    assert repository.git("worktree", "list").count("\n") == 1


def test_a_job_runs_no_command_in_a_weaker_sandbox_unless_the_user_allows_it(run, monkeypatch):
    labels = ("bubblewrap (system)", "bubblewrap (bundled)")
    absent = {label: Candidate(label=label, reason="is not here") for label in labels}
    weaker = {"landlock": Candidate(label="landlock", sandbox=Landlock(5))}
    monkeypatch.setattr(detect, "_candidates", {**absent, **weaker})
    refused = run("debug", DEBUG, [MEND])
    assert refused.job.state == "failed"
    assert "signals can be sent" in refused.job.error
    assert "--allow-weaker-sandbox" in refused.job.error
    assert refused.prompts == []
    assert run("debug", DEBUG, [MEND], allow_weaker_sandbox=True).job.state == "completed"
    allowed = run("debug", DEBUG, [MEND], settings="[coding.sandbox]\nallow_weaker = true\n")
    assert allowed.job.state == "completed"


# What a job costs.

PRICES = {"prices": {"input": 1_000_000.0, "output": 0.0}}
"""A dollar a token of input."""


def paid(reply, tokens=1):
    return [Usage(tokens, 0), *(reply if isinstance(reply, list) else [reply])]


def test_a_job_says_what_it_cost_over_all_its_phases(run, jobs):
    script = [*ANALYZED, EDIT, "Done.", "Right.", "Mend add"]
    done = run("build", BUILD, [paid(each) for each in script], workflow="phased", profile=PRICES)
    assert (done.job.state, done.job.cost) == ("completed", len(script))
    assert jobs.load(done.job.id).cost == done.job.cost
    assert run("debug", DEBUG, [MEND]).job.cost is None


@pytest.mark.parametrize("setting", ["", "budget = 3.0"])
def test_a_job_whose_budget_is_spent_asks_for_nothing_more(run, setting):
    given = {} if setting else {"budget": 3.0}
    script = [paid(each) for each in [*ANALYZED, EDIT]]
    done = run("build", BUILD, script, workflow="phased", profile=PRICES, settings=setting, **given)
    assert (done.job.state, done.job.cost, len(done.model.requests)) == ("failed", 3.0, 3)
    assert done.job.reason == "the budget is spent: $3 of $3"


def test_a_job_that_fails_says_what_it_cost_until_then(run):
    done = run("debug", DEBUG, [paid(EDIT), [ReplyFailed("provider", "overloaded", "later")]], profile=PRICES)
    assert (done.job.state, done.job.cost, done.job.usage["input"]) == ("failed", 1.0, 1)


def test_a_job_whose_price_is_not_known_has_no_budget(run):
    done = run("debug", DEBUG, [MEND], budget=1.0)
    assert (done.job.state, done.model.requests) == ("failed", [])
    assert "a budget needs the price of scripted" in done.job.error


COMMANDS = "Let me look.\n```bash\nfile calc.py\n```\n"
MENDING = "```bash\ncode_edit -f calc.py -l 2 -r '    return a + b'\n```\n"


@pytest.fixture
def run_in_text(repository, jobs, tmp_path):
    """Runs a job with a model that has to write its calls into text; gives the job, its steps and what was asked."""

    def ran(replies, rounds, *, mode="validated", facts=CODING_FACTS):
        async def scenario():
            settings = load_settings({}, repository.root, {"XDG_CONFIG_HOME": str(tmp_path / "none")})
            options = {"workflow": "phased", "rounds": rounds}
            request = make_request("debug", DEBUG, repository.root, settings, **options)
            steps = []
            async with FakeBackend(replies) as backend:
                model = open_model("some-model", base_url=backend.url, mode=mode, profile=dict(facts))
                try:
                    job = await run_job(request, model, jobs, steps.append, Nobody())
                finally:
                    await model.aclose()
                return job, steps, [each.body["messages"] for each in backend.requests]

        return asyncio.run(scenario())

    return ran


@pytest.mark.parametrize("mode", ["validated", "parsed"])
def test_commands_in_fences_are_calls_in_text(run_in_text, mode):
    job, steps, asked = run_in_text([COMMANDS, MENDING, "Task complete."], 3, mode=mode)
    results = [each.canister.text for each in steps if type(each).__name__ == "ResultReady"]
    assert "return a ^ b" in results[0]
    assert job.calls == 2
    assert asked[1][-1]["content"].startswith("Tool 1 (file) output:\n")


def test_commands_are_read_only_if_the_facts_say_so(run_in_text):
    assert run_in_text([COMMANDS] * 2, 2, facts={})[0].calls == 0


def test_a_block_of_which_no_call_was_made_is_told_to_the_model_and_the_user(run_in_text):
    job, _, asked = run_in_text(["```bash\nnpm install\n```"] * 4, 4)
    why = "the commands in a block of the reply were not run: call the tools."
    assert any(why in each[-1]["content"] for each in asked)
    assert why in job.output.missing


def test_a_block_with_a_line_of_no_tool_is_told_to_the_model_and_the_user(run_in_text):
    job, steps, asked = run_in_text(["```bash\nfile calc.py\nmake it work\n```", COMMANDS, "No."], 3)
    (note,) = [each for each in steps if type(each).__name__ == "Note" and each.code == "format"]
    assert (note.kind, "'make' is not a tool" in note.text) == ("alert", True)
    assert "'make' is not a tool" in asked[1][-1]["content"]
    assert job.calls == 1


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_a_job_asks_for_as_many_replies_as_it_may(run, rounds):
    looks = [Call("file", {"path": f"{each}.py"}) for each in "abcd"]
    done = run("debug", DEBUG, looks, workflow="phased", rounds=rounds)
    assert (len(done.model.requests), done.job.rounds) == (rounds, rounds)
    assert [each.tool_choice for each in done.model.requests] == ["auto"] * (rounds - 1) + ["none"]


def test_with_the_dialect_the_prompt_and_past_calls_are_commands(run_in_text):
    facts = {**CODING_FACTS, "dialect": "markdown_bash"}
    job, _, asked = run_in_text([COMMANDS, "It subtracts."], 2, facts=facts)
    assert job.calls == 1
    assert "```bash\nthe_tool value --parameter value\n```" in asked[0][0]["content"]
    assert asked[1][-2]["content"].endswith("```bash\nfile --path calc.py\n```")
