"""The tool by which a large model lets another conversation search the repository."""

from callboard import Agent, tool
from callboard.coding.agents.explorer import make_explorer
from callboard.core import ResultCanister
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble, Policy

REPORT = {"description": "add gives a wrong sum"}
READ = Call("file", {"path": "calc.py"})
ANSWERS = ["calc.py is involved: it defines add.", "The cause is in calc.py, line 2. Severity: high."]


def test_only_the_answer_of_a_search_comes_into_the_conversation(run):
    ask = Call("explore", {"question": "Where is add defined?"})
    done = run("triage", REPORT, [ask, READ, "It is in calc.py, line 1.", *ANSWERS], workflow="phased")
    assert done.job.state == "completed"
    first, searching, _, after, _ = done.model.requests
    assert "explore" in {each.name for each in first.tools}
    assert searching.canisters[-1].text == "Where is add defined?"
    assert {each.name for each in searching.tools}.isdisjoint({"explore", "bash", "git"})
    results = [each.text for each in after.canisters if isinstance(each, ResultCanister)]
    assert results == ["It is in calc.py, line 1."]
    assert "a ^ b" not in str(after.canisters)


def search(model, *, rules=()):
    """The tool of a model, which can read one file."""

    @tool(subjects={"path": "path"})
    def read(path: str) -> str:
        return f"the text of {path}"

    return make_explorer(model, Ensemble("files", [read]), policy=Policy(rules), after_call=lambda: lambda *_: None)


def test_searches_of_one_reply_run_together_unless_the_model_is_local():
    for name, are_together in (("openai:gpt-4o", True), ("local:qwen2.5-coder-1.5b", False)):
        model = ScriptedModel([Call("read", {"path": "a.txt"}), Call("read", {"path": "b.txt"}), "A.", "B."], name=name)
        questions = [Call("explore", {"question": each}) for each in ("Where is a?", "Where is b?")]
        Agent(ScriptedModel([questions, "So."]), ensembles=[search(model)], keep_order=True).run_sync("?")
        assert (model.requests[1].canisters[-1].text == "Where is b?") is are_together


def test_the_rules_hold_in_a_search_and_one_without_an_answer_is_an_error():
    model = ScriptedModel([Call("read", {"path": "secret.txt"}), *[""] * 5])
    outer = ScriptedModel([Call("explore", {"question": "Where?"}), "So."])
    result = Agent(outer, ensembles=[search(model, rules=[("*", "allow"), ("read(secret*)", "deny")])]).run_sync("?")
    assert "the search gave no answer: " in str(result.canisters)
    assert "read may not run" in str(model.requests[1].canisters)


def test_a_small_model_has_no_such_tool(run):
    done = run("triage", REPORT, [Call("read_file", {"path": "calc.py"}), *ANSWERS])
    assert "explore" not in {each.name for each in done.model.requests[0].tools}
