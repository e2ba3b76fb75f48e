"""Requests, both ways."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from callboard import core
from callboard.wires.common.contents import seal, unseal
from callboard.wires.responses import decode_request, encode_request, read_request

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


FLAT = {"type": "function", "name": "f", "description": "does", "parameters": SCHEMA, "strict": False}
SPACE = {
    "type": "namespace",
    "name": "ns",
    "description": "of ns",
    "tools": [
        {"type": "function", "name": "g", "parameters": None},
        {"type": "custom", "name": "exec", "format": {"type": "text"}},
    ],
}
SEARCH = {"type": "tool_search", "execution": "client", "description": "finds", "parameters": SCHEMA}


def searched(identifier, tools):
    end = {"call_id": identifier, "execution": "client", "status": "completed"}
    call = {"type": "tool_search_call", **end, "arguments": {"query": identifier}}
    return [call, {"type": "tool_search_output", **end, "tools": tools}]


def test_a_search_and_what_it_found_go_back_as_they_came(request_judges):
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
    request_judges["openai responses"](sent.body | {"stream": True})


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
