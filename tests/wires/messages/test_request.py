"""Requests, both ways."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.wires.messages import decode_request, encode_request

VECTORS = Path(__file__).parents[2] / "vectors" / "messages" / "requests.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
CASES = [pytest.param(row, id=row["name"]) for row in ROWS]


@pytest.fixture(scope="module")
def anthropic_body():
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
    from pydantic import ConfigDict, TypeAdapter

    for params in (MessageCreateParamsStreaming, MessageCreateParamsNonStreaming):
        params.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    adapter = TypeAdapter(MessageCreateParamsStreaming | MessageCreateParamsNonStreaming)
    return lambda body: exhaust(adapter.validate_python(body))


def exhaust(value):
    """Looks at all of it: what the package types as iterable is validated while it is iterated."""
    if isinstance(value, dict):
        for each in value.values():
            exhaust(each)
    elif not isinstance(value, str | int | float | None):
        for each in value:
            exhaust(each)


def request_of(case):
    request = msgspec.convert(case["request"], core.Request)
    return msgspec.structs.replace(request, canisters=tuple(request.canisters))


def prefill_of(body):
    """What the last message asks for by its place: on this wire that of the assistant's is where the reply goes on."""
    return "last" if body["messages"] and body["messages"][-1]["role"] == "assistant" else ""


@table("case", CASES)
def test_a_client_s_request(case):
    asked = msgspec.structs.replace(request_of(case), prefill=prefill_of(case["body"]))
    assert decode_request(case["body"]) == asked


@pytest.mark.parametrize("case", CASES)
def test_a_request_to_a_backend(case, anthropic_body):
    request = encode_request(request_of(case))
    body = json.loads(msgspec.json.encode(request.body))
    assert body == case.get("back", case["body"])
    assert (request.names, request.dropped) == ({}, ())
    anthropic_body(body)


def lowered(*canisters, **fields):
    return encode_request(core.Request("m", canisters, **fields))


def text(words):
    return {"type": "text", "text": words}


def invocation(identifier="a", name="f", arguments=None, raw=""):
    return core.InvocationCanister(identifier, name, arguments, raw)


def tool_use(identifier="a", name="f", **arguments):
    return {"type": "tool_use", "id": identifier, "name": name, "input": arguments}


def result(identifier, *content, **fields):
    return {"type": "tool_result", "tool_use_id": identifier, **fields} | ({"content": [*content]} if content else {})


def user(*blocks):
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks):
    return {"role": "assistant", "content": [*blocks]}


NOT_RUN = text("No result: the call was not run.")
PDF = core.FileContent(data=b"pdf", mime_type="application/pdf", name="a.pdf")


@table(
    ("canisters", "messages", "dropped"),
    [
        (
            [
                core.UserCanister("a"),
                core.UserCanister("b"),
                core.AssistantCanister("c"),
                core.UserCanister(),
                core.AssistantCanister("d"),
            ],
            [user(text("a"), text("b")), assistant(text("c"), text("d"))],
            (),
        ),
        (
            [
                core.UserCanister([core.TextualContent(""), core.TextualContent(" \n")]),
                core.AssistantCanister(),
                core.UserCanister("u"),
            ],
            [user(text("u"))],
            (),
        ),
        (
            [core.UserCanister("u"), core.SupervisorCanister("mind"), core.UserCanister("v")],
            [user(text("u"), text("<system>\nmind\n</system>"), text("v"))],
            (),
        ),
        (
            [core.UserCanister("u"), core.SupervisorCanister([core.TextualContent("a"), core.PictureContent(url="x")])],
            [user(text("u"), text("<system>\na\n</system>"))],
            ("picture",),
        ),
        ([invocation(), core.UserCanister("u")], [assistant(tool_use()), user(result("a", NOT_RUN), text("u"))], ()),
        ([core.UserCanister("u"), core.ResultCanister("lost", invocation_id="z")], [user(text("u"), text("lost"))], ()),
        (
            [
                core.AssistantCanister("t"),
                invocation("a", "f", {"x": 1}),
                invocation("b", "g", None, '{"y'),
                core.ResultCanister("2", invocation_id="b"),
                core.ResultCanister("1", invocation_id="a"),
            ],
            [
                assistant(text("t"), tool_use("a", x=1), tool_use("b", "g", raw='{"y')),
                user(result("a", text("1")), result("b", text("2"))),
            ],
            (),
        ),
        (
            [
                invocation("f:0"),
                core.ResultCanister("1", invocation_id="f:0"),
                invocation("f:0"),
                invocation("f.0"),
                invocation(""),
                core.ResultCanister("3", invocation_id="f.0"),
                core.ResultCanister("2", invocation_id="f:0"),
            ],
            [
                assistant(tool_use("f_0")),
                user(result("f_0", text("1"))),
                assistant(tool_use("f_0_2"), tool_use("f_0_3"), tool_use("call")),
                user(result("f_0_2", text("2")), result("f_0_3", text("3")), result("call", NOT_RUN)),
            ],
            (),
        ),
        (
            [invocation(), core.ResultCanister((), invocation_id="a", error=core.ToolError("timeout", "late"))],
            [assistant(tool_use()), user(result("a", text("late"), is_error=True))],
            (),
        ),
        (
            [
                invocation(),
                core.ResultCanister([core.TextualContent("seen"), PDF, core.RefusalContent("x")], invocation_id="a"),
            ],
            [
                assistant(tool_use()),
                user(
                    result(
                        "a",
                        text("seen"),
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                            "title": "a.pdf",
                        },
                        text("x"),
                    )
                ),
            ],
            (),
        ),
        (
            [
                core.AssistantCanister(
                    [
                        core.ReasoningContent("hm", "s", "m"),
                        core.ReasoningContent("x", "s", "n"),
                        core.ReasoningContent("", "redacted:x", "n"),
                        core.ReasoningContent("unsigned", "", "m"),
                        core.TextualContent("t"),
                    ]
                )
            ],
            [assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, text("t"))],
            ("reasoning",),
        ),
        ([core.AssistantCanister(core.RefusalContent("no"))], [assistant(text("no"))], ()),
        (
            [
                core.UserCanister(
                    [
                        core.PictureContent(),
                        core.PictureContent(data=b"x", mime_type="image/tiff"),
                        core.FileContent(data=b"\xff", mime_type="text/plain"),
                        core.FileContent(data=b"x", mime_type="application/zip"),
                        core.FileContent(),
                        core.TextualContent("u", extra={"detail": "low"}),
                    ]
                )
            ],
            [user(text("u"))],
            ("picture", "file"),
        ),
        (
            [core.UserCanister(core.FileContent(data=b"a,b", mime_type="text/csv", name="t.csv"))],
            [
                user(
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
                        "title": "t.csv",
                    }
                )
            ],
            (),
        ),
        (
            [
                core.DocumentCanister("", title="empty"),
                core.DocumentCanister([core.TextualContent("a"), PDF, core.PictureContent(url="https://x/y.png")]),
            ],
            [
                user(
                    {
                        "type": "document",
                        "source": {
                            "type": "content",
                            "content": [
                                text("a"),
                                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                            ],
                        },
                    }
                )
            ],
            ("file",),
        ),
    ],
    ids=[
        "neighbours are one message",
        "what says nothing is left out",
        "later instructions are a text between tags",
        "pictures of the supervisor are dropped",
        "a call without result",
        "a result without call",
        "a turn is one message, results in the order of the calls",
        "identifiers that the API refuses",
        "an error without content",
        "a document in a result",
        "thinking only of the model that is asked, and only signed",
        "a refusal is a text",
        "what has no place here is dropped",
        "a file of text",
        "documents",
    ],
)
def test_messages(canisters, messages, dropped):
    request = lowered(*canisters)
    assert request.body["messages"] == messages
    assert request.dropped == dropped


def test_a_plain_body_has_nothing_that_was_not_asked_for():
    request = lowered(core.UserCanister("u"), stream=False)
    assert request.body == {"model": "m", "max_tokens": 4096, "messages": [user(text("u"))]}
    assert (request.names, request.dropped) == ({}, ())


def test_what_the_wire_has_no_word_for():
    request = lowered(
        core.UserCanister("u"),
        hosted=(core.HostedTool("responses", "web_search", {"type": "web_search"}),),
        tool_choice="required",
        controls=core.Controls(1.5, seed=7, stop=("\n", "END"), effort="minimal"),
    )
    assert request.dropped == (
        "tool web_search",
        "tool_choice",
        "temperature above 1",
        "seed",
        "stop sequence of whitespace",
        "effort minimal",
    )
    assert request.body["temperature"] == 1
    assert request.body["stop_sequences"] == ["END"]
    assert request.body["output_config"] == {"effort": "low"}
    assert "tools" not in request.body


def test_a_custom_tool_is_a_function():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    tools = (
        core.ToolDeclaration("patch", "Patches.", kind="custom", grammar=grammar),
        core.ToolDeclaration("fs__read", "Reads.", {"properties": {}}, namespace="fs"),
        core.ToolDeclaration("plain", kind="custom"),
    )
    patch, read, plain = lowered(invocation("a", "patch", {"input": "*** Begin"}), tools=tools).body["tools"]
    schema = {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    assert patch == {
        "name": "patch",
        "description": "Patches.\n\nThe input follows this lark:\nstart: /.+/",
        "input_schema": schema,
    }
    assert read == {"name": "fs__read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
    assert plain == {"name": "plain", "input_schema": schema}
    json.dumps([patch, plain])


def test_names_are_safe_everywhere():
    request = lowered(
        invocation("a", "io.read", {}), tools=(core.ToolDeclaration("io.read"),), tool_choice=core.NamedTool("io.read")
    )
    assert request.body["tools"][0]["name"] == request.body["tool_choice"]["name"] == "io_read"
    assert request.body["messages"][0]["content"][0]["name"] == "io_read"
    assert request.names == {"io_read": "io.read"}


def test_extra_wins():
    request = lowered(
        controls=core.Controls(effort="low", max_tokens=5),
        constraint=core.Constraint("x", {"type": "object"}),
        extra={"max_tokens": 9, "output_config": {"effort": "max"}},
    )
    assert request.body["max_tokens"] == 9
    assert request.body["output_config"] == {
        "effort": "max",
        "format": {"type": "json_schema", "schema": {"type": "object"}},
    }


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
def test_what_we_send_is_anthropic_s(anthropic_body, request, breakpoints):
    low = encode_request(request, breakpoints=breakpoints)
    body = json.loads(msgspec.json.encode(low.body))
    if not any(
        part.extra and "messages" in part.extra for c in request.canisters for part in getattr(c, "content", ())
    ):
        anthropic_body(body)
    for one, two in zip(body["messages"], body["messages"][1:], strict=False):
        assert one["role"] != two["role"] or one["role"] == "system"


def test_a_conversation_costs_what_it_holds():
    """20,000 canisters, all calls under one identifier: this finishes because each is looked at once."""
    step = [core.UserCanister("u"), invocation(), invocation(), core.ResultCanister("1", invocation_id="a")]
    messages = lowered(*step * 5_000).body["messages"]
    calls = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(calls) == len(set(calls)) == 10_000


def message(role, *content):
    return {"model": "m", "messages": [user(text("u")), {"role": role, "content": [*content]}]}


@table(
    ("body", "path"),
    [
        ({}, ""),
        ([], ""),
        ({"model": "m"}, ""),
        ({"model": 3, "messages": []}, "model"),
        ({"model": "m", "messages": "u"}, "messages"),
        ({"model": "m", "messages": [], "max_tokens": "many"}, "max_tokens"),
        ({"model": "m", "messages": [], "system": [3]}, "system[0]"),
        ({"model": "m", "messages": [], "system": [{"type": "text"}]}, "system[0]"),
        ({"model": "m", "messages": [], "tool_choice": "any"}, "tool_choice"),
        ({"model": "m", "messages": [], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"model": "m", "messages": [], "tools": [{"name": "f"}]}, "tools[0]"),
        ({"model": "m", "messages": [], "tools": [{"type": 3}]}, "tools[0].type"),
        ({"model": "m", "messages": [], "tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
        ({"model": "m", "messages": [], "output_config": {"effort": 3}}, "output_config.effort"),
        ({"model": "m", "messages": [], "output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        (message("wizard"), "messages[1].role"),
        (message("user", 3), "messages[1].content[0]"),
        (message("user", {}), "messages[1].content[0].type"),
        (message("user", {"type": "text", "text": 3}), "messages[1].content[0].text"),
        (
            message("user", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "*"}}),
            "messages[1].content[0].source.data",
        ),
        (message("user", {"type": "image", "source": {"type": "novelty"}}), "messages[1].content[0].source.type"),
        (message("user", {"type": "document"}), "messages[1].content[0]"),
        (message("user", {"type": "tool_result"}), "messages[1].content[0]"),
        (
            message("user", {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}),
            "messages[1].content[0].content[0]",
        ),
        (
            message("assistant", {"type": "tool_use", "id": "a", "name": "f", "input": "{}"}),
            "messages[1].content[0].input",
        ),
        (
            message("assistant", {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "\ud83d"}}),
            "messages[1].content[0].input",
        ),
        (message("assistant", {"type": "thinking", "thinking": None}), "messages[1].content[0].thinking"),
        (message("assistant", {"type": "redacted_thinking"}), "messages[1].content[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_request_is_refused_with_its_place(body, path):
    with pytest.raises(CallerError) as caught:
        decode_request(body)
    assert caught.value.path == path


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


WRONG = [..., None, True, -1, 1.5, 10**30, "", "x", "\ud83d", [], [1], [None], [{}], {}, {"type": "x"}, {"type": None}]


@table("case", CASES)
def test_anything_at_every_field(case):
    """Null, nothing and each wrong type in place of each field: a request, or a CallerError."""
    for path in list(places(case["body"]))[1:]:
        for value in WRONG:
            body = copy.deepcopy(case["body"])
            holder = body
            for key in path[:-1]:
                holder = holder[key]
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            try:
                request = decode_request(body)
            except CallerError:
                continue
            encode_request(request)


def test_a_deep_input_is_refused():
    deep = {}
    for _ in range(20_000):
        deep = {"x": deep}
    with pytest.raises(CallerError):
        decode_request(message("assistant", {"type": "tool_use", "id": "a", "name": "f", "input": deep}))


def test_the_package_s_types_are_looked_at_in_full(anthropic_body):
    with pytest.raises(ValueError, match="wizard"):
        anthropic_body({"model": "m", "max_tokens": 1, "messages": [{"role": "wizard", "content": "x"}]})
