import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core import UserCanister
from callboard.errors import CallerError
from callboard.evaluation import load_when2call
from callboard.evaluation.bfcl import decode_when2call

TOOL = {
    "name": "rooms.find",
    "description": "Finds rooms.",
    "parameters": {"type": "dict", "properties": {"price": {"type": "float"}}, "required": []},
}


def write(path, *answers, tools=(TOOL,)):
    rows = [
        {
            "uuid": f"{number}",
            "source": "BFCL v2 Live Simple",
            "question": "A room?",
            "correct_answer": answer,
            "answers": {},
            "target_tool": None,
            "tools": [tool if isinstance(tool, str) else json.dumps(tool) for tool in tools],
        }
        for number, answer in enumerate(answers)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")


def test_only_where_a_call_was_right_one_has_to_be_made(tmp_path):
    write(tmp_path / "when2call_test_mcq.jsonl", "tool_call", "direct", "request_for_info", "cannot_answer")
    tasks = load_when2call(tmp_path)
    assert [(task.category, task.steps[0].any_call) for task in tasks] == [
        ("tool_call", True),
        ("direct", False),
        ("request_for_info", False),
        ("cannot_answer", False),
    ]
    for task in tasks:
        assert task.tools[0].name == "rooms_find"
        assert task.tools[0].schema["properties"] == {"price": {"type": "number"}}
        assert task.steps[0].canisters == (UserCanister("A room?"),)
        assert task.steps[0].expected == ()


def test_a_task_without_tools_is_left_out(tmp_path):
    write(tmp_path / "some.jsonl", "cannot_answer", tools=())
    assert load_when2call(tmp_path / "some.jsonl") == []


@pytest.mark.parametrize(("answer", "tool"), [("perhaps", TOOL), ("direct", "{"), ("direct", '{"name": 1}')])
def test_what_is_not_as_when2call_writes_it_is_refused_by_its_line(answer, tool, tmp_path):
    write(tmp_path / "some.jsonl", answer, tools=[tool])
    with pytest.raises(CallerError, match=r"some\.jsonl:1"):
        load_when2call(tmp_path / "some.jsonl")


def test_where_there_is_no_file_the_error_says_where_to_get_it(tmp_path):
    with pytest.raises(CallerError, match=r"github\.com/NVIDIA/When2Call"):
        load_when2call(tmp_path)


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"{}", b"[]", b'{"uuid": "1"}', b"[" * 5000]), min_size=1))
def test_lines_of_any_bytes_are_refused_by_the_first(lines):
    with pytest.raises(CallerError, match=r"some\.jsonl:1"):
        [*decode_when2call(lines, path="some.jsonl")]
