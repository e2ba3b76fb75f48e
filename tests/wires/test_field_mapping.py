"""What a client asked for on one wire and no backend on another has a name for is carried or told."""

from __future__ import annotations

import json
from itertools import permutations, product
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import Controls, HostedTool, PictureContent, Request, ToolDeclaration, UserCanister
from callboard.wires import WIRES
from callboard.wires.field_mapping import (
    BUDGETS,
    DEFAULTS,
    IGNORED_FIELDS,
    SHARED_FIELDS,
    effort_of,
    translate_request,
)

FIELDS = json.loads((Path(__file__).parents[1] / "vectors" / "fields.json").read_text("utf-8"))
PAIRS = list(permutations(WIRES, 2))
JSON = {"type": "json_object"}
EMPTY = {"type": "object", "properties": {}}
BASE = {
    "responses": {"model": "m", "input": "u"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "u"}]},
    "messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "u"}]},
    "gemini": {"model": "m", "contents": [{"role": "user", "parts": [{"text": "u"}]}]},
}
ASKED = FIELDS["asked"]
"""A value for each field of the official clients' parameters that the core has no name for."""
NAMED = {
    "responses": "input instructions max_output_tokens model parallel_tool_calls stream stream_options temperature "
    "tool_choice tools top_p",
    "chat": "max_completion_tokens max_tokens messages model parallel_tool_calls reasoning_effort seed stop stream "
    "stream_options temperature tool_choice tools top_p",
    "messages": "max_tokens messages model stop_sequences stream system tool_choice tools betas",  # the last is a header
    "gemini": "contents model systemInstruction tools",
}
GENERATION = "maxOutputTokens responseJsonSchema responseSchema seed stopSequences temperature topP"
OURS = {
    "messages": {"top_k", "temperature", "top_p"},  # the package no longer types them
    "responses": {"client_metadata"},
    "chat": set(),
    "gemini": set(),
}
CARRIED = {tuple(pair.split()): paths for pair, paths in FIELDS["carried"].items()}
"""Which of them is carried, from where to where."""
OBJECTS = {
    "metadata", "output_config", "thinking", "reasoning", "text", "prompt_cache_options", "generationConfig",
    "generationConfig.thinkingConfig", "toolConfig",
}  # fmt: skip


def official(wire):
    """The fields of the official client's parameters."""
    match wire:
        case "responses":
            from openai.types.responses.response_create_params import ResponseCreateParamsStreaming as Params
        case "chat":
            from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Params
        case "messages":
            from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as Params
        case "gemini":  # its parameters are not its body: this is what its body was seen to have
            return {*BASE["gemini"], *ASKED["gemini"], "systemInstruction", "tools"}
    return set(get_type_hints(Params)) | OURS[wire]


def generation():
    from google.genai.types import GenerationConfig

    return {field.alias for field in GenerationConfig.model_fields.values()}


def leaves(body, wire, within=""):
    for name, value in body.items():
        path = within + name
        if path in OBJECTS and isinstance(value, dict) and not (path == "metadata" and wire != "messages"):
            yield from leaves(value, wire, path + ".")
        else:
            yield path, value


def at(body, path):
    for name in path.split("."):
        body = body[name]
    return body


def decoded(wire, fields):
    return WIRES[wire].decode_request(msgspec.json.decode(msgspec.json.encode(BASE[wire] | fields)))


def neutral(value):
    """What differs between the wires in its spelling only."""
    words = {"standard_only": "default", "standard": "default", "application/json": "json_object"}
    return words.get(value, value) if isinstance(value, str) else "json_object" if value == JSON else value


@table("wire", WIRES)
def test_there_is_a_value_for_each_official_field(wire):
    assert official(wire) - OURS[wire] == {*ASKED[wire], *NAMED[wire].split()} - OURS[wire]
    if wire == "gemini":
        assert generation() == {*ASKED["gemini"]["generationConfig"], *GENERATION.split()}


@table(("front", "back"), PAIRS)
def test_every_field_is_carried_or_told_or_means_nothing(front, back):
    request = decoded(front, ASKED[front])
    asked, lost = translate_request(request, front, back)
    carried = CARRIED[front, back]
    body = WIRES[back].encode_request(asked).body
    for here, there in carried.items():
        if there:
            assert neutral(at(ASKED[front], here)) == neutral(at(body, there))
    said = {path for path, _ in leaves(asked.extra, back)}
    assert said == {there for there in carried.values() if there} | {
        flag.removesuffix(".logprobs") if flag.startswith("include.") else flag
        for meaning in SHARED_FIELDS
        if front in meaning and back in meaning and meaning[front].path in carried
        for flag in meaning[back].companions
    }
    left = [
        path
        for path, value in leaves(request.extra, front)
        if path not in carried and path not in IGNORED_FIELDS and value not in DEFAULTS.get(path, ())
    ]
    assert sorted(lost) == sorted(left)


@table(("front", "back"), PAIRS)
def test_the_other_client_knows_every_field(front, back):
    asked, _ = translate_request(decoded(front, ASKED[front]), front, back)
    body = WIRES[back].encode_request(asked).body
    assert body.keys() <= official(back)
    match back:
        case "gemini":
            assert body["generationConfig"].keys() <= generation()
        case "messages":
            assert body.get("metadata", {}).keys() <= {"user_id"}
        case "responses":
            assert body.get("text", {}).keys() <= {"verbosity", "format"}
            assert body.get("reasoning", {}).keys() <= {"effort"}


@table(("front", "back"), PAIRS)
def test_nothing_is_lost_twice(front, back):
    asked, _ = translate_request(decoded(front, ASKED[front]), front, back)
    assert translate_request(asked, back, back) == (asked, ())
    _, lost = translate_request(asked, back, front)
    assert set(lost) <= {flag for meaning in SHARED_FIELDS if back in meaning for flag in meaning[back].companions}


@table("wire", WIRES)
def test_on_one_wire_all_stays(wire):
    request = decoded(wire, ASKED[wire])
    assert translate_request(request, wire, wire) == (request, ())


VALUES = [(*row[:4], tuple(row[4])) for row in FIELDS["values"]]
"""The front and the back, fields, and what they become and lose."""


@table(("front", "back", "fields", "extra", "lost"), VALUES)
def test_values(front, back, fields, extra, lost):
    asked, told = translate_request(decoded(front, fields), front, back)
    assert (asked.extra, told) == (extra, lost)
    assert repr(asked.extra) == repr(extra)  # 40 and 40.0 are equal


@table(
    ("thinking", "output", "effort", "lost"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, {}, "low", ("thinking.budget_tokens",)),
        ({"type": "enabled", "budget_tokens": 30000}, {}, "high", ("thinking.budget_tokens",)),
        ({"type": "enabled", "budget_tokens": 30000}, {"effort": "low"}, "low", ("thinking.budget_tokens",)),
        ({"type": "adaptive"}, {"effort": "high"}, "high", ()),
        ({"type": "adaptive", "display": "omitted"}, {}, None, ()),
        ({"type": "disabled"}, {}, "none", ()),
        ({"type": "disabled"}, {"effort": "high"}, "high", ("thinking.type",)),
        ({"type": "enabled", "budget_tokens": "odd"}, {}, None, ("thinking.budget_tokens",)),
    ],
)
@table("back", sorted({*WIRES} - {"messages"}))
def test_thinking_becomes_an_effort(back, thinking, output, effort, lost):
    asked, told = translate_request(
        decoded("messages", {"thinking": thinking, "output_config": output}), "messages", back
    )
    assert (asked.controls.effort, told) == (effort, lost)


def test_what_has_a_name_stays():
    request = Request(
        "m",
        (UserCanister("u"),),
        (ToolDeclaration("f", "does"),),
        controls=Controls(0.5, seed=1, effort="low"),
        hosted=(HostedTool("responses", "web_search"),),
        namespaces={"ns": "described"},
        extra={"user": "me"},
    )
    asked, lost = translate_request(request, "responses", "chat")
    assert (asked, lost) == (request, ())


TOOLS = {
    "responses": {"type": "function", "name": "f", "defer_loading": True},
    "chat": {"type": "function", "odd": 1, "function": {"name": "f", "deep": 2}},
    "messages": {"name": "f", "input_schema": EMPTY, "cache_control": {"type": "ephemeral"}, "defer_loading": True},
    "gemini": {"functionDeclarations": [{"name": "f", "behavior": "BLOCKING"}]},
}
LOST = {
    "responses": ("tools.defer_loading",),
    "chat": ("tools.odd", "tools.function.deep"),
    "messages": (),
    "gemini": ("tools.behavior",),
}


@table(("front", "back"), PAIRS)
def test_fields_of_tools_are_told_once(front, back):
    tools = [TOOLS[front], msgspec.json.decode(msgspec.json.encode(TOOLS[front]).replace(b'"f"', b'"g"'))]
    asked, lost = translate_request(decoded(front, {"tools": tools}), front, back)
    assert lost == LOST[front]
    body = WIRES[back].encode_request(asked).body
    assert not any(
        name in str(body.get("tools")) for name in ("odd", "deep", "behavior", "defer_loading", "cache_control")
    )


NOW, LATER, OTHER = (
    {"name": name, "input_schema": EMPTY, **({} if name == "now" else {"defer_loading": True, "x": 1})}
    for name in ("now", "later", "other")
)
SEARCHED = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
FOUND = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "other"}]}
CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "later", "input": {}}]}


@table(
    ("messages", "fields", "names"),
    [
        ([], {}, ["now"]),
        ([CALLED], {}, ["now", "later"]),
        ([CALLED, {"role": "user", "content": [FOUND]}], {}, ["now", "later", "other"]),
        ([{"role": "user", "content": [FOUND]}, CALLED], {}, ["now", "other", "later"]),
        ([], {"tool_choice": {"type": "tool", "name": "other"}}, ["now", "other"]),
        ([], {"tools": [LATER, OTHER, NOW, SEARCHED]}, ["later", "other", "now"]),
    ],
    ids=["none", "called", "called and found", "in the order of the conversation", "chosen", "Anthropic searches"],
)
@table("back", sorted({*WIRES} - {"messages"}))
def test_a_deferred_tool_is_declared_when_it_is_found(back, messages, fields, names):
    said = [*BASE["messages"]["messages"], *messages]
    request = decoded("messages", {"tools": [LATER, OTHER, NOW], "messages": said, **fields})
    asked, lost = translate_request(request, "messages", back)
    assert [tool.name for tool in asked.tools] == names
    assert set(lost) == ({"tools.x"} if len(names) > 1 else set()) | (
        {"tools.defer_loading"} if "tools" in fields else set()
    )
    body = WIRES[back].encode_request(asked).body
    assert [name for name in ("now", "later", "other") if f"'{name}'" in str(body["tools"])] == sorted(
        names, key=["now", "later", "other"].index
    )
    assert translate_request(request, "messages", "messages") == (request, ())


STORED = FIELDS["stored"]
"""Conversations with a file that is stored at the provider."""


@table(("front", "back"), list(product(STORED, WIRES)))
def test_a_file_that_only_its_provider_has_goes_to_no_other(front, back):
    request = decoded(front, STORED[front])
    asked, lost = translate_request(request, front, back)
    kept = {front, back} <= {"responses", "chat"} or front == back
    assert lost == (() if kept else ("file_id",))
    assert asked.canisters == request.canisters if kept else "file_1" not in repr(asked)
    assert ("file_1" in str(WIRES[back].encode_request(asked).body)) == kept
    assert "'u'" in str(WIRES[back].encode_request(asked).body)


def test_a_file_that_can_be_fetched_goes_everywhere():
    request = Request("m", (UserCanister((PictureContent(url="https://x/y.png", extra={"file_id": "file_1"}),)),))
    assert translate_request(request, "chat", "gemini") == (request, ())


@table(
    ("back", "part", "dropped"),
    [
        ("chat", {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}}, ()),
        ("gemini", {"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}}, ()),
        ("messages", None, ("file",)),
        ("responses", None, ("file",)),
    ],
)
def test_a_client_s_audio_goes_where_it_can_be_heard_and_is_named_as_lost_elsewhere(back, part, dropped):
    audio = {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}}
    request = decoded("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "u"}, audio]}]})
    lowered = WIRES[back].encode_request(translate_request(request, "chat", back)[0])
    assert lowered.dropped == dropped
    assert part is None or part in next(iter(lowered.body.get("messages") or lowered.body["contents"])).popitem()[1]
    assert part is not None or "d2F2" not in str(lowered.body)


def test_the_page_lists_what_crosses():
    page = (Path(__file__).resolve().parents[2] / "docs" / "wires.md").read_text("utf-8")
    for meaning in SHARED_FIELDS:
        cells = [
            f" `{meaning[wire].path}` " if wire in meaning else " "
            for wire in ("responses", "chat", "messages", "gemini")
        ]
        assert f"|{'|'.join(cells)}|" in page.splitlines()


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PATHS = {wire: sorted({path for path, _ in leaves(ASKED[wire], wire)}) for wire in WIRES}


@pytest.mark.parametrize(("front", "back"), list(product(WIRES, [*WIRES, "plugged-in"])))
@settings(max_examples=settings.default.max_examples // 2)  # of each pair
@given(data=st.data())
def test_whatever_stands_there(front, back, data):
    extra = {}
    for path in data.draw(
        st.lists(st.sampled_from([*PATHS[front], "text", "metadata", "thinking", "odd"]), max_size=6)
    ):
        *objects, name = path.split(".")
        inner = extra
        for each in objects:
            inner = inner.setdefault(each, {}) if isinstance(inner.get(each, {}), dict) else {}
        inner[name] = data.draw(JSONS)
    request = Request("m", (), extra=extra)
    before = repr(request)
    asked, lost = translate_request(request, front, back)
    assert repr(request) == before
    assert len(set(lost)) == len(lost)
    if front != back:
        assert translate_request(asked, front, back)[0].canisters == ()


@table(
    ("budget", "effort"), [(-1, "none"), (0, "none"), (1, "minimal"), (1024, "low"), (1025, "medium"), (99999, "high")]
)
def test_efforts_of_budgets(budget, effort):
    assert effort_of(budget) == effort


def test_an_effort_s_budget_is_its_own():
    assert [effort_of(BUDGETS[effort]) for effort in ("minimal", "low", "medium", "high")] == list(BUDGETS)[:4]
