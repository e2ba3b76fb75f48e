import ast
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import ToolDeclaration
from callboard.dialects import DIALECTS, render_tools

OWN = [name for name, dialect in DIALECTS.items() if dialect.tool_list is not None]
MARKERS = [
    "</tools>",
    "<tool_call>",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "```",
    "~~~",
    "</TOOLS>",
    "<|tool_list_end|>",
]
MARKERS += ["<|message_model|><|content_invoke_tool_json|>", "<think>", "]<]minimax[>["]
descriptions = st.lists(st.sampled_from([*MARKERS, '"""', "\\", "\n", "`", "<", "word "]), max_size=6).map("".join)


def tool(description="", name="f"):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "description": description}}, "required": ["a"]}
    return ToolDeclaration(name, description, schema)


@table("name", OWN)
def test_the_tools_of_its_own_form_are_json(name):
    row = DIALECTS[name]
    before, _, behind = row.tool_list.text.partition("{tools}")
    text = render_tools(row, [tool("Ünder."), tool("", "none")], "dialect")
    assert text.startswith(before)
    assert text.endswith(behind)
    listed = text[len(before) : len(text) - len(behind)].split(row.tool_list.join)
    joined = "[" + ", ".join(listed) + "]"
    functions = [each.get("function", each) for each in json.loads(joined)]
    assert [(each["name"], each["description"]) for each in functions] == [("f", "Ünder."), ("none", "")]
    assert functions[0]["parameters"] == tool("Ünder.").schema


def test_qwen_reads_what_its_template_says():
    assert render_tools(DIALECTS["hermes"], [ToolDeclaration("f", "Does it.", {})], "dialect") == (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        '{"type": "function", "function": {"name": "f", "description": "Does it.", "parameters": {}}}\n'
        "</tools>\n\nFor each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


@table("name", [name for name in DIALECTS if name not in OWN])
def test_a_dialect_without_a_form_of_its_own_takes_json(name):
    row = DIALECTS[name]
    assert render_tools(row, [tool()], "dialect") == render_tools(row, [tool()])


@pytest.mark.parametrize("name", OWN)
@settings(max_examples=15)
@given(descriptions)
def test_no_description_closes_its_own_list(name, description):
    row = DIALECTS[name]
    plain, hostile = (render_tools(row, [tool(each)], "dialect") for each in ("", description))
    assert {mark: hostile.lower().count(mark.lower()) for mark in MARKERS if mark in _all_marks(row)} == {
        mark: plain.lower().count(mark.lower()) for mark in MARKERS if mark in _all_marks(row)
    }
    before, _, behind = row.tool_list.text.partition("{tools}")
    read = json.loads(hostile[len(before) : len(hostile) - len(behind)])
    assert read.get("function", read)["description"] == description


def _all_marks(row):
    spelled = {mark for _, frame in row.all_frames() for mark in (*frame.openers, *frame.closers)}
    return {*spelled, "```", "~~~", *(mark for mark in MARKERS if mark in row.tool_list.text)}


@pytest.mark.parametrize("name", ["json", "hermes", "smolagents", "gemma3", "inkling", "auto"])
@settings(max_examples=15)
@given(descriptions)
def test_no_description_opens_a_call_from_a_docstring(name, description):
    row = DIALECTS[name]
    marks = {mark for _, frame in row.all_frames() for mark in frame.openers} & {*MARKERS} | {"```", "~~~"}
    text, plain = (render_tools(row, [tool(each)], "python") for each in (description, ""))
    assert {mark: text.count(mark) for mark in marks} == {mark: plain.count(mark) for mark in marks}
    source = text[text.index("def f(") :].partition('\n    """\n')[0]
    (node,) = ast.parse(source + '\n    """').body if description.strip() else ast.parse("def f(): 0").body
    assert (ast.get_docstring(node) or "").partition("Args:")[0].split() == description.split()


@pytest.mark.parametrize("form", ["json", "python", "dialect"])
def test_200_tools_stand_in_the_prompt_and_how_to_call_behind_them(form):
    tools = [tool("What it does.", f"tool_{each}") for each in range(200)]
    text = render_tools(DIALECTS["qwen3_coder"], tools, form)
    assert all(f"tool_{each}" in text for each in range(200))
    assert text.rindex("<tool_call>") > text.index("tool_199")
    assert len(text) < 200 * 400
    assert text == render_tools(DIALECTS["qwen3_coder"], tools, form)


def count_calls(function):
    """How many functions written in Python are called: what no other load on the machine moves."""
    count = 0

    def watch(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("form", ["json", "python", "dialect"])
def test_twice_the_tools_and_twice_the_parameters_cost_twice_as_much(form):
    def render(tools, parameters):
        properties = {f"p{each}": {"type": "string", "description": "What it is."} for each in range(parameters)}
        declared = [ToolDeclaration(f"f{each}", "", {"properties": properties}) for each in range(tools)]
        render_tools(DIALECTS["hermes"], declared, form)

    render(1, 1)
    few, more, larger = (count_calls(lambda size=size: render(*size)) for size in ((20, 5), (40, 5), (20, 10)))
    assert more <= 2.2 * few
    assert larger <= 2.2 * few
