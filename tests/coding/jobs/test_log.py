import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.jobs.log import JobLog, Notice, PhaseEnded, PhaseStarted, PromptSent, replay_steps
from callboard.core import (
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReasoningPiece,
    ReplyEnded,
    ReplyStarted,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    Usage,
    contents,
    error_result,
)
from callboard.errors import CallerError

SEED = [
    PhaseStarted("implement", 30),
    PromptSent("Task: Build new feature\nDescription: Add tests for GenerateInstances..."),
    RoundStarted(1),
    ReplyStarted(),
    TextPiece("I'll start by reading "),
    TextPiece("the file:\n"),
    InvocationStarted(0, "c1", "file"),
    InvocationEnded(0, "c1", "file", {"path": "pkg/recurrence/generator.go"}, '{"path":"pkg/recurrence/generator.go"}'),
    ReplyEnded("invocations"),
    ResultReady(ResultCanister(invocation_id="c1", content=contents("package recurrence\n"))),
    RoundStarted(2),
    ReplyStarted(),
    TextPiece("Now I'll create the test file:\n"),
    InvocationEnded(0, "c2", "code_edit", {"path": "x_test.go"}, "{}"),
    InvocationEnded(1, "c3", "grep", {"pattern": "x"}, "{}"),
    ReplyEnded("invocations"),
    ResultReady(ResultCanister(invocation_id="c2", content=contents("done"))),
    ResultReady(error_result("c3", "not_found", "no tool 'grep'")),
    RoundStarted(3),
    ReplyStarted(),
    TextPiece("Task complete."),
    ReplyEnded("stop"),
    RunEnded("completed", "Task complete.", Usage(1, 2), None),
    PhaseEnded("implement"),
]


def written(folder, steps):
    with JobLog(folder) as record:
        for step in steps:
            record.add(step)
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.name != "events.jsonl"}


def test_the_seeds_example_round_by_round(tmp_path):
    files = written(tmp_path, SEED)
    assert [*files] == [
        "001-prompt.txt",
        "002-response.txt",
        "003-tool-calls.json",
        "004-tool-results.json",
        "005-prompt.txt",
        "006-response.txt",
        "007-tool-calls.json",
        "008-tool-results.json",
        "009-prompt.txt",
        "010-response.txt",
    ]
    assert files["001-prompt.txt"].startswith("Task: Build new feature")
    assert files["002-response.txt"] == "I'll start by reading the file:\n"
    assert json.loads(files["003-tool-calls.json"]) == [
        {"id": "c1", "tool": "file", "args": {"path": "pkg/recurrence/generator.go"}}
    ]
    assert json.loads(files["004-tool-results.json"]) == [
        {"id": "c1", "tool": "file", "success": True, "output": "package recurrence\n"}
    ]
    assert files["005-prompt.txt"] == "Tool 1 (file) output:\npackage recurrence\n"
    assert [each["tool"] for each in json.loads(files["007-tool-calls.json"])] == ["code_edit", "grep"]
    assert files["009-prompt.txt"] == "Tool 1 (code_edit) output:\ndone\n\nTool 2 (grep) failed: no tool 'grep'"
    assert files["010-response.txt"] == "Task complete."


def test_what_was_recorded_replays(tmp_path):
    written(tmp_path, SEED)
    assert [*replay_steps(tmp_path)] == SEED


def test_a_record_goes_on_where_it_was(tmp_path):
    written(tmp_path, SEED)
    files = written(tmp_path, [PromptSent("More."), RoundStarted(1), TextPiece("Yes."), ReplyEnded("stop")])
    assert [*files][-2:] == ["011-prompt.txt", "012-response.txt"]


def test_more_than_999_files_go_on_counting(tmp_path):
    (tmp_path / "1234-response.txt").touch()
    files = written(tmp_path, [PromptSent("x"), RoundStarted(1)])
    assert "1235-prompt.txt" in files


def test_calls_that_were_cut_and_thoughts_are_recorded(tmp_path):
    files = written(
        tmp_path,
        [
            RoundStarted(1),
            ReasoningPiece("Hm"),
            InvocationEnded(0, "a", "file", None, "[1"),
            InvocationIncomplete(1, "b", "file", '{"pa', "length"),
            ReplyEnded("length"),
        ],
    )
    assert files["002-response.txt"] == "<think>\nHm\n</think>\n"
    assert json.loads(files["003-tool-calls.json"]) == [
        {"id": "a", "tool": "file", "args": "[1"},
        {"id": "b", "tool": "file", "args": '{"pa', "incomplete": "length"},
    ]


def test_what_was_begun_is_written_when_the_record_is_left(tmp_path):
    files = written(tmp_path, [RoundStarted(1), TextPiece("half a rep")])
    assert files["002-response.txt"] == "half a rep"


def test_a_last_line_that_was_cut_is_left_out(tmp_path):
    written(tmp_path, SEED)
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert [*replay_steps(tmp_path)] == SEED[:-1]


def test_a_line_that_is_no_step_is_told_by_its_number(tmp_path):
    written(tmp_path, SEED[:1])
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"type":"gone"}\n')
    with pytest.raises(CallerError, match=r"events\.jsonl:2: not a step"):
        [*replay_steps(tmp_path)]


def test_nothing_recorded_is_told(tmp_path):
    with pytest.raises(CallerError, match="nothing was recorded"):
        [*replay_steps(tmp_path)]


@given(
    st.lists(st.one_of(st.builds(Notice, st.text()), st.builds(PromptSent, st.text()), st.builds(TextPiece, st.text())))
)
def test_any_text_replays(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("record")
    written(folder, steps)
    assert [*replay_steps(folder)] == steps
