"""Jobs whose model is stuck, and phases with a model of their own (hermes-agent #15176, litellm #39809)."""

import pytest

from callboard.coding.job import ModelChanged, ModelUse
from callboard.core import InvocationCanister, ReplyFailed, SupervisorCanister, TextPiece, Usage
from callboard.jobs.steps import build_trace
from callboard.testing import Call, ScriptedModel

DEBUG = {"description": "test_add fails"}
WRONG = "calc.py\n```python\ndef add(a, b):\n    return a | b\n```\n"
RIGHT = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
EDIT = Call("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
FILE = Call("file", {"path": "calc.py"})
LOST = Call("file", {"path": "lost.py"})
BEFORE_FIX = [Call("test"), "test_add fails.", FILE, "It subtracts.", FILE, "Line 2."]
AFTER_FIX = ["It passes.", "Mend add\n\nIt subtracted."]
CHEAP, DEAR = {"prices": {"input": 1, "output": 1}}, {"prices": {"input": 10, "output": 10}}


def big(*script, profile=None):
    return {"big": ScriptedModel(script, name="big", profile=profile)}


def changes(done):
    return [(each.model, each.why) for each in done.steps if isinstance(each, ModelChanged)]


def counted(text):
    return [Usage(input=1000, output=1000), TextPiece(text)]


def test_after_three_attempts_the_stronger_model_continues_the_conversation(run, jobs):
    others = big(counted(WRONG), counted(RIGHT), profile=DEAR)
    done = run("debug", DEBUG, [counted(WRONG)] * 3, escalate="big", others=others, profile=CHEAP, budget=1.0)
    assert (done.job.state, done.job.rounds) == ("completed", 5)
    assert changes(done) == [("big", "the evidence does not hold after 3 attempts")]
    asked, again = others["big"].requests
    texts = [each.text for each in asked.canisters]
    assert texts.count(WRONG) == 3
    assert "You take over from another model" in texts[-1]
    assert "test_add" in texts[-1]
    assert sum(isinstance(each, SupervisorCanister) for each in asked.canisters) == 1
    assert again.canisters[-2].text == WRONG
    # The record: which model did which rounds, and what each cost.
    uses = ModelUse("scripted", 3, pytest.approx(0.006)), ModelUse("big", 2, pytest.approx(0.04))
    assert done.job.output.models == uses
    assert done.job.cost == pytest.approx(0.046)
    trace = build_trace(jobs.ask(lambda store: store.read_entries(done.job.id)))
    assert [each.model for each in trace] == ["", "", "", "big", "big"]
    assert "(scripted and big)" in done.job.output.pull_request.body


def test_claims_without_a_change_end_with_the_stronger_model(run):
    script = [*BEFORE_FIX, "Done.", "Done.", "Done.", *AFTER_FIX]
    others = big(EDIT, "Changed calc.py.")
    done = run("debug", DEBUG, script, workflow="phased", escalate="big", others=others)
    assert done.job.state == "completed"
    assert changes(done) == [("big", "the evidence does not hold after 3 attempts")]
    assert [each.rounds for each in done.job.output.models] == [len(script), 2]
    assert "no file has changed" in others["big"].requests[0].canisters[-1].text


def test_a_call_that_fails_three_times_and_used_up_rounds_end_with_the_stronger_model(run):
    reads = [Call("file", {"path": "calc.py", "start_line": line}) for line in range(1, 10)]
    script = [Call("test"), "test_add fails.", LOST, LOST, LOST, FILE, "Line 2.", *reads, "I read it.", *AFTER_FIX]
    others = big(FILE, "It subtracts.", EDIT, "Changed.")
    done = run("debug", DEBUG, script, workflow="phased", escalate="big", others=others)
    assert done.job.state == "completed"
    assert changes(done) == [
        ("big", "the same call of file failed 3 times"),
        ("big", "no rounds are left"),
    ]
    assert sum(isinstance(each, InvocationCanister) for each in others["big"].requests[0].canisters) == 3
    assert [each.rounds for each in done.job.output.models] == [len(script), 4]
    assert done.job.rounds == len(script) + 4


@pytest.mark.parametrize(
    ("workflow", "script", "given_back"),
    [
        ("short", [WRONG, WRONG, WRONG, RIGHT], "Another answer was not right"),
        ("phased", [*BEFORE_FIX, "Done.", "Done.", "Done.", EDIT, "Changed.", *AFTER_FIX], "refused. Go on."),
    ],
)
def test_a_stronger_model_that_cannot_be_asked_gives_the_phase_back(run, workflow, script, given_back):
    failed = ReplyFailed("provider", "unreachable", "connection refused")
    done = run("debug", DEBUG, script, workflow=workflow, escalate="big", others=big([failed]))
    assert done.job.state == "completed"
    assert changes(done)[1] == ("scripted", "big cannot be asked: connection refused")
    assert any(given_back in each for each in done.prompts)


def test_phases_have_models_of_their_own(run):
    settings = '[coding.phases.reproduce]\nmodel = "big"\n[coding.phases.commit]\nmodel = "big"\n'
    script = [FILE, "It subtracts.", FILE, "Line 2.", EDIT, "Changed.", "It passes."]
    others = big(Call("test"), "test_add fails.", "Mend add")
    done = run("debug", DEBUG, script, workflow="phased", settings=settings, others=others)
    assert done.job.state == "completed"
    started = [each.model for each in done.steps if type(each).__name__ == "PhaseStarted"]
    assert started == ["big", "", "", "", "", "big"]


@pytest.mark.parametrize(
    ("settings", "options", "told"),
    [
        ("", {"profile": CHEAP, "budget": 1.0, "escalate": "big"}, "a budget needs the price of big"),
        ('[coding.phases.fly]\nmodel = "big"\n', {}, "coding.phases.fly: no agent has such a phase"),
        ('model = "one"\n[coding]\nescalate = "one"\n', {}, "is the model of the job itself"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_job_works(run, settings, options, told):
    done = run("debug", DEBUG, [], settings=settings, others=big(), **options)
    assert told in done.job.error
    assert done.steps == []


def test_without_a_key_the_command_ends_at_once(command, repository, data, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = ["debug", "test_add fails", "--escalate", "openai:gpt-4o"]
    done = command(*arguments, cwd=repository.root, replies=[])
    assert done.code == 2
    assert "--escalate: openai:gpt-4o: it wants an API key; set OPENAI_API_KEY" in done.err
    assert data.all() == []
