import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import AssistantCanister, SupervisorCanister, UserCanister
from callboard.errors import CallerError
from callboard.evaluation import ExpectedCall, load_bfcl
from callboard.evaluation.bfcl import CATEGORIES, REFUSED, decode_bfcl, find_categories, has_answers
from callboard.schema.json_schema import compile_schema

FUNCTION = {
    "name": "math.area",
    "description": "The area.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "float", "description": "in metres", "optional": True},
            "corners": {"type": "tuple", "items": {"type": "dict", "properties": {"x": {"type": "integer"}}}},
            "anything": {"type": "any"},
        },
        "required": ["base"],
    },
}


def question(identifier="simple_python_0", messages=({"role": "user", "content": "The area?"},), functions=(FUNCTION,)):
    return json.dumps({"id": identifier, "question": [[*messages]], "function": [*functions]}).encode()


def answer(identifier="simple_python_0", **arguments):
    return json.dumps({"id": identifier, "ground_truth": [{"math.area": arguments}]}).encode()


def decode(*questions, answers=(), category="simple_python"):
    return [*decode_bfcl(category, questions, answers, path="file.json")]


def test_a_task_has_the_names_and_types_that_providers_take():
    [task] = decode(question(), answers=[answer(base=[3.0], anything=["", 5])])
    [tool] = task.tools
    assert tool.name == "math_area"
    assert tool.schema == {
        "type": "object",
        "properties": {
            "base": {"type": "number", "description": "in metres"},
            "corners": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "anything": {},
        },
        "required": ["base"],
    }
    assert compile_schema(tool.schema).validate({"base": 1.5, "anything": [1]}) == {"base": 1.5, "anything": [1]}
    [step] = task.steps
    assert step.canisters == (UserCanister("The area?"),)
    assert step.expected == (ExpectedCall("math_area", {"base": (3.0,), "anything": ("", 5)}),)


def test_the_messages_of_live_tasks_keep_their_roles():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "The area?"},
    ]
    [task] = decode(question("live_irrelevance_0-0-0", messages), category="live_irrelevance")
    assert task.steps[0].canisters == (
        SupervisorCanister("Be brief."),
        UserCanister("Hi"),
        AssistantCanister("Yes?"),
        UserCanister("The area?"),
    )


def test_restraint_needs_no_answers_and_relevance_takes_any_call():
    [irrelevance] = decode(question("irrelevance_0"), category="irrelevance")
    [relevance] = decode(question("live_relevance_0-0-0"), category="live_relevance")
    assert (irrelevance.steps[0].expected, irrelevance.steps[0].any_call) == ((), False)
    assert (relevance.steps[0].expected, relevance.steps[0].any_call) == ((), True)


@table(
    ("lines", "message"),
    [
        ([b"{"], r"file\.json:1.*not as it should be"),
        ([b"[" * 5000], r"file\.json:1.*not as it should be"),
        ([question(messages=[{"role": "tool", "content": ""}])], r"file\.json:1.*role 'tool'"),
        ([question(functions=[FUNCTION, FUNCTION])], r"file\.json:1.*two tools"),
        ([question(functions=[{**FUNCTION, "name": "other"}])], r"file\.json:1.*not declared"),
        ([question("simple_python_1")], r"file\.json:1.*accepted answer"),
        ([question(functions=[{**FUNCTION, "parameters": {"type": "blob"}}])], r"file\.json:1.*type 'blob'"),
        ([question(functions=[{**FUNCTION, "parameters": {"items": []}}])], r"file\.json:1.*not an object"),
    ],
)
def test_what_is_not_as_bfcl_writes_it_is_refused_by_its_line(lines, message):
    with pytest.raises(CallerError, match=message):
        decode(*lines, answers=[answer(base=[1])])


@given(
    st.recursive(st.none() | st.text(max_size=3), lambda one: st.lists(one) | st.dictionaries(st.text(max_size=9), one))
)
def test_a_line_of_any_json_is_a_task_or_refused(line):
    with pytest.raises(CallerError):
        decode(json.dumps(line).encode())


@pytest.mark.parametrize("category", [*REFUSED, "unheard", "multi_turn"])
def test_a_category_that_cannot_be_read_is_refused_with_the_reason(category, tmp_path):
    with pytest.raises(CallerError, match=r"(?s)cannot be read: \w.*simple_python"):
        load_bfcl(tmp_path, [category])


def test_a_directory_is_read_category_by_category(tmp_path):
    (tmp_path / "possible_answer").mkdir()
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        (tmp_path / name).write_bytes(question(f"{category}_0") + b"\n\n" + question(f"{category}_1"))
        if has_answers(category):
            answers = [answer(f"{category}_{number}", base=[1]) for number in (1, 0)]
            (tmp_path / "possible_answer" / name).write_bytes(b"\n".join(answers))
    assert [task.identifier for task in load_bfcl(tmp_path)] == [f"{each}_{n}" for each in CATEGORIES for n in (0, 1)]
    category = "live_simple"
    assert {task.category for task in load_bfcl(tmp_path, [category])} == {category}


def test_of_two_versions_the_newer_is_read(tmp_path):
    for version in (4, 10):
        (tmp_path / f"BFCL_v{version}_irrelevance.json").write_bytes(question(f"irrelevance_{version}"))
    assert [task.identifier for task in load_bfcl(tmp_path, ["irrelevance"])] == ["irrelevance_10"]


def test_a_directory_without_the_file_is_refused(tmp_path):
    (tmp_path / "BFCL_v4_live_irrelevance.json").write_bytes(question())
    with pytest.raises(CallerError, match=r"no BFCL_v4_irrelevance\.json"):
        load_bfcl(tmp_path, ["irrelevance"])
    assert find_categories(tmp_path) == ["live_irrelevance"]
