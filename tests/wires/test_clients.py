"""What Codex, Claude Code, Gemini CLI and Qwen Code send is read, and said on every wire.

The vectors are what the clients sent (`tests/clients/test_shapes.py`), with every text of their makers replaced by a
numbered word such as `text 1.`. What a table here says is lost, is lost: the row goes when it no longer is.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from callboard.core import InvocationCanister, ResultCanister
from callboard.wires import WIRES
from callboard.wires.field_mapping import translate_request
from callboard.wires.gemini import decode_request as decode_gemini
from callboard.wires.responses.request import read_request

VECTORS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((Path(__file__).resolve().parents[1] / "vectors" / "clients").glob("*.json"))
}
FRONTS = {"codex": "responses", "claude": "messages", "gemini": "gemini", "qwen": "chat"}
TEXTS = ("text ", "content ", "output ")
"""How the words begin that stand for what was said, and not for what describes a tool."""

every_client = pytest.mark.parametrize("name", VECTORS)
every_request = pytest.mark.parametrize("which", ["first", "last"])
every_wire = pytest.mark.parametrize("back", WIRES)


def asked(name, which):
    """The body, and the request that it is."""
    vector = VECTORS[name]
    body = vector[which]
    if vector["client"] == "gemini":
        model, method = vector["path"].rpartition("/")[2].split(":")
        return body, decode_gemini(body, model=model, stream=method == "streamGenerateContent")
    return body, WIRES[FRONTS[vector["client"]]].decode_request(body)


def sent(request, wire):
    """The body on that wire as it is read there, and what it became."""
    lowered = WIRES[wire].encode_request(request)
    return msgspec.json.decode(msgspec.json.encode(lowered.body)), lowered


# What is read.

CODEX = ["client_metadata", "prompt_cache_key"]
CLAUDE = ["context_management", "metadata", "thinking"]
EXTRA = {
    "claude-some-model": (CLAUDE, []),
    "claude-sonnet-4-5": (CLAUDE, []),
    "codex-gpt-5.5": ([*CODEX, "text"], ["web_search"]),
    "codex-gpt-6-sol": ([*CODEX, "reasoning", "text"], []),
    "codex-some-model": ([*CODEX, "reasoning"], ["web_search"]),
    "gemini-2.5-pro": (["generationConfig"], []),
    "gemini-some-model": (["generationConfig"], []),
    "qwen-qwen3-vl-plus": ([], []),
    "qwen-some-model": ([], []),
}
"""What has no name in the core, and the tools that the provider runs."""


@every_client
@every_request
def test_all_is_read(name, which):
    body, request = asked(name, which)
    assert (sorted(request.extra), [tool.kind for tool in request.hosted]) == EXTRA[name]
    assert request.model == body.get("model", name.removeprefix("gemini-") if "some" in name else name)
    assert request.stream
    if FRONTS[VECTORS[name]["client"]] == "responses":
        assert read_request(body).dropped == ()


def keys(value):
    """The keys of the objects in it, but those of schemas."""
    match value:
        case dict():
            inner = {name: each for name, each in value.items() if name not in {"parameters", "input_schema"}}
            return set(value).union(*[keys(each) for each in inner.values()])
        case list():
            return set().union(*[keys(each) for each in value])
    return set()


ITEMS = ["id", "tool_choice"]
SPOKEN = sorted([*ITEMS, "annotations", "logprobs"])
LEFT = {
    "claude-some-model": ([], ["is_error"]),  # that is false
    "claude-sonnet-4-5": ([], ["is_error"]),
    "codex-gpt-5.5": (ITEMS, SPOKEN),  # a choice that is auto
    "codex-gpt-6-sol": (ITEMS, sorted([*SPOKEN, "status"])),
    "codex-some-model": (ITEMS, sorted([*SPOKEN, "status"])),
    "gemini-2.5-pro": (["thinkingBudget"], ["thinkingBudget", "thoughtSignature"]),  # a level; a word that is none
    "gemini-some-model": ([], ["thoughtSignature"]),
    "qwen-qwen3-vl-plus": (["text"], ["reasoning"]),  # contents become strings; reasoning_content says the same
    "qwen-some-model": (["text"], ["text"]),
}
"""The keys that the first and the last request do not come back with: no model sees them, or others say it."""


@every_client
@every_request
def test_all_comes_back_on_its_own_wire(name, which):
    body, request = asked(name, which)
    again, lowered = sent(request, FRONTS[VECTORS[name]["client"]])
    assert sorted(keys(body) - keys(again)) == LEFT[name][which == "last"]
    assert lowered.dropped == ()


# What is sent on every wire.

SPACES = {
    "codex-gpt-5.5": ["multi_agent_v1"],
    "codex-gpt-6-sol": ["functions", "clock", "collaboration"],
    "codex-some-model": ["multi_agent_v1"],
}
DROPPED = {
    ("codex-gpt-6-sol", "gemini"): ["parallel"],
    ("qwen-qwen3-vl-plus", "messages"): ["reasoning"],
    ("qwen-some-model", "messages"): ["reasoning"],
}
"""What a wire cannot carry, besides the provider's tools and the descriptions of namespaces."""


@every_client
@every_wire
def test_what_is_lost_is_told(name, back):
    _, request = asked(name, "last")
    _, lowered = sent(request, back)
    lost = list(DROPPED.get((name, back), []))
    if back != "responses":
        lost += [f"tool {tool.kind}" for tool in request.hosted]
        lost += [f"description of the namespace {space}" for space in SPACES.get(name, [])]
    assert set(lowered.dropped) == set(lost)


def declared(body, wire):
    """The names of the tools that are declared in a body."""
    tools = body.get("tools", [])
    match wire:
        case "chat":
            return [tool[tool["type"]]["name"] for tool in tools]
        case "messages":
            return [tool["name"] for tool in tools]
        case "gemini":
            return [function["name"] for tool in tools for function in tool["functionDeclarations"]]
    found = [tool for item in body["input"] if item["type"] == "tool_search_output" for tool in item["tools"]]
    return [name for tool in tools + found for name in named(tool)]


def named(tool):
    """The names of a tool of Responses; one that the provider runs has none."""
    match tool["type"]:
        case "namespace":
            return [f"{tool['name']}__{inner['name']}" for inner in tool["tools"]]
        case "tool_search":
            return ["tool_search"]
    return [tool["name"]] if "name" in tool else []


@every_client
@every_request
@every_wire
def test_every_tool_is_declared(name, which, back):
    _, request = asked(name, which)
    body, lowered = sent(request, back)
    names = [lowered.names.get(name, name) for name in declared(body, back)]
    assert len(names) >= 9
    assert sorted(names) == sorted(tool.name for tool in request.tools)


def words(value):
    """The words that stand for what was said, and our own."""
    match value:
        case dict():
            return set().union(*[words(each) for each in value.values()])
        case list():
            return set().union(*[words(each) for each in value])
        case str() if value.startswith((*TEXTS, "Make it", "Step ")):
            return {value}
    return set()


@every_client
@every_request
@every_wire
def test_every_text_is_said(name, which, back):
    body, request = asked(name, which)
    said = json.dumps(sent(request, back)[0])
    assert len(words(body)) >= 3
    assert [word for word in sorted(words(body)) if word not in said] == []


@every_client
@every_wire
def test_every_call_has_its_result(name, back):
    _, request = asked(name, "last")
    body, lowered = sent(request, back)
    said = json.dumps(body)
    calls = [canister for canister in request.canisters if isinstance(canister, InvocationCanister)]
    results = [canister for canister in request.canisters if isinstance(canister, ResultCanister)]
    assert [result.invocation_id for result in results] == [call.identifier for call in calls]
    assert all(said.count(f'"{call.identifier}"') == 2 for call in calls)
    wire_names = {declared: wire for wire, declared in lowered.names.items()}
    for call in calls:
        space = next((tool for tool in request.tools if tool.name == call.name and tool.namespace), None)
        local = space.local if space is not None and back == "responses" else call.name
        if not (back == "responses" and call.name == "tool_search"):
            assert f'"name": "{wire_names.get(call.name, local)}"' in said


PICTURES = {
    "claude-some-model",
    "claude-sonnet-4-5",
    "codex-gpt-6-sol",
    "codex-some-model",
    "gemini-2.5-pro",
    "gemini-some-model",
    "qwen-qwen3-vl-plus",
}


@every_client
@every_wire
def test_every_picture_is_shown(name, back):
    body, request = asked(name, "last")
    bare = json.dumps(sent(request, back)[0])
    shown = [start for start in ("iVBORw0KGgo", "/9j/2wBD") if start in bare]
    assert bool(shown) == (name in PICTURES)
    assert [start for start in ("iVBORw0KGgo", "/9j/2wBD") if start in json.dumps(body)] == shown


# What Claude Code's search finds.


def deferring(name, which):
    """The request, with the tools that are to be found later and those that are there from the beginning."""
    body, request = asked(name, which)
    late = [tool["name"] for tool in body["tools"] if tool.get("defer_loading")]
    return request, late, [tool["name"] for tool in body["tools"] if tool["name"] not in late]


every_claude = pytest.mark.parametrize("name", ["claude-some-model", "claude-sonnet-4-5"])
every_other = pytest.mark.parametrize("back", ["chat", "responses", "gemini"])


@every_claude
@every_other
def test_what_a_search_found_is_said(name, back):
    _, request = asked(name, "last")
    results = [canister for canister in request.canisters if isinstance(canister, ResultCanister)]
    last = msgspec.structs.replace(request, canisters=tuple(results[-1:]), tools=())
    assert "tool WebFetch" in json.dumps(sent(last, back)[0])


@every_claude
@every_other
@every_request
def test_a_tool_is_declared_when_it_was_found(name, which, back):
    request, late, early = deferring(name, which)
    crossing, lost = translate_request(request, "messages", back)
    body, _ = sent(crossing, back)
    found = ["WebFetch"] if (which, "WebFetch" in late) == ("last", True) else []
    assert declared(body, back) == early + found
    assert "tools.defer_loading" not in lost
