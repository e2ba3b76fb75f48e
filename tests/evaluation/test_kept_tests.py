"""Tests that people keep: added, deleted, restored, and run with a model."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, ToolDeclaration, UserCanister
from callboard.errors import CallerError
from callboard.evaluation import kept_tests
from callboard.evaluation.kept_tests import TaskFile
from callboard.evaluation.report import Miss, Report, Unanswered
from callboard.evaluation.suites import load_file
from callboard.evaluation.task import LINE

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (ToolDeclaration("weather", "The weather of a city.", SCHEMA), ToolDeclaration("clock", "The time."))
CALL = InvocationCanister(identifier="c", name="weather", arguments={"city": "Rome"}, raw='{"city":"Rome"}')
ASKED = (UserCanister("How is Rome?"), CALL, ResultCanister("Sun.", invocation_id="c"))
VECTOR = {"wire": "chat", "events": []}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def keep(tests, calls=(("weather", {"city": "Rome"}),), vector=VECTOR, canisters=ASKED):
    return tests.keep(canisters, TOOLS, calls, vector)


def test_a_kept_test_has_all_tools_and_the_expected_calls():
    tests = TaskFile()
    name = keep(tests)
    (kept,) = tests.list()
    assert (kept.name, kept.question, kept.calls) == (name, "How is Rome?", [("weather", '{"city":"Rome"}')])
    assert kept.task.tools == TOOLS
    assert name in kept.vector
    assert name in kept.line
    assert [each.identifier for each in load_file(tests.path)] == [name]
    with pytest.raises(CallerError, match="a task of this name exists"):
        keep(tests)


def test_a_reply_without_a_call_expects_none():
    tests = TaskFile()
    said = (UserCanister("Hi"), AssistantCanister("Hello"))
    assert tests.expect(said) == []
    assert tests.expect(ASKED) == [CALL]
    keep(tests, calls=(), vector={}, canisters=said)
    (kept,) = tests.list()
    assert (kept.task.steps[0].expected, kept.vector) == ((), "")
    with pytest.raises(CallerError, match="the model has said nothing"):
        tests.expect([UserCanister("Hi")])


def test_a_test_that_no_suite_could_read_is_not_added():
    tests = TaskFile()
    with pytest.raises(CallerError, match="too long"):
        keep(tests, canisters=(UserCanister("x" * LINE), CALL))
    assert tests.list() == []


def test_a_deleted_test_is_restored_with_its_vector():
    tests = TaskFile()
    one, two = keep(tests), keep(tests, calls=())
    tests.remove(one)
    assert [each.name for each in tests.list()] == [two]
    assert tests.restore() == one
    assert [each.name for each in tests.list()] == [one, two]
    assert one in tests.list()[0].vector
    for wrong, message in ((tests.restore, "no removed test"), (lambda: tests.remove("x"), "no such test")):
        with pytest.raises(CallerError, match=message):
            wrong()
    for name in (one, two):
        tests.remove(name)
    assert tests.list() == []


def run_with(report, name="", model="gpt-5"):
    """The run of a kept test by a command that prints this report."""
    text = report if isinstance(report, str) else msgspec.json.encode(report).decode()
    script = f"import sys; print({text!r}); print('loading', file=sys.stderr); print(sys.argv[-1:], file=sys.stderr)"
    tests = TaskFile([sys.executable, "-c", script])
    name = name or keep(tests)
    tests.run(name, model)
    for process in tests._processes:
        process.wait(60)
    return TaskFile().list()[0].runs


def test_a_run_imports_nothing_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('a module of the project')")
    monkeypatch.chdir(tmp_path)
    tests = TaskFile()
    tests.run(keep(tests), "no-such-provider-model")
    (process,) = tests._processes
    process.wait(60)
    (run,) = tests.list()[0].runs
    assert run.state == "stopped"
    assert "a module of the project" not in run.why


def report(misses=(), failures=()):
    return Report("gpt-5", ("t",), (), tuple(misses), tuple(failures))


def test_a_run_says_passed_or_failed_and_why():
    (run,) = run_with(report())
    assert (run.state, run.model) == ("passed", "gpt-5")
    name = run.test
    miss = Miss("default", "recorded", "recorded", name, "no_call", "a call was to be made", ())
    (run,) = run_with(report(misses=[miss]), name)
    assert (run.state, run.why) == ("failed", "no call: a call was to be made")
    (run,) = run_with(report(failures=[Unanswered("default", name, "no such model")]), name)
    assert (run.state, run.why) == ("stopped", "no such model")
    runs = run_with("nothing", name, "other")
    assert [(each.model, each.state) for each in runs] == [("other", "stopped"), ("gpt-5", "stopped")]
    assert runs[0].why == "['other']"  # the last line of its standard error
    TaskFile().remove(name)
    assert not list((Path(TaskFile().path).parent / "runs").iterdir())


def test_a_run_goes_on_without_the_board(tmp_path, monkeypatch):
    """Its state is in files, and its lock is its own."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"import sys; print('no key', file=sys.stderr, flush=True); open({str(gate)!r}).read()"
    tests = TaskFile([sys.executable, "-c", script])
    name = keep(tests)
    monkeypatch.setattr(kept_tests, "MAX_RUNS", 1)
    tests.run(name, "gpt-5")
    other = TaskFile()
    assert other.list()[0].runs[0].state == "running"
    with pytest.raises(CallerError, match="1 tests run already"):
        other.run(name, "gpt-6")
    monkeypatch.setattr(kept_tests, "MAX_RUNS", 2)
    writer = gate.open("w")  # the process has said why, and reads
    with pytest.raises(CallerError, match="runs with this model already"):
        other.run(name, "gpt-5")
    with pytest.raises(CallerError, match="this test is running"):
        other.remove(name)
    (process,) = tests._processes
    process.kill()
    process.wait(60)
    writer.close()
    (run,) = other.list()[0].runs
    assert (run.state, run.why) == ("stopped", "no key")
    other.remove(name)


def test_a_file_that_is_a_link_stays_a_link(tmp_path):
    tests = TaskFile()
    name = keep(tests)
    target = tests.path.rename(tmp_path / "in_a_repository.jsonl")
    tests.path.symlink_to(target)
    tests.remove(name)
    assert target.read_bytes() == b""
    tests.restore()
    assert [each.identifier for each in load_file(target)] == [name]


def test_a_task_that_a_person_has_edited_is_listed():
    tests = TaskFile()
    name = keep(tests)
    task = msgspec.json.decode(tests.path.read_bytes())
    for changes in ({"steps": []}, {"steps": [{"expected": [{"name": "weather", "arguments": {"city": []}}]}]}):
        tests.path.write_bytes(msgspec.json.encode({**task, **changes}))
        assert [each.name for each in tests.list()] == [name]
    assert tests.list()[0].calls == [("weather", "{}")]


@pytest.mark.parametrize(
    "model", ["", "command:rm", " command:rm", "gpt-5,command:rm", "local:/etc/passwd", "local:x.gguf", "--help"]
)
def test_a_model_that_is_a_program_is_not_run(model):
    tests = TaskFile(["false"])
    name = keep(tests)
    with pytest.raises(CallerError, match="cannot be run from here; in a terminal: callboard eval"):
        tests.run(name, model)
