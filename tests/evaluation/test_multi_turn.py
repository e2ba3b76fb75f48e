"""BFCL's tasks of several turns, on a small package of the same layout as the published one.

`make conformance-bfcl` plays the right calls of all 800 tasks on the real one.
"""

import asyncio
import hashlib
import json
import zipfile

import pytest
from tests.tables import table

from callboard.core import ResultCanister, UserCanister
from callboard.errors import CallerError, ModelFileError
from callboard.evaluation import decode_task, encode_task, load_bfcl
from callboard.evaluation.bfcl import DOCUMENTS, NEW_TOOLS
from callboard.evaluation.check import check_step
from callboard.evaluation.runner import attempt_task
from callboard.evaluation.simulation import MAX_ROUNDS
from callboard.evaluation.suites import load_suite, pull_multi_turn
from callboard.testing import Call, ScriptedModel

PACKAGE = "bfcl_eval/eval_checker/multi_turn_eval"
UTILS = """
import importlib

def execute_multi_turn_func_call(calls, initial_config, involved_classes, model_name, test_entry_id, long_context=False):
    assert not calls, "no text may be run"
    module = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.func_source_code.ticket_api")
    instances = {name: getattr(module, name)() for name in involved_classes}
    for name, instance in instances.items():
        instance._load_scenario(initial_config.get(name, {}), long_context=long_context)
    return [], instances
"""
CHECKER = """
def state_checker(model, right):
    differences = {name: vars(right[name]) for name in right if vars(model[name]) != vars(right[name])}
    return {"valid": not differences, "error_message": "states differ", "error_type": "multi_turn:instance_state_mismatch",
            "details": {"differences": differences}}

def response_checker(model, right, turn):
    missing = [each for each in right if each not in model]
    return {"valid": not missing, "error_message": "results differ", "error_type": "multi_turn:execution_response_mismatch",
            "details": {"missing_items": missing}}
"""
API = """
import time

print("this line is not an answer")

class TicketAPI:
    def _load_scenario(self, scenario, long_context=False):
        self.tickets = list(scenario.get("tickets", []))
        self.long_context = long_context

    def open_ticket(self, title, priority=1):
        self.tickets.append([title, priority])
        return {"id": len(self.tickets)}

    def count(self):
        return "many" * 9 if self.long_context else len(self.tickets)

    def close_all(self):
        self.tickets.clear()

    def sleep(self, seconds):
        time.sleep(seconds)
"""
FILES = {
    "bfcl_eval/__init__.py": "",
    "bfcl_eval/constants/__init__.py": "",
    "bfcl_eval/constants/executable_backend_config.py": "",
    "bfcl_eval/constants/model_config.py": "raise SystemExit('not unpacked')",
    "bfcl_eval/eval_checker/__init__.py": "",
    f"{PACKAGE}/__init__.py": "",
    f"{PACKAGE}/multi_turn_utils.py": UTILS,
    f"{PACKAGE}/multi_turn_checker.py": CHECKER,
    f"{PACKAGE}/func_source_code/__init__.py": "",
    f"{PACKAGE}/func_source_code/ticket_api.py": API,
    f"{PACKAGE}/func_source_code/web_search.py": "raise SystemExit('not unpacked')",
    "bfcl_eval/../../outside.py": "",
}


def describe(name, **properties):
    schema = {"type": "dict", "properties": {each: {"type": kind} for each, kind in properties.items()}}
    return json.dumps({"name": name, "description": name, "parameters": schema})


TOOLS = [describe("open_ticket", title="string", priority="integer"), describe("count"), describe("close_all")]
QUESTION = {
    "id": "multi_turn_base_0",
    "question": [[{"role": "user", "content": "Open a ticket: disk."}], [{"role": "user", "content": "How many?"}]],
    "initial_config": {"TicketAPI": {"tickets": [["old", 1]]}},
    "path": [],
    "involved_classes": ["TicketAPI"],
}
ANSWER = {"id": "multi_turn_base_0", "ground_truth": [["open_ticket('disk', priority=2)"], ["count()"]]}
OPEN = Call("open_ticket", {"title": "disk", "priority": 2})


def write_data(folder, category="multi_turn_base", question=QUESTION, answer=ANSWER):
    for name in DOCUMENTS.values():
        (folder / "multi_turn_func_doc").mkdir(parents=True, exist_ok=True)
        lines = TOOLS if name == "ticket_api" else []
        (folder / f"multi_turn_func_doc/{name}.json").write_text("\n".join(lines))
    (folder / "possible_answer").mkdir(exist_ok=True)
    (folder / f"BFCL_v4_{category}.json").write_text(json.dumps(question))
    (folder / f"possible_answer/BFCL_v4_{category}.json").write_text(json.dumps(answer))


@pytest.fixture
def load(tmp_path):
    """Loads a task from a folder of BFCL's."""

    def load(category="multi_turn_base", *, question=None, answer=None):
        write_data(tmp_path, category, QUESTION | (question or {}), ANSWER | (answer or {}))
        (task,) = load_bfcl(tmp_path, [category])
        return task

    return load


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The small package in Callboard's data directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "data/callboard/evaluation/bfcl-eval-2026.3.23-multi-turn"
    for name, text in FILES.items():
        if ".." not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    write_data(folder / "bfcl_eval/data")
    return folder


def play(task, replies):
    model = ScriptedModel(replies)
    attempts = asyncio.run(attempt_task(model, task))
    return [check_step(task, *each) for each in zip(task.steps, attempts, strict=False)], attempts, model


# Reading.


def test_a_task_has_its_tools_its_state_and_a_step_for_each_turn(load):
    task = load()
    assert [tool.name for tool in task.tools] == ["open_ticket", "count", "close_all"]
    assert task.simulation.state == QUESTION["initial_config"]
    assert [step.canisters[0].text for step in task.steps] == ["Open a ticket: disk.", "How many?"]
    (right,) = task.steps[0].right_calls
    assert (right.name, right.positional, right.arguments) == ("open_ticket", ("disk",), {"priority": 2})
    assert decode_task(encode_task(task)) == task


def test_a_tool_that_is_missing_is_declared_in_its_turn(load):
    turns = [*QUESTION["question"], []]
    task = load(
        "multi_turn_miss_func",
        question={"question": turns, "missed_function": {"2": ["count"]}},
        answer={"ground_truth": [*ANSWER["ground_truth"], []]},
    )
    assert [tool.name for tool in task.tools] == ["open_ticket", "close_all"]
    assert [[tool.name for tool in step.tools] for step in task.steps] == [[], [], ["count"]]
    assert task.steps[2].canisters == (UserCanister(NEW_TOOLS),)


@table(
    ("question", "answer"),
    [
        ({"involved_classes": ["os"]}, {}),
        ({}, {"ground_truth": [["count()"]]}),
        ({}, {"ground_truth": [["__import__('os').system('true')"], ["count()"]]}),
        ({}, {"ground_truth": [["count(open('x'))"], ["count()"]]}),
        ({}, {"ground_truth": [["count("], ["count()"]]}),
        ({}, {"id": "another"}),
    ],
)
def test_a_task_with_another_api_or_with_code_is_refused_by_its_line(load, question, answer):
    with pytest.raises(CallerError, match=r"BFCL_v4_multi_turn_base.json:1"):
        load(question=question, answer=answer)


# Playing.


@pytest.mark.usefixtures("package")
def test_the_right_calls_solve_the_task_and_the_model_reads_their_results(load):
    judgements, attempts, model = play(load(), [OPEN, "Opened.", Call("count"), "Two."])
    assert [each.solved for each in judgements] == [True, True]
    assert [[call.name for call in each.calls] for each in attempts] == [["open_ticket"], ["count"]]
    results = [each for each in model.requests[-1].canisters if isinstance(each, ResultCanister)]
    assert [each.text for each in results] == ['{"id": 2}', "2"]
    assert len({each.invocation_id for each in results}) == 2
    assert model.requests[2].canisters[-1].text == "How many?"


@pytest.mark.usefixtures("package")
@table(
    ("replies", "label"),
    [
        (["I cannot."], "no_call"),
        ([Call("open_ticket", {"title": "disc", "priority": 2}), "Opened."], "wrong_state"),
        ([Call("no_such_tool"), "Hm."], "wrong_state"),
        ([Call("_load_scenario", {"scenario": {}}), "Hm."], "wrong_state"),
        ([Call("open_ticket", {"titel": "disk"}), "Hm."], "wrong_state"),
        ([OPEN, "Opened.", Call("close_all"), OPEN, "Two."], "wrong_state"),
        ([OPEN, "Opened.", Call("no_such_tool"), "Two."], "missing_result"),
        ([Call("count")] * (MAX_ROUNDS + 1), "too_many_rounds"),
    ],
)
def test_wrong_calls_are_missed_under_a_label(load, replies, label):
    judgements, _, _ = play(load(), replies)
    assert (judgements[-1].solved, judgements[-1].label) == (False, label)


@pytest.mark.usefixtures("package")
def test_a_call_may_be_corrected_within_its_turn(load):
    wrong = Call("open_ticket", {"titel": "disk"})
    judgements, _, _ = play(load(), [wrong, OPEN, "Opened.", Call("count"), "Two."])
    assert all(each.solved for each in judgements)


@pytest.mark.usefixtures("package")
def test_a_turn_without_right_calls_is_not_judged(load):
    task = load("multi_turn_miss_param", answer={"ground_truth": [[], ["count()"]]})
    judgements, _, _ = play(task, ["For which disk?", Call("count"), "One."])
    assert [each.solved for each in judgements] == [True, True]


@pytest.mark.usefixtures("package")
def test_the_long_context_is_a_matter_of_the_apis(load):
    _, _, model = play(load("multi_turn_long_context"), [OPEN, "Opened.", Call("count"), "Many."])
    assert "manymany" in model.requests[-1].canisters[-1].text


@pytest.mark.usefixtures("package")
def test_a_call_that_never_ends_is_missed(load, monkeypatch):
    monkeypatch.setattr("callboard.evaluation.simulation.TIMEOUT", 2)
    judgements, attempts, _ = play(load(), [Call("sleep", {"seconds": 3600})])
    assert not judgements[0].solved
    assert "did not answer in 2 seconds" in judgements[0].why
    assert len(attempts) == 1


def test_an_api_that_does_not_start_is_an_error_that_says_what_to_do(load, package):
    (package / f"{PACKAGE}/multi_turn_checker.py").unlink()
    with pytest.raises(CallerError, match=r"multi_turn_base_0: .*stopped(.|\s)*delete this folder"):
        play(load(), ["Hm."])


def test_the_process_sees_neither_our_packages_nor_our_environment(load, package, monkeypatch):
    monkeypatch.setenv("SECRET", "sesame")
    source = package / f"{PACKAGE}/func_source_code/ticket_api.py"
    source.write_text(
        API + "    def look(self):\n        import os, sys\n"
        "        return {'secret': os.environ.get('SECRET'), 'packages': [p for p in sys.path if 'site-packages' in p]}\n"
    )
    _, _, model = play(load(), [Call("look"), "Hm."])
    assert model.requests[-1].canisters[-1].text == '{"secret": null, "packages": []}'


@pytest.mark.usefixtures("package")
def test_the_suite_has_the_category():
    assert [task.identifier for task in load_suite("bfcl", ["multi_turn_base"])] == ["multi_turn_base_0"]


# Downloading.


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """The small package and an empty mpmath as wheels that pip finds. Returns their hashes."""
    hashes = {}
    for name, version, files in (("bfcl_eval", "2026.3.23", FILES), ("mpmath", "1.3.0", {"mpmath/a/b.py": ""})):
        path = tmp_path / f"index/{name}-{version}-py3-none-any.whl"
        path.parent.mkdir(exist_ok=True)
        about = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            archive.writestr(f"{about}/METADATA", metadata)
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{about}/RECORD", "")
            for file, text in files.items():
                archive.writestr(file, text)
        hashes[f"{name.replace('_', '-')}=={version}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return hashes


def test_only_the_needed_modules_are_unpacked(wheels, tmp_path):
    folder = tmp_path / "data/apis"
    assert asyncio.run(pull_multi_turn(folder, wheels=wheels)) == folder
    unpacked = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    kept = {name for name in FILES if not any(word in name for word in ("model_config", "web_search", ".."))}
    assert unpacked == kept | {"mpmath/a/b.py"}
    assert [*tmp_path.rglob("outside.py")] == []


@pytest.mark.usefixtures("wheels")
def test_other_wheels_are_refused_and_leave_nothing(tmp_path):
    with pytest.raises(ModelFileError, match=r"bfcl_eval-2026\.3\.23.*has the hash"):
        asyncio.run(pull_multi_turn(tmp_path / "data/apis"))
    assert [*(tmp_path / "data").iterdir()] == []
