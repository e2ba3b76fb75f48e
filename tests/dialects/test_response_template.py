"""Dialects from models' own files: what their templates say is read, streamed and spelled, or refused with its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from typer.testing import CliRunner

from callboard.cli import app
from callboard.core import (
    InvocationCanister,
    InvocationEnded,
    ReasoningPiece,
    TextPiece,
    ToolDeclaration,
)
from callboard.dialects import Parser, parse, render_calls
from callboard.dialects.response_template import read_response_template
from callboard.errors import CallerError
from callboard.modes import make_plan
from callboard.profiles import resolve

TOOL = ToolDeclaration(
    "get_weather",
    "",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
)
ARGUMENTS = {"city": "Oslo", "days": 2}
FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THOUGHT = {"open": "[hm]", "close_pattern": r"\[/hm\]\s*", "content": "text"}
SAID = {"close_pattern": r"<\|over\|>\s*|$", "content": "text"}


def template(calls, **fields):
    spoken = {"thinking": THOUGHT, "tool_calls": {"repeats": True, **calls}, "content": SAID, **fields}
    return {"version": 1, "start_anchor": "<|model|>", "defaults": {"role": "assistant"}, "fields": spoken}


TEMPLATES = {
    "an object": (
        template({"open": "<do>", "close_pattern": r"</do>\s*", "content": "json", "transform": {"function": "{content}"}}),
        '<do>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}</do>',
    ),
    "an object with names of its own": (
        template({
            "open": ["<do>", "<act>"], "close": "</do>", "content": "json",
            "transform": {"function": {"name": "{content.which}", "arguments": "{content.with}"}},
        }),
        '<act>\n{"which": "get_weather", "with": {"city": "Oslo", "days": 2}}</do>',
    ),
    "a list of objects": (
        template({
            "open": "<do>", "close": "</do>", "content": "json", "transform_each": True,
            "transform": {"function": {"name": "{which}", "arguments": "{with}"}},
        }),
        '<do>[{"which": "get_weather", "with": {"city": "Oslo", "days": 2}}]</do>',
    ),
    "a name before an object": (
        template({
            "open_pattern": r"<do:(?P<name>[^>]+)>\s*", "close_pattern": r"(?:</do>|<\|stop\|>)\s*",
            "content": "json", "transform": FUNCTION,
        }),
        '<do:get_weather>\n{"city": "Oslo", "days": 2}</do>',
    ),
    "a name in the object around the arguments": (
        template({
            "open_pattern": r'\{"do":\s*"(?P<name>[^"]+)",\s*"with":\s*', "close_pattern": r"\}<\|over\|>\s*",
            "content": "json", "transform": FUNCTION,
        }),
        '{"do": "get_weather", "with": {"city": "Oslo", "days": 2}}<|over|>',
    ),
    "keys and texts in other quotes": (
        template({
            "open_pattern": r"<do>(?P<name>\w+)", "close": "</do>", "content": "json", "transform": FUNCTION,
            "content_args": {"unquoted_keys": True, "string_delims": [["<q>", "<q>"]]},
        }),
        "<do>get_weather{city:<q>Oslo<q>,days:2}</do>",
    ),
    "tags": (
        template({
            "open_pattern": r"<do>\s*<tool=(?P<name>[^\n>]+)>", "close_pattern": r"</do>\s*",
            "content": "xml-inline", "transform": FUNCTION,
            "content_args": {"tag_pattern": r"<with=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</with>"},
        }),
        "<do>\n<tool=get_weather>\n<with=city>\nOslo\n</with>\n<with=days>2</with>\n</tool>\n</do>",
    ),
    "pairs of tags": (
        template({
            "open_pattern": r"<do>(?P<name>\S+)\n?", "close_pattern": r"</do>\s*", "content": "xml-inline",
            "content_args": {"tag_pattern": r"<k>(?P<key>[^<]+)</k>\s*<v>(?P<value>.*?)</v>"}, "transform": FUNCTION,
        }),
        "<do>get_weather\n<k>city</k>\n<v>Oslo</v>\n<k>days</k><v>2</v></do>",
    ),
}  # fmt: skip
every_template = pytest.mark.parametrize(("described", "spelled"), TEMPLATES.values(), ids=TEMPLATES)


def read(events):
    """Reasoning, text and arguments."""
    kinds = [(ReasoningPiece, "text"), (TextPiece, "text")]
    said = ["".join([getattr(e, field) for e in events if isinstance(e, kind)]).strip() for kind, field in kinds]
    return *said, [each.arguments for each in events if isinstance(each, InvocationEnded)]


@every_template
def test_what_the_template_reads_is_read(described, spelled):
    dialect = read_response_template({"chat_template": "...", "response_template": described})
    text = f"[hm]Rain?[/hm]\nI look. {spelled}{spelled}<|over|>"
    assert read(parse(text, [TOOL], dialect)) == ("Rain?", "I look.", [ARGUMENTS, ARGUMENTS])
    parser = Parser([TOOL], dialect)
    events = [event for char in text for event in parser.feed(char)] + parser.finish()
    assert read(events) == ("Rain?", "I look.", [ARGUMENTS, ARGUMENTS])


@table("described", [each for each, _ in TEMPLATES.values()], ids=TEMPLATES)
def test_what_is_spelled_is_read_again(described):
    dialect = read_response_template(described)
    calls = [InvocationCanister("c1", "get_weather", ARGUMENTS), InvocationCanister("c2", "get_weather", {"city": "P"})]
    assert read(parse(render_calls(dialect, calls, [TOOL]), [TOOL], dialect)) == ("", "", [ARGUMENTS, {"city": "P"}])


def test_what_stands_between_the_fields_of_a_message_is_no_text():
    said = {"open": "<|say|>", "close_pattern": r"<\|end\|>\s*", "content": "text"}
    calls = {
        "open_pattern": r"to=(?P<name>\S+?)<\|with\|>",
        "close": "<|end|>",
        "content": "json",
        "transform": FUNCTION,
    }
    dialect = read_response_template(template(calls, content=said))
    text = '<|say|>I look.<|end|><|model|>to=get_weather<|with|>{"city": "Oslo", "days": 2}<|end|>'
    assert read(parse(text, [TOOL], dialect)) == ("", "I look.", [ARGUMENTS])


def test_reasoning_that_the_prompt_has_opened():
    thought = {"open_pattern": r"(?=[\s\S]*?</think>)", "close_pattern": r"</think>\s*", "content": "text"}
    described = template({"open": "<do>", "close": "</do>", "content": "json"}, thinking=thought)
    events = parse("Rain?</think>No.", [TOOL], read_response_template(described), start_in_reasoning=True)
    assert read(events) == ("Rain?", "No.", [])


@table(
    ("described", "message"),
    [
        ({}, "response_template: Object missing required field `fields`"),
        ({"response_schema": {"x-regex": "."}}, "response_schema: transformers 5.13 has replaced it"),
        ({"response_template": {"version": 2, "fields": {}}}, r"response_template.version: Invalid enum value 2"),
        ({"fields": {"tool_calls": []}}, r"Expected `object`, got `array`"),
        (template({"content": "json"}), "fields.tool_calls: nothing opens a call"),
        (template({"open": " ", "content": "json"}), "fields.tool_calls: nothing opens a call"),
        (template({"open": "<" * 20_000, "content": "json"}), "response_template: it has more than 16384 bytes"),
        (template({"open": ["<a>"] * 17, "content": "json"}), "fields.tool_calls.open: more than 16 markers"),
        (template({"open_pattern": "(?:" * 3000, "content": "json"}), "open_pattern: .* is more than"),
        (template({"open": "<do>", "content": "json", "transform": FUNCTION}), "what opens a call does not say its name"),
        (template({"open_pattern": "<(?P<name>.+)>", "content": "text"}), "fields.tool_calls.content: 'text' is none"),
        (template({"open_pattern": "(a+)+$", "content": "json"}), "fields.tool_calls.open_pattern: '\\(a\\+\\)\\+\\$' is more than"),
        (template({"open_pattern": "(?:a|b)" * 9, "content": "json"}), "open_pattern: .* is more than"),
        (template({"open_pattern": "(?:a", "content": "json"}), "open_pattern: '' is more than"),
        (template({"open_pattern": "a)", "content": "json"}), "open_pattern: '\\)' is more than"),
        (
            template({"open_pattern": "<(?P<name>.+)>", "content": "xml-inline", "transform": FUNCTION}),
            "tag_pattern: it does not say where an argument begins and ends",
        ),
        (
            template({
                "open_pattern": "<(?P<name>.+)>", "content": "json", "transform": FUNCTION,
                "content_args": {"string_delims": [["<", ">"]]},
            }),
            "string_delims: they differ",
        ),
    ],
)  # fmt: skip
def test_what_has_no_row_of_ours_is_refused_with_its_place(described, message):
    with pytest.raises(CallerError, match=message):
        read_response_template(described)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("open", "open_pattern", "close", "close_pattern", "content", "content_args", "transform", "tag_pattern")


@given(
    st.dictionaries(
        st.sampled_from(["tool_calls", "thinking", "content"]),
        st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(["json", "xml-inline", "<(?P<name>.)>"])),
    )
)
def test_every_file_is_read_or_refused(fields):
    try:
        dialect = read_response_template({"fields": fields})
    except CallerError:
        return
    parse("<a>{}</a> some text", [TOOL], dialect)


def test_a_profile_has_one_for_its_model():
    described, spelled = TEMPLATES["a name before an object"]
    decided = make_plan(resolve("a-new-model", {"response_template": described}), "validated")
    assert decided.dialect is decided.watched
    assert read(parse(spelled, [TOOL], decided.dialect))[2] == [ARGUMENTS]


@pytest.mark.parametrize("content", ["response_template", "chat_template"])
def test_the_command_line_takes_the_file(tmp_path, content):
    def invoke(*arguments):
        return CliRunner().invoke(app, arguments)

    described, spelled = TEMPLATES["a name before an object"]
    if content == "chat_template":
        described, spelled = (
            "<tool_call> tool_call.arguments",
            "<tool_call>{}</tool_call>".format(json.dumps({"name": "get_weather", "arguments": ARGUMENTS})),
        )
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({content: described}))
    shown = json.loads(invoke("dialects", str(file), "--json").stdout)
    assert "reasoning" in shown
    assert shown["calls"].startswith(spelled[:4])
    (tmp_path / "reply.txt").write_text(spelled)
    said = json.loads(invoke("parse", str(tmp_path / "reply.txt"), "--dialect", str(file)).stdout)
    assert [each["arguments"] for each in said["invocations"]] == [ARGUMENTS]
    named = invoke("dialects", "--template", str(file)).stdout
    assert named == (f"{file}\n" if content == "response_template" else "hermes\n")
