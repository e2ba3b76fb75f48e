"""A person says something to the model while the job runs."""

import pytest
from tests.coding.conftest import Nobody

from callboard.coding.job import ModelChanged
from callboard.core import ResultCanister, UserCanister
from callboard.testing import Call, ScriptedModel

DEBUG = {"description": "test_add fails"}
FILE = Call("file", {"path": "calc.py"})
EDIT = Call("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
REPRODUCED = [Call("test"), "test_add fails."]
FIXED = [EDIT, "Changed calc.py.", "It passes.", "Mend add"]
SCRIPT = [*REPRODUCED, FILE, "It subtracts.", FILE, "Line 2.", *FIXED]
WRONG = "calc.py\n```python\ndef add(a, b):\n    return a | b\n```\n"
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```\n"
SAID = "Do not touch the tests."


@pytest.mark.parametrize(("before", "phase"), [(0, "reproduce"), (3, "investigate"), (6, "fix")])
def test_a_message_continues_the_conversation_and_stays_for_later_phases(run, before, phase):
    done = run("debug", DEBUG, SCRIPT, workflow="phased", approver=Nobody(*[""] * before, SAID))
    assert (done.job.state, done.job.rounds) == ("completed", len(SCRIPT))
    assert done.prompts.count(SAID) == 1
    steered = done.model.requests[before].canisters
    assert (type(steered[-1]), steered[-1].text) == (UserCanister, SAID)
    assert f"# Now: {phase}\n" in next(each.text for each in steered if isinstance(each, UserCanister))
    assert isinstance(steered[-2], ResultCanister) == (before == 3)
    # Each later phase begins with a prompt of its own.
    later = done.prompts[done.prompts.index(SAID) + 1 :]
    assert later
    assert all(SAID in each for each in later)


def test_a_message_is_not_a_refused_claim(run):
    others = {"big": ScriptedModel(FIXED[:2], name="big")}
    script = [*SCRIPT[:6], "Done.", "Done.", "Done.", *FIXED[2:]]
    person = Nobody(*[""] * 7, SAID, "", SAID)
    done = run("debug", DEBUG, script, workflow="phased", approver=person, escalate="big", others=others)
    assert (done.job.state, done.prompts.count(SAID)) == ("completed", 2)
    assert [each.why for each in done.steps if isinstance(each, ModelChanged)] == [
        "the evidence does not hold after 3 attempts"
    ]
    assert [each.rounds for each in done.job.output.models] == [len(script), 2]


def test_a_message_is_part_of_all_later_prompts_for_code_blocks(run, repository):
    """A block without a path may be for a file that the person names."""
    (repository.root / "other.py").write_text("x = 1\n")
    (repository.root / "calc.py").write_text("from other import *\n\n\ndef add(a, b):\n    return a ^ b\n")
    repository.commit("Two files")
    said = "Change other.py too."
    done = run(
        "debug", DEBUG, [WRONG, WRONG, "```python\nx = 2\n```\n" + WRONG.replace("|", "+")], approver=Nobody("", said)
    )
    assert (done.job.state, done.job.rounds) == ("completed", 3)
    assert [said in each for each in done.prompts] == [False, True, True]
    assert done.job.output.files == ("calc.py", "other.py")


def test_a_message_to_a_stronger_model_follows_what_is_missing(run):
    others = {"big": ScriptedModel([WRONG, "calc.py\n" + RIGHT], name="big")}
    person = Nobody(*[""] * 4, SAID)
    done = run("debug", DEBUG, [WRONG] * 3, approver=person, escalate="big", others=others)
    assert (done.job.state, done.job.rounds) == ("completed", 5)
    last = others["big"].requests[-1].canisters
    assert last[-1].text.endswith(f"\n\n{SAID}")
    assert "test_add" in last[-1].text
    assert last[-2].text == WRONG
