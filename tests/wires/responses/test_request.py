"""Requests, both ways."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.contents import seal, unseal
from callboard.wires.responses import decode_request, encode_request, read_request

PICTURE = core.PictureContent(data=b"png")
FILE = core.FileContent(data=b"pdf", mime_type="application/pdf", name="a.pdf")
PICTURE_PART = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}
FILE_PART = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}


def lowered(*canisters, **fields):
    return encode_request(core.Request("m", canisters, **fields))


def invocation(identifier="a", name="f", arguments=None, raw=""):
    return core.InvocationCanister(identifier, name, arguments, raw)


def message(role, content, **fields):
    return {"type": "message", "role": role, "content": content, **fields}


def function_call(identifier, name, arguments, **fields):
    return {"type": "function_call", "call_id": identifier, "name": name, **fields, "arguments": arguments}


def output(identifier, said):
    return {"type": "function_call_output", "call_id": identifier, "output": said}


def said_text(text):
    return {"type": "output_text", "text": text, "annotations": []}


KEPT = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
CANISTERS = {
    "the supervisor's later words": (
        [core.UserCanister("u"), core.SupervisorCanister("s")],
        [message("user", "u"), message("system", "s")],
        (),
    ),
    "several texts stay apart": (
        [core.UserCanister([core.TextualContent("a"), core.TextualContent("b")])],
        [message("user", [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])],
        (),
    ),
    "nothing said": ([core.UserCanister()], [message("user", "")], ()),
    "parts": (
        [
            core.UserCanister(
                [
                    core.TextualContent("see"),
                    PICTURE,
                    FILE,
                    core.PictureContent(url="https://x/y.png", extra={"detail": "low"}),
                ]
            )
        ],
        [
            message(
                "user",
                [
                    {"type": "input_text", "text": "see"},
                    PICTURE_PART,
                    FILE_PART,
                    {"type": "input_image", "detail": "low", "image_url": "https://x/y.png"},
                ],
            )
        ],
        (),
    ),
    "files and pictures by name and address": (
        [
            core.UserCanister(
                [
                    core.FileContent(url="https://x/a.pdf"),
                    core.FileContent(extra={"file_id": "f1"}),
                    core.PictureContent(extra={"file_id": "f2"}),
                ]
            )
        ],
        [
            message(
                "user",
                [
                    {"type": "input_file", "file_url": "https://x/a.pdf"},
                    {"type": "input_file", "file_id": "f1"},
                    {"type": "input_image", "detail": "auto", "file_id": "f2"},
                ],
            )
        ],
        (),
    ),
    "what has neither bytes nor a place is dropped, and told once": (
        [
            core.UserCanister(
                [
                    core.FileContent(),
                    core.PictureContent(),
                    core.PictureContent(),
                    core.RefusalContent("r"),
                    core.TextualContent("u"),
                ]
            )
        ],
        [message("user", "u")],
        ("file", "picture", "refusal"),
    ),
    "a document with its title": (
        [core.DocumentCanister("text", title="T")],
        [message("user", "T\n\ntext")],
        (),
    ),
    "an assistant's text": ([core.AssistantCanister("t")], [message("assistant", "t")], ()),
    "a phase": (
        [core.AssistantCanister("t", extra={"phase": "commentary"})],
        [message("assistant", "t", phase="commentary")],
        (),
    ),
    "a refusal": (
        [core.AssistantCanister([core.TextualContent("t"), core.RefusalContent("no")])],
        [message("assistant", [said_text("t"), {"type": "refusal", "refusal": "no"}])],
        (),
    ),
    "reasoning only of the model that is asked": (
        [
            core.AssistantCanister(
                [
                    core.ReasoningContent("hm", "sig", "m"),
                    core.ReasoningContent("x", "y", "n"),
                    core.ReasoningContent("raw", origin="m"),
                    core.ReasoningContent("", "z", "m"),
                    core.TextualContent("t"),
                    PICTURE,
                ]
            )
        ],
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "sig"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "z"},
            message("assistant", "t"),
        ],
        ("reasoning", "picture"),
    ),
    "what the provider's own tools did": (
        [core.AssistantCanister([core.ReasoningContent("", extra={"item": KEPT}), core.TextualContent("t")])],
        [KEPT, message("assistant", "t")],
        (),
    ),
    "a turn keeps its order, results follow in the order of the calls": (
        [
            invocation("a", "f", {"x": 1}),
            core.AssistantCanister("t"),
            invocation("b", "g", None, '{"y'),
            core.ResultCanister("2", invocation_id="b"),
            core.ResultCanister("1", invocation_id="a"),
        ],
        [
            function_call("a", "f", '{"x":1}'),
            message("assistant", "t"),
            function_call("b", "g", '{"raw":"{\\"y"}'),
            output("a", "1"),
            output("b", "2"),
        ],
        (),
    ),
    "a call without result": (
        [invocation(), core.UserCanister("u")],
        [function_call("a", "f", "{}"), output("a", "No result: the call was not run."), message("user", "u")],
        (),
    ),
    "a result without call": ([core.ResultCanister("lost", invocation_id="z")], [message("user", "lost")], ()),
    "an error without content": (
        [invocation(), core.ResultCanister((), invocation_id="a", error=core.ToolError("timeout", "late"))],
        [function_call("a", "f", "{}"), output("a", "Error: late")],
        (),
    ),
    "pictures in results": (
        [invocation(), core.ResultCanister([core.TextualContent("seen"), PICTURE], invocation_id="a")],
        [function_call("a", "f", "{}"), output("a", [{"type": "input_text", "text": "seen"}, PICTURE_PART])],
        (),
    ),
}


@table(("canisters", "items", "dropped"), CANISTERS.values(), ids=CANISTERS)
def test_items(canisters, items, dropped):
    request = lowered(*canisters)
    assert request.body["input"] == items
    assert request.dropped == dropped


TOOLS = (
    core.ToolDeclaration("f", "does", SCHEMA, strict=True),
    core.ToolDeclaration("ns__g", "", SCHEMA, namespace="ns"),
    core.ToolDeclaration("ns__exec", "runs", kind="custom", namespace="ns"),
    core.ToolDeclaration("apply_patch", "patches", kind="custom", grammar=GRAMMAR),
)
DECLARED = [
    {"type": "function", "name": "f", "description": "does", "parameters": SCHEMA, "strict": True},
    {
        "type": "namespace",
        "name": "ns",
        "description": "ns",
        "tools": [
            {"type": "function", "name": "g", "parameters": SCHEMA, "strict": None},
            {"type": "custom", "name": "exec", "description": "runs"},
        ],
    },
    {"type": "custom", "name": "apply_patch", "description": "patches", "format": GRAMMAR},
]


def test_a_whole_body():
    request = lowered(
        core.SupervisorCanister("s"),
        core.UserCanister("u"),
        tools=TOOLS,
        tool_choice=core.NamedTool("ns__g"),
        parallel=False,
        constraint=core.Constraint("answer", SCHEMA),
        controls=core.Controls(0.0, 0.5, 10, 7, ("\n",), "low"),
        extra={"user": "me", "reasoning": {"summary": "auto"}, "text": {"verbosity": "low"}},
        hosted=(
            core.HostedTool("responses", "web_search", {"search_context_size": "low"}),
            core.HostedTool("gemini", "googleSearch"),
        ),
    )
    assert request.body == {
        "model": "m",
        "instructions": "s",
        "input": [message("user", "u")],
        "tools": [*DECLARED, {"type": "web_search", "search_context_size": "low"}],
        "tool_choice": {"type": "function", "name": "g"},
        "parallel_tool_calls": False,
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 10,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True},
            "verbosity": "low",
        },
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "user": "me",
    }
    assert request.dropped == ("tool googleSearch", "seed", "stop")
    msgspec.json.encode(request.body)


def test_a_plain_body_has_nothing_that_was_not_asked_for():
    request = encode_request(core.Request("m", (core.UserCanister("u"),), stream=False, parallel=True))
    assert request.body == {
        "model": "m",
        "input": [message("user", "u")],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert (request.names, request.dropped) == ({}, ())


def test_extra_overrides():
    body = lowered(core.UserCanister("u"), extra={"include": [], "store": True}).body
    assert (body["include"], body["store"]) == ([], True)


def test_a_choice_without_tools_is_dropped():
    assert lowered(tool_choice="required").dropped == ("tool_choice",)


def test_calls_go_by_the_kind_and_namespace_of_their_tools():
    request = lowered(
        invocation("a", "ns__g", {"x": 1}),
        invocation("b", "ns__exec", {"input": "ls"}),
        invocation("c", "apply_patch", None, "*** Begin"),
        invocation("d", "gone__h", {}),
        tools=TOOLS,
    )
    assert request.body["input"][:4] == [
        {"type": "function_call", "call_id": "a", "name": "g", "namespace": "ns", "arguments": '{"x":1}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "exec", "namespace": "ns", "input": "ls"},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call", "call_id": "d", "name": "gone__h", "arguments": "{}"},
    ]
    kinds = [item["type"].removesuffix("_output") for item in request.body["input"]]
    assert kinds[4:] == kinds[:4]


def test_names_are_safe_everywhere():
    request = lowered(
        invocation("a", "io.read", {}),
        tools=(core.ToolDeclaration("io.read"), core.ToolDeclaration("a.b__c", namespace="a.b")),
        tool_choice=core.NamedTool("io.read"),
    )
    assert [tool["name"] for tool in request.body["tools"]] == ["io_read", "a_b__c"]
    assert request.body["tool_choice"] == {"type": "function", "name": "io_read"}
    assert request.body["input"][0]["name"] == "io_read"
    assert request.names == {"io_read": "io.read", "a_b__c": "a.b__c"}


# What the wire carries.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.builds(core.TextualContent, WORDS)
NAMES = st.from_regex(r"[a-zA-Z0-9-]{1,12}", fullmatch=True)
VALUES = WORDS | st.integers(-9, 9) | st.booleans() | st.none()
OBJECTS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=2), max_size=3)
PICTURES = st.builds(
    core.PictureContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["image/png", "image/jpeg"])
) | (st.builds(core.PictureContent, url=st.just("https://x/y.png"), extra=st.sampled_from([None, {"detail": "high"}])))
FILES = st.builds(
    core.FileContent, data=st.binary(min_size=1), mime_type=st.just("application/pdf"), name=WORDS
) | st.builds(core.FileContent, url=st.just("https://x/a.pdf"), name=st.just("") | WORDS)
SPOKEN = st.lists(TEXTS | PICTURES | FILES, max_size=3).map(tuple)
REASONING = st.lists(
    st.builds(core.ReasoningContent, WORDS, WORDS, st.just("m"))
    | st.builds(core.ReasoningContent, WORDS, st.just(""), st.just("m")),
    max_size=2,
)
SCHEMAS = OBJECTS.map(lambda properties: {"type": "object", "properties": {}, "x": properties})


@st.composite
def declarations(draw):
    """Tools; those of a namespace stand together."""
    tools = [draw(tool("", name)) for name in draw(st.lists(NAMES, unique=True, max_size=2))]
    for space in draw(st.lists(NAMES, unique=True, max_size=2)):
        tools += [draw(tool(space, name)) for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=2))]
    return tuple(tools)


@st.composite
def tool(draw, space, name):
    full = f"{space}__{name}" if space else name
    text = draw(st.just("") | WORDS)
    extra = draw(st.sampled_from([{}, {"responses": {"defer_loading": True, "allowed_callers": ["direct"]}}]))
    if draw(st.booleans()):
        grammar = draw(st.sampled_from([None, GRAMMAR]))
        return core.ToolDeclaration(full, text, dict(core.CUSTOM_SCHEMA), {}, "custom", grammar, space, extra=extra)
    strict = draw(st.sampled_from([None, True, False]))
    schema = SCHEMA if strict else draw(SCHEMAS)
    return core.ToolDeclaration(full, text, schema, namespace=space, strict=strict, extra=extra)


@st.composite
def turn_canisters(draw, identifiers, tools):
    canisters = []
    for _ in range(draw(st.integers(1, 3))):
        if not tools or draw(st.booleans()):
            spoken = draw(st.lists(TEXTS | st.builds(core.RefusalContent, WORDS), min_size=1, max_size=2))
            extra = draw(st.sampled_from([None, {"phase": "commentary"}]))
            canisters.append(core.AssistantCanister((*draw(REASONING), *spoken), extra=extra))
            continue
        called = draw(st.sampled_from(tools))
        texts = st.just("") | WORDS
        arguments = draw(texts.map(lambda text: {"input": text}) if called.kind == "custom" else OBJECTS)
        raw = msgspec.json.encode(arguments).decode()
        canisters.append(core.InvocationCanister(f"call_{next(identifiers)}", called.name, arguments, raw))
    calls = [canister for canister in canisters if isinstance(canister, core.InvocationCanister)]
    return [*canisters, *[core.ResultCanister(draw(SPOKEN), invocation_id=call.identifier) for call in calls]]


@st.composite
def conversations(draw, tools):
    canisters = []
    identifiers = iter(range(1000))
    for _ in range(draw(st.integers(0, 4))):
        match draw(st.integers(0, 2)):
            case 0:
                canisters.append(core.SupervisorCanister(draw(SPOKEN)))
            case 1:
                canisters.append(core.UserCanister(draw(SPOKEN)))
            case 2:
                canisters += draw(turn_canisters(identifiers, tools))
    return tuple(canisters)


CONTROLS = st.builds(
    core.Controls,
    st.none() | st.floats(0, 2),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 99),
    effort=st.sampled_from([None, "low", "xhigh"]),
)
HOSTED = st.lists(
    st.builds(core.HostedTool, st.just("responses"), st.sampled_from(["web_search", "code_interpreter"]), OBJECTS),
    unique_by=lambda hosted: hosted.kind,
    max_size=2,
).map(tuple)


@st.composite
def requests(draw):
    tools = draw(declarations())
    hosted = draw(
        HOSTED.filter(lambda hosted: not any({"type", "execution"} & set(each.definition) for each in hosted))
    )
    locals_ = [each.local for each in tools]
    choices = [core.NamedTool(each.name) for each in tools if locals_.count(each.local) == 1]
    return core.Request(
        model="m",
        canisters=draw(conversations(tools)),
        tools=tools,
        tool_choice=draw(st.sampled_from(["auto", *choices, *(["none", "required"] if tools or hosted else [])])),
        parallel=draw(st.sampled_from([None, True, False])) if tools else None,
        constraint=draw(st.none() | st.builds(core.Constraint, NAMES, SCHEMAS, st.booleans())),
        controls=draw(CONTROLS),
        stream=draw(st.booleans()),
        extra=draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "user": WORDS,
                    "text": st.just({"verbosity": "low"}),
                    "reasoning": st.just({"summary": "auto"}),
                    "store": st.just(True),
                    "include": st.just(["message.output_text.logprobs"]),
                },
            )
        ),
        hosted=hosted,
    )


@given(requests())
def test_what_is_encoded_is_decoded(request):
    low = encode_request(request)
    assert (low.names, low.dropped) == ({}, ())
    assert decode_request(low.body) == request
    assert read_request(json.loads(msgspec.json.encode(low.body))).dropped == ()
    assert decode_request(json.loads(msgspec.json.encode(low.body))) == request


@given(WORDS, WORDS, WORDS)
def test_what_is_sealed_is_unsealed(opaque, origin, other):
    assert unseal(seal(opaque, origin), other) == (opaque, origin)
    assert unseal(opaque, other) == (opaque, other)
    broken = "callboard.1." + opaque.replace(".", "")
    assert unseal(broken, other) == (broken, other)


def test_a_conversation_costs_what_it_holds():
    """20,000 canisters, all calls under one identifier: this finishes because each is looked at once."""
    step = [core.UserCanister("u"), invocation(), invocation(), core.ResultCanister("1", invocation_id="a")]
    assert len(lowered(*step * 5_000).body["input"]) == 25_000


# What clients send.
VIEW = {"type": "input_image", "image_url": "https://x/y.png", "detail": "high"}
ITEMS = {
    "a message without type": ([{"role": "user", "content": "u"}], [core.UserCanister("u")], ()),
    "roles": (
        [
            message("developer", "d"),
            message("system", [{"type": "input_text", "text": "s"}]),
            message("assistant", "a", id="msg_1", status="completed", phase="final_answer"),
            message("user", None),
        ],
        [
            core.SupervisorCanister("d"),
            core.SupervisorCanister("s"),
            core.AssistantCanister("a", extra={"phase": "final_answer"}),
            core.UserCanister(),
        ],
        (),
    ),
    "parts of every kind": (
        [
            message(
                "user",
                [
                    {"type": "input_text", "text": "see"},
                    VIEW,
                    {"type": "input_image", "image_url": {"url": "data:image/jpeg;base64,cG5n"}},
                    {"type": "input_image", "file_id": "f1", "detail": "auto"},
                    FILE_PART,
                    {"type": "input_file", "file_url": "https://x/a.pdf"},
                    {"type": "input_file", "file_id": "f2", "filename": "b"},
                    {"type": "input_audio", "input_audio": {}},
                ],
            )
        ],
        [
            core.UserCanister(
                [
                    core.TextualContent("see"),
                    core.PictureContent(url="https://x/y.png", extra={"detail": "high"}),
                    core.PictureContent(data=b"png", mime_type="image/jpeg"),
                    core.PictureContent(extra={"file_id": "f1"}),
                    FILE,
                    core.FileContent(url="https://x/a.pdf"),
                    core.FileContent(name="b", extra={"file_id": "f2"}),
                ]
            )
        ],
        ("part input_audio",),
    ),
    "an answer with a refusal": (
        [
            message(
                "assistant",
                [
                    {"type": "output_text", "text": "t", "annotations": [{"type": "url_citation"}]},
                    {"type": "refusal", "refusal": "no"},
                ],
            )
        ],
        [core.AssistantCanister([core.TextualContent("t"), core.RefusalContent("no")])],
        (),
    ),
    "reasoning goes with the message after it": (
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
                "content": None,
                "encrypted_content": "gAAA",
            },
            message("assistant", "t"),
        ],
        [core.AssistantCanister([core.ReasoningContent("a\n\nb", "gAAA", "m"), core.TextualContent("t")])],
        (),
    ),
    "reasoning before a call": (
        [
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "raw"}],
                "encrypted_content": None,
            },
            function_call("a", "f", '{"x": 1}'),
            output("a", "1"),
        ],
        [
            core.AssistantCanister(core.ReasoningContent("raw", origin="m")),
            core.InvocationCanister("a", "f", {"x": 1}, '{"x": 1}'),
            core.ResultCanister("1", invocation_id="a"),
        ],
        (),
    ),
    "reasoning that we sealed": (
        [{"type": "reasoning", "summary": [], "encrypted_content": seal("sig", "other")}],
        [core.AssistantCanister(core.ReasoningContent("", "sig", "other"))],
        (),
    ),
    "reasoning that says nothing": (
        [{"type": "reasoning", "summary": [], "content": None, "encrypted_content": None}],
        [],
        (),
    ),
    "calls, namespaced and custom": (
        [
            function_call("a", "g", "{}", namespace="ns", id="fc_1", status="completed"),
            {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": 'x"'},
            output("a", [{"type": "input_text", "text": "seen"}, VIEW]),
            {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
        ],
        [
            core.InvocationCanister("a", "ns__g", {}, "{}"),
            core.InvocationCanister("b", "apply_patch", {"input": 'x"'}, '{"input":"x\\""}'),
            core.ResultCanister(
                [core.TextualContent("seen"), core.PictureContent(url="https://x/y.png", extra={"detail": "high"})],
                invocation_id="a",
            ),
            core.ResultCanister("ok", invocation_id="b"),
        ],
        (),
    ),
    "arguments of any kind": (
        [
            function_call("a", "f", ""),
            function_call("b", "f", None),
            function_call("c", "f", {"x": 1}),
            function_call("d", "f", "[1"),
        ],
        [
            core.InvocationCanister("a", "f", {}, ""),
            core.InvocationCanister("b", "f", {}, "{}"),
            core.InvocationCanister("c", "f", {"x": 1}, '{"x":1}'),
            core.InvocationCanister("d", "f", None, "[1"),
        ],
        (),
    ),
    "outputs of any kind": (
        [output("a", None), output("a", {"temp": 72}), output("a", [1]), output("a", 3)],
        [
            core.ResultCanister((), invocation_id="a"),
            core.ResultCanister('{"temp":72}', invocation_id="a"),
            core.ResultCanister("[1]", invocation_id="a"),
            core.ResultCanister("3", invocation_id="a"),
        ],
        (),
    ),
    "a tool search": (
        [
            {
                "type": "tool_search_call",
                "call_id": "a",
                "execution": "client",
                "arguments": {"query": "x"},
                "status": "completed",
            },
            {
                "type": "tool_search_output",
                "call_id": "a",
                "tools": [{"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]}],
            },
        ],
        [
            core.InvocationCanister("a", "tool_search", {"query": "x"}, '{"query":"x"}'),
            core.ResultCanister("ns__g", invocation_id="a"),
        ],
        (),
    ),
    "OpenAI's tools that the client runs": (
        [
            {
                "type": "local_shell_call",
                "id": "ls_1",
                "call_id": "a",
                "action": {"type": "exec", "command": ["ls"]},
                "status": "completed",
            },
            {"type": "local_shell_call_output", "id": "ls_1", "output": '{"x": 1}'},
            {"type": "computer_call", "call_id": "b", "action": {"type": "screenshot"}},
            {
                "type": "computer_call_output",
                "call_id": "b",
                "output": {"type": "computer_screenshot", "image_url": "https://x/y.png"},
            },
        ],
        [
            core.InvocationCanister(
                "a", "local_shell", {"type": "exec", "command": ["ls"]}, '{"type":"exec","command":["ls"]}'
            ),
            core.ResultCanister('{"x": 1}', invocation_id="a"),
            core.InvocationCanister("b", "computer", {"type": "screenshot"}, '{"type":"screenshot"}'),
            core.ResultCanister(core.PictureContent(url="https://x/y.png"), invocation_id="b"),
        ],
        (),
    ),
    "what the provider's own tools did is kept": (
        [KEPT, message("assistant", "t")],
        [core.AssistantCanister([core.ReasoningContent("", extra={"item": KEPT}), core.TextualContent("t")])],
        (),
    ),
    "a compaction is kept": (
        [{"type": "compaction", "encrypted_content": "x"}, message("user", "u")],
        [
            core.AssistantCanister(
                core.ReasoningContent("", extra={"item": {"type": "compaction", "encrypted_content": "x"}})
            ),
            core.UserCanister("u"),
        ],
        (),
    ),
    "another agent's message": (
        [
            {
                "type": "agent_message",
                "author": "root",
                "recipient": "a",
                "content": [
                    {"type": "input_text", "text": "go"},
                    {"type": "encrypted_content", "encrypted_content": "x"},
                ],
            }
        ],
        [core.UserCanister([core.TextualContent("From root:\n"), core.TextualContent("go")])],
        ("part encrypted_content",),
    ),
    "what is of no use to any model": (
        [
            {"type": "item_reference", "id": "x"},
            {"type": "compaction_trigger"},
            {"type": "brand_new", "x": [1]},
            {"type": "brand_new"},
            {"x": 1},
            {"type": None},
        ],
        [],
        ("item item_reference", "item compaction_trigger", "item brand_new", "item None"),
    ),
    "seed 002's conversation": (
        [
            message("user", "What's the weather?"),
            message("assistant", ""),
            function_call("call_xyz", "get_weather", '{"location":"San Francisco"}'),
            output("call_xyz", '{"temp":72,"condition":"sunny"}'),
        ],
        [
            core.UserCanister("What's the weather?"),
            core.AssistantCanister(),
            core.InvocationCanister(
                "call_xyz", "get_weather", {"location": "San Francisco"}, '{"location":"San Francisco"}'
            ),
            core.ResultCanister('{"temp":72,"condition":"sunny"}', invocation_id="call_xyz"),
        ],
        (),
    ),
    "a tool's message, as seed 002's clients send it": (
        [
            message(
                "tool", [{"type": "output", "content_type": "application/json", "body": "{}"}], tool_call_id="call_123"
            )
        ],
        [core.ResultCanister("{}", invocation_id="call_123")],
        (),
    ),
}


@table(("items", "canisters", "dropped"), ITEMS.values(), ids=ITEMS)
def test_what_clients_send(items, canisters, dropped):
    asked = read_request({"model": "m", "input": items})
    assert list(asked.request.canisters) == canisters
    assert asked.dropped == dropped


def test_instructions_come_first():
    request = decode_request(
        {"model": "m", "instructions": "i", "input": [message("developer", "d"), message("user", "u")]}
    )
    assert request.canisters == (core.SupervisorCanister("i"), core.SupervisorCanister("d"), core.UserCanister("u"))
    assert decode_request({"model": "m", "input": "u"}).canisters == (core.UserCanister("u"),)


NESTED = {"type": "function", "function": {"name": "f", "description": "does", "parameters": SCHEMA}}
FLAT = {"type": "function", "name": "f", "description": "does", "parameters": SCHEMA, "strict": False}
F = core.ToolDeclaration("f", "does", SCHEMA)
PATCH = core.ToolDeclaration("apply_patch", "patches", core.CUSTOM_SCHEMA, kind="custom", grammar=GRAMMAR)
SPACE = {
    "type": "namespace",
    "name": "ns",
    "description": "of ns",
    "tools": [
        {"type": "function", "name": "g", "parameters": None},
        {"type": "custom", "name": "exec", "format": {"type": "text"}},
    ],
}
SPACED = (
    core.ToolDeclaration("ns__g", "", {"type": "object", "properties": {}}, namespace="ns"),
    core.ToolDeclaration("ns__exec", "", core.CUSTOM_SCHEMA, kind="custom", namespace="ns"),
)
SEARCH = {"type": "tool_search", "execution": "client", "description": "finds", "parameters": SCHEMA}
FINDS = core.ToolDeclaration("tool_search", "finds", SCHEMA, kind="search")
EMPTY = {"type": "object", "properties": {}}


@table(
    ("tools", "declared", "hosted", "dropped"),
    [
        ([NESTED], (F,), (), ()),
        ([FLAT], (msgspec.structs.replace(F, strict=False),), (), ()),
        ([NESTED, FLAT], (F,), (), ("second definition of the tool f",)),
        ([DECLARED[2]], (PATCH,), (), ()),
        ([SPACE], SPACED, (), ()),
        ([SEARCH], (FINDS,), (), ()),
        ([{"type": "function", "name": "tool_search"}], (core.ToolDeclaration("tool_search", schema=EMPTY),), (), ()),
        ([{"type": "tool_search"}], (), (core.HostedTool("responses", "tool_search"),), ()),
        (
            [{"type": "web_search", "filters": {}}],
            (),
            (core.HostedTool("responses", "web_search", {"filters": {}}),),
            (),
        ),
    ],
    ids=[
        "nested",
        "flat",
        "once",
        "custom",
        "namespace",
        "search",
        "a function of that name",
        "search at the provider",
        "hosted",
    ],
)
def test_tools(tools, declared, hosted, dropped):
    asked = read_request({"model": "m", "input": "u", "tools": tools})
    assert (asked.request.tools, asked.request.hosted, asked.dropped) == (declared, hosted, dropped)
    again = {"type": "additional_tools", "role": "developer", "tools": tools}
    asked = read_request({"model": "m", "input": [again, message("user", "u"), again], "tools": tools})
    assert (asked.request.tools, asked.request.hosted) == (declared, hosted)
    assert asked.request.canisters == (core.UserCanister("u"),)


def test_tools_that_were_found_can_be_called():
    found = {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [NESTED]}
    assert decode_request({"model": "m", "input": [found]}).tools == (F,)


def searched(identifier, tools):
    end = {"call_id": identifier, "execution": "client", "status": "completed"}
    call = {"type": "tool_search_call", **end, "arguments": {"query": identifier}}
    return [call, {"type": "tool_search_output", **end, "tools": tools}]


def test_a_search_and_what_it_found_go_back_as_they_came(judge_body):
    space = {"type": "namespace", "name": "ns", "description": "of ns", "tools": DECLARED[1]["tools"]}
    found = [DECLARED[0], space]
    items = [
        message("user", "u"),
        *searched("a", found),
        *searched("b", []),
        *searched("c", [DECLARED[0]]),
        function_call("d", "f", "{}"),
        output("d", "done"),
    ]
    body = {"model": "m", "input": items, "tools": [SEARCH, DECLARED[2]]}
    request = decode_request(body)
    assert request.namespaces == {"ns": "of ns"}
    assert [tool.name for tool in request.tools] == ["tool_search", "apply_patch", "f", "ns__g", "ns__exec"]
    results = [canister.text for canister in request.canisters if isinstance(canister, core.ResultCanister)]
    assert results == ["f\nns__g\nns__exec", "No tools found.", "f", "done"]
    sent = encode_request(request)
    assert (sent.body["input"], sent.body["tools"], sent.dropped) == (items, body["tools"], ())
    judge_body(sent.body | {"stream": True})


def test_a_search_under_another_name():
    tools = (core.ToolDeclaration("find", "finds", SCHEMA, kind="search"), core.ToolDeclaration("f"))
    sent = lowered(
        invocation("a", "find", {"x": 1}),
        invocation("b", "find", None, "[1"),
        core.ResultCanister("f", invocation_id="a"),
        core.ResultCanister("Error: late", invocation_id="b"),
        tools=tools,
        tool_choice=core.NamedTool("find"),
    )
    assert [tool["type"] for tool in sent.body["tools"]] == ["tool_search"]
    assert sent.names == {"tool_search": "find"}
    kinds = [item["type"] for item in sent.body["input"]]
    assert kinds == ["tool_search_call", "tool_search_call", "tool_search_output", "tool_search_output"]
    assert [len(item["tools"]) for item in sent.body["input"][2:]] == [1, 0]
    assert sent.dropped == ("text of a tool search's result",)
    assert [item["arguments"] for item in sent.body["input"][:2]] == [{"x": 1}, {"raw": "[1"}]
    again = decode_request(sent.body)
    assert (again.tool_choice, [tool.kind for tool in again.tools]) == ("required", ["search"])


def test_a_found_tool_that_is_called_but_not_in_a_result_stays():
    body = lowered(invocation("a", "tool_search", {}), tools=(FINDS, F)).body
    assert [tool["type"] for tool in body["tools"]] == ["tool_search", "function"]


def test_descriptions_of_namespaces():
    request = decode_request({"model": "m", "input": "u", "tools": [SPACE]})
    assert request.namespaces == {"ns": "of ns"}
    sent = encode_request(request)
    assert [(tool["name"], tool["description"]) for tool in sent.body["tools"]] == [("ns", "of ns")]
    assert sent.dropped == ()
    odd = core.Request("m", (), (core.ToolDeclaration("a.b__c", namespace="a.b"),), namespaces={"a.b": "odd"})
    assert encode_request(odd).dropped == ("description of the namespace a.b",)
    chosen = {"type": "allowed_tools", "mode": "auto", "tools": [FLAT]}
    request = decode_request({"model": "m", "input": "u", "tools": [SPACE, FLAT], "tool_choice": chosen})
    assert request.namespaces == {}


G = {"type": "function", "name": "g"}


@table(
    ("choice", "expected", "names"),
    [
        (None, "auto", 5),
        ("auto", "auto", 5),
        ("none", "none", 5),
        ("required", "required", 5),
        ({"type": "function", "name": "f"}, core.NamedTool("f"), 5),
        ({"type": "function", "function": {"name": "f"}}, core.NamedTool("f"), 5),
        ({"type": "custom", "name": "apply_patch"}, core.NamedTool("apply_patch"), 5),
        (G, core.NamedTool("ns__g"), 5),
        ({**G, "namespace": "ns"}, core.NamedTool("ns__g"), 5),
        ({"type": "function", "name": "ns__g"}, core.NamedTool("ns__g"), 5),
        ({"type": "function", "name": "unknown"}, core.NamedTool("unknown"), 5),
        ({"type": "web_search"}, "auto", 5),
        ({"type": "mcp", "server_label": "x"}, "auto", 5),
        ({"type": "allowed_tools", "mode": "required", "tools": [G, {"type": "web_search"}]}, "required", 2),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "ns"}]}, "auto", 2),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, "auto", 0),
    ],
)
def test_choices(choice, expected, names):
    tools = [NESTED, DECLARED[2], SPACE, {"type": "web_search"}]
    request = decode_request({"model": "m", "input": "u", "tools": tools, "tool_choice": choice})
    assert request.tool_choice == expected
    assert len(request.tools) + len(request.hosted) == names


def test_the_rest_is_kept():
    body = {
        "model": "m",
        "input": "u",
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto", "context": "x"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "prompt_cache_key": "k",
        "client_metadata": {"a": "b"},
        "user": None,
    }
    request = decode_request(body)
    assert request.controls.effort == "high"
    assert request.extra == {
        "reasoning": {"summary": "auto", "context": "x"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "prompt_cache_key": "k",
        "client_metadata": {"a": "b"},
    }
    assert decode_request(body | {"text": {"format": {"type": "text"}}}).extra.get("text") is None


# Codex 0.169, gpt-6 class: no tools beside the input.
CODEX = {
    "model": "gpt-6-sol",
    "input": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [
                {
                    "type": "namespace",
                    "name": "functions",
                    "description": "",
                    "tools": [
                        {"type": "custom", "name": "exec", "description": "runs", "format": GRAMMAR},
                        {
                            "type": "function",
                            "name": "wait",
                            "description": "waits",
                            "strict": False,
                            "parameters": SCHEMA,
                        },
                    ],
                }
            ],
        },
        message("developer", [{"type": "input_text", "text": "one"}]),
        message("developer", [{"type": "input_text", "text": "two"}]),
        message("user", [{"type": "input_text", "text": "list"}]),
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": seal("sig", "claude")},
        {
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c1",
            "namespace": "functions",
            "name": "exec",
            "input": "ls",
        },
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.txt"}]},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "client_metadata": {},
}


def test_codex():
    assert read_request(CODEX).dropped == ()
    assert decode_request(CODEX) == core.Request(
        "gpt-6-sol",
        (
            core.SupervisorCanister("one"),
            core.SupervisorCanister("two"),
            core.UserCanister("list"),
            core.AssistantCanister(core.ReasoningContent("", "sig", "claude")),
            core.InvocationCanister("c1", "functions__exec", {"input": "ls"}, '{"input":"ls"}'),
            core.ResultCanister("a.txt", invocation_id="c1"),
        ),
        (
            core.ToolDeclaration("functions__exec", "runs", core.CUSTOM_SCHEMA, {}, "custom", GRAMMAR, "functions"),
            core.ToolDeclaration("functions__wait", "waits", SCHEMA, namespace="functions", strict=False),
        ),
        parallel=False,
        controls=core.Controls(effort="medium"),
        extra={"prompt_cache_key": "k", "client_metadata": {}},
    )


def items(*given_items):
    return {"model": "m", "input": list(given_items)}


@table(
    ("body", "path"),
    [
        ({}, ""),
        ([], ""),
        ({"model": 3, "input": "u"}, "model"),
        ({"model": "m", "input": 3}, "input"),
        ({"model": "m", "input": ["u"]}, "input[0]"),
        ({"model": "m", "input": "u", "temperature": "hot"}, "temperature"),
        ({"model": "m", "input": "u", "instructions": ["i"]}, "instructions"),
        ({"model": "m", "input": "u", "tools": [{"type": "function"}]}, "tools[0]"),
        ({"model": "m", "input": "u", "tools": [{"type": "function", "name": 3}]}, "tools[0].name"),
        ({"model": "m", "input": "u", "tools": [{"type": 3}]}, "tools[0].type"),
        (
            {"model": "m", "input": "u", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]},
            "tools[0].tools[0]",
        ),
        ({"model": "m", "input": "u", "tool_choice": "any"}, "tool_choice"),
        ({"model": "m", "input": "u", "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"model": "m", "input": "u", "tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
        ({"model": "m", "input": "u", "reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"model": "m", "input": "u", "text": {"format": {"type": "json_schema", "schema": 3}}}, "text.format.schema"),
        (items({"role": "wizard", "content": "x"}), "input[0].role"),
        (items({"role": "user", "content": 3}), "input[0].content"),
        (items(message("user", [{"type": "input_text"}])), "input[0].content[0]"),
        (
            items(message("user", [{"type": "input_image", "image_url": "data:image/png;base64,*"}])),
            "input[0].content[0].image_url",
        ),
        (items(message("user", [{"type": "input_image"}])), "input[0].content[0]"),
        (
            items(message("user", [{"type": "input_file", "file_data": "data:text/plain,x"}])),
            "input[0].content[0].file_data",
        ),
        (items(message("user", [{"type": "input_file"}])), "input[0].content[0]"),
        (items({"type": "function_call", "name": "f"}), "input[0].call_id"),
        (items({"type": "function_call", "call_id": "a"}), "input[0].name"),
        (items({"type": "function_call_output", "output": "x"}), "input[0].call_id"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_request_is_refused_with_its_place(body, path):
    with pytest.raises(CallerError) as caught:
        decode_request(body)
    assert caught.value.path == path


FULL = [
    CODEX,
    {
        "model": "m",
        "instructions": "i",
        "input": "u",
        "temperature": 1.0,
        "top_p": 1.0,
        "max_output_tokens": 1,
        "tools": [NESTED, *DECLARED, SEARCH, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [G, {"type": "namespace", "name": "ns"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
        "include": [],
        "store": True,
    },
    *[{"model": "m", "input": given_items} for given_items, _, _ in ITEMS.values()],
]
WRONG = [
    None,
    3,
    -1.5,
    True,
    "x",
    "",
    [],
    {},
    [None],
    ["x"],
    [[]],
    {"type": 3},
    {"type": None},
    {"type": []},
    [{"type": {}}],
]


def broken(value, wrong):
    """The value with each of its fields, at any depth, replaced or left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {**value, key: wrong}
            yield {name: other for name, other in value.items() if name != key}
            yield from ({**value, key: each} for each in broken(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield [*value[:place], wrong, *value[place + 1 :]]
            yield from ([*value[:place], each, *value[place + 1 :]] for each in broken(inner, wrong))


@table("wrong", WRONG, ids=json.dumps)
def test_every_field_wrong_or_absent_is_taken_or_refused(wrong):
    for body in FULL:
        for each in broken(body, wrong):
            try:
                request = decode_request(each)
            except CallerError:
                continue
            msgspec.json.encode(encode_request(request).body)


def test_what_we_send_is_openai_s(judge_body):
    request = lowered(
        core.SupervisorCanister("s"),
        core.UserCanister([core.TextualContent("see"), PICTURE, FILE]),
        core.AssistantCanister([core.TextualContent("t")]),
        invocation("a", "f", {"x": 1}),
        invocation("b", "apply_patch", {"input": "x"}),
        core.ResultCanister([core.TextualContent("seen"), PICTURE], invocation_id="a"),
        tools=TOOLS,
        tool_choice="required",
        constraint=core.Constraint("answer", {"type": "object"}),
        hosted=(core.HostedTool("responses", "web_search"),),
    )
    judge_body(request.body)


def test_what_we_send_is_open_responses():
    from openresponses_types import CreateResponseBody

    request = lowered(
        core.SupervisorCanister("s"),
        core.UserCanister([core.TextualContent("see"), PICTURE, FILE]),
        core.AssistantCanister(
            [core.ReasoningContent("hm", "sig", "m"), core.TextualContent("t"), core.RefusalContent("no")]
        ),
        invocation("a", "f", {"x": 1}),
        core.ResultCanister([core.TextualContent("seen"), PICTURE], invocation_id="a"),
        tools=(core.ToolDeclaration("f", "does", {"type": "object"}, strict=False),),
        tool_choice=core.NamedTool("f"),
        controls=core.Controls(effort="low"),
    )
    CreateResponseBody.model_validate(request.body)
