"""Requests, both ways."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.wires.messages import decode_request, encode_request


def prefill_of(body):
    """What the last message asks for by its place: on this wire that of the assistant's is where the reply goes on."""
    return "last" if body["messages"] and body["messages"][-1]["role"] == "assistant" else ""


def text(words):
    return {"type": "text", "text": words}


def invocation(identifier="a", name="f", arguments=None, raw=""):
    return core.InvocationCanister(identifier, name, arguments, raw)


def user(*blocks):
    return {"role": "user", "content": [*blocks]}


CACHED = {"cache_control": {"type": "ephemeral"}}
TALK = (
    core.SupervisorCanister("a"),
    core.SupervisorCanister("b"),
    core.UserCanister("c"),
    core.AssistantCanister("d"),
    core.UserCanister("e"),
)


def broken(request):
    """What is sent with breakpoints."""
    return json.loads(msgspec.json.encode(encode_request(request, breakpoints=True).body))


def test_breakpoints_where_they_are_asked_for():
    request = core.Request("m", TALK, (core.ToolDeclaration("f"), core.ToolDeclaration("g")))
    plain, marked = encode_request(request).body, broken(request)
    assert "cache_control" not in str(plain)
    assert str(marked).count("cache_control") == 3
    assert marked["tools"][-1] == plain["tools"][-1] | CACHED
    assert marked["system"] == [text("a"), text("b") | CACHED]
    assert marked["messages"][-1] == user(text("e") | CACHED)


def test_breakpoints_stand_on_no_thinking_and_beside_no_others():
    thought = core.AssistantCanister([core.TextualContent("t"), core.ReasoningContent("hm", "s", "m")])
    (message,) = broken(core.Request("m", (thought,)))["messages"]
    assert message["content"][0] == text("t") | CACHED
    assert "cache_control" not in message["content"][1]
    own = core.UserCanister(core.TextualContent("u", extra=CACHED))
    request = core.Request("m", (*TALK, own))
    assert broken(request) == encode_request(request).body
    assert broken(core.Request("m", ()))["messages"] == []


@table(
    "fields",
    [
        {"tools": (core.ToolDeclaration("f", extra={"messages": CACHED}), core.ToolDeclaration("g"))},
        {"hosted": (core.HostedTool("messages", "bash_20250124", {"name": "bash", **CACHED}),)},
        {"extra": CACHED},
        {
            "canisters": (
                *TALK,
                invocation(),
                core.ResultCanister([core.TextualContent("u", extra=CACHED)], invocation_id="a"),
            )
        },
        {"canisters": (*TALK, core.DocumentCanister([core.TextualContent("u", extra=CACHED)]))},
    ],
    ids=["on a tool", "on a hosted tool", "on the request", "inside a result", "inside a document"],
)
def test_a_client_s_own_breakpoint_is_the_only_one(fields):
    request = core.Request(**{"model": "m", "canisters": TALK, **fields})
    body = broken(request)
    assert body == encode_request(request).body
    assert str(body).count("cache_control") == 1


def test_no_breakpoint_stands_on_a_tool_that_is_loaded_later():
    tools = (core.ToolDeclaration("f"), core.ToolDeclaration("g", extra={"messages": {"defer_loading": True}}))
    first, second = broken(core.Request("m", TALK, tools))["tools"]
    assert "cache_control" in first
    assert second["defer_loading"] is True
    assert "cache_control" not in second


def test_encoding_changes_nothing_that_was_given():
    block = {"type": "search_result", "source": "u", "title": "t", "content": []}
    body = {"model": "m", "max_tokens": 1, "messages": [user(block)], "tools": [{"type": "web_search_1", "name": "w"}]}
    before = copy.deepcopy(body)
    broken(decode_request(body))
    assert body == before


# What the wire carries: leading instructions of one text each, later ones marked; texts that say something; signed
# thinking of the model; results of calls in their order; names and identifiers that are safe.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda t: not t.isspace())
MARKS = st.sampled_from([None, CACHED])
TEXTS = st.builds(core.TextualContent, WORDS, extra=MARKS)
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
VALUES = WORDS | st.integers(-9, 9) | st.booleans() | st.none()
OBJECTS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=2), max_size=3)
PICTURES = st.builds(
    core.PictureContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["image/png", "image/jpeg"]), extra=MARKS
) | (st.builds(core.PictureContent, url=st.just("https://x/y.png"), extra=MARKS))
FILES = st.builds(
    core.FileContent, data=st.binary(min_size=1), mime_type=st.just("application/pdf"), name=WORDS, extra=MARKS
)
KEPT = st.builds(
    lambda w: core.TextualContent(w, extra={"messages": {"type": "search_result", "title": w, "content": [text(w)]}}),
    WORDS,
)
THOUGHTS = st.builds(core.ReasoningContent, WORDS | st.just(""), WORDS, st.just("m")) | st.builds(
    lambda data: core.ReasoningContent("", f"redacted:{data}", "m"), WORDS
)
USERS = st.builds(core.UserCanister, st.lists(TEXTS | PICTURES | FILES | KEPT, min_size=1, max_size=3).map(tuple))
DOCUMENTS = st.builds(
    core.DocumentCanister,
    st.tuples(st.builds(core.TextualContent, WORDS)) | st.lists(TEXTS | PICTURES, min_size=2, max_size=3).map(tuple),
    title=WORDS | st.just(""),
    extra=st.sampled_from([None, {"citations": {"enabled": True}}]),
)
LATER = st.builds(core.SupervisorCanister, st.tuples(TEXTS), extra=st.just({"role": "system"}))


@st.composite
def results(draw, identifier):
    content = tuple(draw(st.lists(TEXTS | PICTURES, max_size=2)))
    said = "\n".join(part.text for part in content if isinstance(part, core.TextualContent))
    error = draw(st.sampled_from([None, core.ToolError("execution", said)])) if content else None
    return core.ResultCanister(content, invocation_id=identifier, error=error, extra=draw(MARKS))


@st.composite
def turn_canisters(draw, identifiers):
    canisters, calls = [], []
    for _ in range(draw(st.integers(1, 3))):
        said = draw(st.lists(TEXTS | THOUGHTS, max_size=3))
        if said:
            canisters.append(core.AssistantCanister(tuple(said)))
        if not said or draw(st.booleans()):
            arguments = draw(OBJECTS)
            raw = msgspec.json.encode(arguments).decode()
            calls.append(
                core.InvocationCanister(f"call_{next(identifiers)}", draw(NAMES), arguments, raw, extra=draw(MARKS))
            )
            canisters.append(calls[-1])
        else:
            break
    return [*canisters, *[draw(results(call.identifier)) for call in calls]]


@st.composite
def conversations(draw):
    canisters = [core.SupervisorCanister((part,)) for part in draw(st.lists(TEXTS, max_size=2))]
    identifiers = iter(range(1000))
    for _ in range(draw(st.integers(0, 3))):
        # Two of the same kind that stand together would be one.
        canisters.append(draw(USERS))
        canisters += draw(st.lists(DOCUMENTS | LATER, max_size=2))
        canisters += draw(turn_canisters(identifiers))
    return tuple(canisters)


SCHEMAS = OBJECTS.map(lambda properties: {"type": "object", "x": properties})
STRICT = st.lists(NAMES, unique=True, max_size=2).map(
    lambda names: {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names[:1],
        "additionalProperties": False,
    }
)
UNNAMED = st.sampled_from(
    [
        {},
        {"messages": CACHED},
        {"messages": {"defer_loading": True, "input_examples": [{"x": 1}], "allowed_callers": []}},
    ]
)
TOOLS = st.lists(
    st.builds(
        core.ToolDeclaration, NAMES, st.just("") | WORDS, SCHEMAS, strict=st.sampled_from([None, False]), extra=UNNAMED
    )
    | st.builds(core.ToolDeclaration, NAMES, st.just(""), STRICT, strict=st.just(True), extra=UNNAMED),
    unique_by=lambda t: t.name,
    max_size=3,
)
CONTROLS = st.builds(
    core.Controls,
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.integers(0, 99),
    stop=st.lists(WORDS, max_size=2).map(tuple),
    effort=st.sampled_from([None, "none", "low", "medium", "high", "xhigh", "max"]),
)
EXTRA = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.integers(1, 9),
        "metadata": st.just({"user_id": "u"}),
        "thinking": st.just({"type": "enabled", "budget_tokens": 1024}),
        "output_config": st.just({"task_budget": {"total": 5}}),
    },
)
HOSTED = core.HostedTool("messages", "bash_20250124", {"type": "bash_20250124", "name": "bash"})


@st.composite
def requests(draw):
    tools = tuple(draw(TOOLS))
    choice = draw(st.sampled_from(["auto", *([core.NamedTool(tools[0].name), "none", "required"] if tools else [])]))
    controls, extra = draw(CONTROLS), draw(EXTRA)
    if controls.effort == "none":
        extra.pop("thinking", None)
    return core.Request(
        model="m",
        canisters=draw(conversations()),
        tools=tools,
        tool_choice=choice,
        parallel=draw(st.sampled_from([None, True, False])) if tools and choice != "none" else None,
        constraint=draw(st.none() | st.builds(core.Constraint, st.just("reply"), SCHEMAS)),
        controls=controls,
        stream=draw(st.booleans()),
        extra=extra,
        hosted=draw(st.sampled_from([(), (HOSTED,)])),
    )


@given(requests())
def test_what_is_encoded_is_decoded(request):
    low = encode_request(request)
    assert (low.names, low.dropped) == ({}, ())
    request = msgspec.structs.replace(request, prefill=prefill_of(low.body))
    assert decode_request(low.body) == request
    assert decode_request(json.loads(msgspec.json.encode(low.body))) == request


@given(request=requests(), breakpoints=st.booleans())
def test_what_we_send_is_anthropic_s(request_judges, request, breakpoints):
    low = encode_request(request, breakpoints=breakpoints)
    body = json.loads(msgspec.json.encode(low.body))
    if not any(
        part.extra and "messages" in part.extra for c in request.canisters for part in getattr(c, "content", ())
    ):
        request_judges["anthropic"](body)
    for one, two in zip(body["messages"], body["messages"][1:], strict=False):
        assert one["role"] != two["role"] or one["role"] == "system"


def message(role, *content):
    return {"model": "m", "messages": [user(text("u")), {"role": role, "content": [*content]}]}


def test_a_deep_input_is_refused():
    deep = {}
    for _ in range(20_000):
        deep = {"x": deep}
    with pytest.raises(CallerError):
        decode_request(message("assistant", {"type": "tool_use", "id": "a", "name": "f", "input": deep}))


def test_the_package_s_types_are_looked_at_in_full(request_judges):
    with pytest.raises(ValueError, match="wizard"):
        request_judges["anthropic"]({"model": "m", "max_tokens": 1, "messages": [{"role": "wizard", "content": "x"}]})
