"""A structural tag has the form that xgrammar reads, and its parts are those of a call."""

import json

import pytest
from tests.tables import table

from callboard.core import InvocationCanister, ToolDeclaration
from callboard.dialects import DIALECTS, NotSpellable, render_calls
from callboard.dialects.constraints import constraint_fields, write_structural_tag

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [ToolDeclaration("get_weather", "", SCHEMA), ToolDeclaration("now")]
CALL = InvocationCanister("0", "get_weather", {"city": "Oslo"})
STYLES = {
    "hermes": "json",
    "harmony": "json",
    "qwen3_coder": "qwen_xml",
    "minimax_m2": "minimax_xml",
    "deepseek_v32": "deepseek_xml",
    "glm47": "glm_xml",
    "kimi_k3": "kimi_k3_xml",
}
NAMES = sorted(set(DIALECTS) - {"markdown_bash"})


def tags(form):
    """The tags of calls in a format."""
    if form["type"] == "tag" and form["content"].get("tags") is None:
        return [form]
    return [each for held in (form.get("tags") or [form["content"]]) for each in tags(held)]


@table("dialect", NAMES)
@table("lazily", [False, True])
def test_each_tool_is_a_tag_that_begins_and_ends_as_its_call_is_written(dialect, lazily):
    tag = write_structural_tag(DIALECTS[dialect], TOOLS, lazily=lazily)
    assert tag["type"] == "structural_tag"
    assert json.loads(json.dumps(tag)) == tag
    first, second = tags(tag["format"])
    text = render_calls(DIALECTS[dialect], [CALL], TOOLS)
    assert first["begin"] in text
    assert text.rstrip().endswith(first["end"].strip()) or first["end"].strip() in text
    assert first != second


@table("dialect", NAMES)
def test_a_trigger_begins_one_kind_of_tag(dialect):
    form = write_structural_tag(DIALECTS[dialect], TOOLS, lazily=True)["format"]
    for tag in form["tags"]:
        assert len([each for each in form["triggers"] if tag["begin"].startswith(each)]) == 1


@pytest.mark.parametrize("dialect", STYLES)
def test_arguments_are_a_schema_where_xgrammar_has_a_style_for_them(dialect):
    content = tags(write_structural_tag(DIALECTS[dialect], TOOLS)["format"])[0]["content"]
    content = content["elements"][-1] if content["type"] == "sequence" else content
    assert content == {"type": "json_schema", "json_schema": SCHEMA, "style": STYLES[dialect]}


def test_other_arguments_are_a_grammar():
    content = tags(write_structural_tag(DIALECTS["pythonic"], TOOLS)["format"])[0]["content"]
    assert content["type"] == "grammar"
    assert content["grammar"].startswith("root ::= ")


def test_one_call_alone():
    form = write_structural_tag(DIALECTS["hermes"], TOOLS, lazily=True, parallel=False)["format"]
    assert form["stop_after_first"] is True


def test_no_tool_is_no_tag():
    with pytest.raises(NotSpellable):
        write_structural_tag(DIALECTS["hermes"], [])


@pytest.mark.parametrize(("form", "field"), [("gbnf", "grammar"), ("structural_tag", "response_format")])
def test_the_fields_of_a_request(form, field):
    assert list(constraint_fields(DIALECTS["json"], TOOLS, form)) == [field]
    assert constraint_fields(DIALECTS["markdown_bash"], TOOLS, form) == {}
    assert constraint_fields(DIALECTS["json"], TOOLS, "") == {}
