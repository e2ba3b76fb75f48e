"""Requests, both ways."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import error_result
from callboard.errors import CallerError
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.gemini import StreamDecoder, decode_request, encode_request, request_path

PICTURE = core.PictureContent(data=b"png")
FILE = core.FileContent(data=b"pdf", mime_type="application/pdf")
PICTURE_PART = {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}
FILE_PART = {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}}
SIGNED = core.ReasoningContent("", ">U2ln", "m")


def lowered(*canisters, **fields):
    return encode_request(core.Request("m", canisters, **fields))


def decoded(body, **fields):
    return decode_request(body, **{"model": "m", "stream": True, **fields})


def invocation(identifier="a", name="f", arguments=None, raw=""):
    return core.InvocationCanister(identifier, name, arguments, raw)


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def text(said, **fields):
    return {"text": said, **fields}


def call(identifier="a", name="f", args=None, **fields):
    return {"functionCall": {"id": identifier, "name": name, "args": args or {}}, **fields}


def response(identifier="a", name="f", **said):
    return {"functionResponse": {"id": identifier, "name": name, "response": said}}


NO_RESULT = response(output="No result: the call was not run.")


@table(
    ("canisters", "contents", "dropped"),
    [
        ([core.UserCanister("u")], [user(text("u"))], ()),
        ([core.UserCanister([core.TextualContent("a"), core.TextualContent("b")])], [user(text("a"), text("b"))], ()),
        ([core.UserCanister("a"), core.UserCanister("b"), core.UserCanister()], [user(text("a"), text("b"))], ()),
        (
            [core.UserCanister([core.TextualContent("see"), PICTURE, FILE])],
            [user(text("see"), PICTURE_PART, FILE_PART)],
            (),
        ),
        (
            [
                core.UserCanister(
                    [
                        core.PictureContent(url="https://x/y.JPG"),
                        core.FileContent(url="gs://a.pdf", mime_type="application/pdf"),
                    ]
                )
            ],
            [
                user(
                    {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x/y.JPG"}},
                    {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://a.pdf"}},
                )
            ],
            (),
        ),
        (
            [
                core.UserCanister(
                    [core.FileContent(b"pdf", name="a.pdf", mime_type="application/pdf"), core.PictureContent()]
                )
            ],
            [user(FILE_PART)],
            ("name of a file", "picture"),
        ),
        ([core.DocumentCanister("text", title="Title")], [user(text("Title\n\ntext"))], ()),
        (
            [core.AssistantCanister("t"), core.AssistantCanister(core.RefusalContent("no"))],
            [model(text("t"), text("no"))],
            (),
        ),
        ([core.AssistantCanister(), core.UserCanister("u")], [user(text("u"))], ()),
        (
            [
                core.AssistantCanister(
                    [
                        core.ReasoningContent("hm", "QQ==", "m"),
                        core.ReasoningContent("x", "Qg==", "n"),
                        core.TextualContent("t"),
                        PICTURE,
                    ]
                )
            ],
            [model(text("hm", thought=True, thoughtSignature="QQ=="), text("t"), PICTURE_PART)],
            ("reasoning",),
        ),
        (
            [
                core.AssistantCanister("t"),
                invocation("a", "f", {"x": 1}),
                core.AssistantCanister("u"),
                invocation("b", "g", {}),
                core.ResultCanister("2", invocation_id="b"),
                core.ResultCanister("1", invocation_id="a"),
                core.UserCanister("then"),
            ],
            [
                model(text("t"), call("a", "f", {"x": 1}), text("u"), call("b", "g")),
                user(response("a", "f", output="1"), response("b", "g", output="2"), text("then")),
            ],
            (),
        ),
        ([invocation("a", "f", None, "[1")], [model(call("a", "f", {"raw": "[1"})), user(NO_RESULT)], ()),
        ([invocation(), core.UserCanister("u")], [model(call()), user(NO_RESULT, text("u"))], ()),
        ([core.ResultCanister("lost", invocation_id="z")], [user(text("lost"))], ()),
        (
            [invocation(), core.ResultCanister((), invocation_id="a", error=core.ToolError("timeout", "late"))],
            [model(call()), user(response(error="late"))],
            (),
        ),
        (
            [invocation(), error_result("a", "execution", "boom")],
            [model(call()), user(response(error="Error: boom"))],
            (),
        ),
        (
            [invocation(), core.ResultCanister('{"x":[1,null]}', invocation_id="a")],
            [model(call()), user(response(x=[1, None]))],
            (),
        ),
        (
            [invocation(), core.ResultCanister('{"x": 1}', invocation_id="a")],
            [model(call()), user(response(output='{"x": 1}'))],
            (),
        ),
        (
            [invocation(), core.ResultCanister('{"output":"x"}', invocation_id="a")],
            [model(call()), user(response(output='{"output":"x"}'))],
            (),
        ),
        (
            [invocation(), core.ResultCanister("{no}", invocation_id="a")],
            [model(call()), user(response(output="{no}"))],
            (),
        ),
        (
            [
                invocation(),
                invocation("b"),
                core.ResultCanister(
                    [core.TextualContent("seen"), PICTURE, core.RefusalContent("x")], invocation_id="a"
                ),
                core.ResultCanister([FILE], invocation_id="b"),
            ],
            [
                model(call(), call("b")),
                user(response(output="seen"), PICTURE_PART, response("b", output=""), FILE_PART),
            ],
            ("refusal",),
        ),
        (
            [core.AssistantCanister([core.ReasoningContent("hm", ">U2ln", "m")]), invocation(), invocation("b")],
            [
                model(text("hm", thought=True), call(thoughtSignature="U2ln"), call("b")),
                user(NO_RESULT, response("b", output="No result: the call was not run.")),
            ],
            (),
        ),
        (
            [
                invocation(),
                core.AssistantCanister(SIGNED),
                invocation("b"),
                core.AssistantCanister([core.TextualContent("t"), SIGNED]),
            ],
            [
                model(call(), call("b", thoughtSignature="U2ln"), text("t"), text("", thoughtSignature="U2ln")),
                user(NO_RESULT, response("b", output="No result: the call was not run.")),
            ],
            (),
        ),
        (
            [
                core.AssistantCanister(
                    [core.ReasoningContent("", ">QQ==", "m"), core.ReasoningContent("", ">Qg==", "m")]
                ),
                invocation(),
            ],
            [model(text("", thoughtSignature="QQ=="), call(thoughtSignature="Qg==")), user(NO_RESULT)],
            (),
        ),
        (
            [core.AssistantCanister([core.ReasoningContent("", ">QQ==", "n"), core.TextualContent("t")])],
            [model(text("t"))],
            ("reasoning",),
        ),
    ],
    ids=[
        "a user",
        "several texts are several parts",
        "neighbours of one role are one content, and what is empty is left out",
        "pictures and files by their bytes",
        "pictures and files by their address",
        "what has no place",
        "a document with its title",
        "a refusal is a text",
        "an assistant that said nothing",
        "reasoning only of the model that is asked",
        "parts in the order of the turn, results in that of the calls, then the user",
        "arguments that are no object",
        "a call without result",
        "a result without call",
        "an error without content",
        "an error with content",
        "a JSON object is the response",
        "a JSON object whose spelling would be lost is a text",
        "an object that looks like ours is a text",
        "a text that is no object",
        "pictures and files stand behind their result",
        "a signature folded into the thought stands on its call",
        "signatures in the middle and at the end of a turn",
        "two signatures and one part",
        "another model's signature",
    ],
)
def test_contents(canisters, contents, dropped):
    request = lowered(*canisters)
    assert request.body == {"contents": contents}
    assert request.dropped == dropped


def test_the_first_instructions_are_parts_in_order_and_later_ones_stay_at_their_place():
    request = lowered(
        core.SupervisorCanister("a"), core.SupervisorCanister("b"), core.UserCanister("u"), core.SupervisorCanister("c")
    )
    assert request.body["systemInstruction"] == {"parts": [text("a"), text("b")]}
    assert request.body["contents"] == [user(text("u"), text("<system>\nc\n</system>"))]
    assert request.dropped == ()


def test_pictures_of_the_supervisor_are_dropped():
    assert lowered(core.SupervisorCanister([core.TextualContent("a"), PICTURE])).dropped == ("picture",)


SCHEMA = {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}, "additionalProperties": False}


def whole(**fields):
    return core.Request(
        "m",
        (core.UserCanister("u"),),
        tools=(
            core.ToolDeclaration("f", "does", SCHEMA, strict=True),
            core.ToolDeclaration("g"),
            core.ToolDeclaration(
                "c", "text", kind="custom", grammar={"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
            ),
            core.ToolDeclaration("ns__f", namespace="ns"),
        ),
        tool_choice=core.NamedTool("f"),
        parallel=False,
        constraint=core.Constraint("answer", SCHEMA),
        controls=core.Controls(0.0, 0.5, 10, 7, ("\n",), "low"),
        hosted=(
            core.HostedTool("gemini", "googleSearch", {}),
            core.HostedTool("responses", "web_search", {"type": "web_search"}),
        ),
        extra={"safetySettings": [], "generationConfig": {"topK": 3, "temperature": 1}},
        **fields,
    )


def test_a_whole_body():
    request = encode_request(whole())
    none = {"type": "object", "properties": {}}
    custom = {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    assert request.body == {
        "contents": [user(text("u"))],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "does", "parametersJsonSchema": SCHEMA},
                    {"name": "g", "parametersJsonSchema": none},
                    {
                        "name": "c",
                        "description": "text\n\nThe input follows this lark:\nstart: /x/",
                        "parametersJsonSchema": custom,
                    },
                    {"name": "ns__f", "parametersJsonSchema": none},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "temperature": 1,
            "topP": 0.5,
            "maxOutputTokens": 10,
            "seed": 7,
            "stopSequences": ["\n"],
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
            "topK": 3,
        },
        "safetySettings": [],
    }
    assert request.dropped == ("strict", "tool web_search", "parallel")
    msgspec.json.encode(request.body)


def test_a_plain_body_has_nothing_that_was_not_asked_for():
    request = lowered(core.UserCanister("u"), stream=False, parallel=True)
    assert request.body == {"contents": [user(text("u"))]}
    assert (request.names, request.dropped) == ({}, ())


def test_a_choice_without_tools_is_dropped():
    assert lowered(tool_choice="required").dropped == ("tool_choice",)


def test_names_are_safe_everywhere():
    request = lowered(
        invocation("a", "io.read", {}), tools=(core.ToolDeclaration("io.read"),), tool_choice=core.NamedTool("io.read")
    )
    sent = json.dumps(request.body)
    assert sent.count('"io_read"') == 4
    assert "io.read" not in sent
    assert request.names == {"io_read": "io.read"}


@table(
    ("effort", "level", "lost"),
    [
        ("none", {"thinkingBudget": 0}, ()),
        ("minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}, ()),
        ("high", {"includeThoughts": True, "thinkingLevel": "HIGH"}, ()),
        ("max", {"includeThoughts": True, "thinkingLevel": "XHIGH"}, ("effort max",)),
        ("much", None, ("effort much",)),
    ],
)
def test_efforts(effort, level, lost):
    request = core.Request("m", (), controls=core.Controls(effort=effort))
    low = encode_request(request)
    assert low.body.get("generationConfig", {}).get("thinkingConfig") == level
    assert low.dropped == lost


def test_a_budget_of_an_older_model_is_an_effort():
    thinking = {"includeThoughts": True, "thinkingBudget": 1024}
    request = decode_request({"contents": [], "generationConfig": {"thinkingConfig": thinking}}, model="m")
    assert (request.controls.effort, request.extra) == ("low", {})


def test_paths():
    assert request_path("m", stream=True) == "/models/m:streamGenerateContent?alt=sse"
    assert request_path("tunedModels/m", stream=False) == "/tunedModels/m:generateContent"
    assert request_path("models/m", stream=False) == "/models/m:generateContent"
    assert request_path("Gemini 2.5 (é)", stream=False) == "/models/Gemini%202.5%20%28%C3%A9%29:generateContent"


@table(
    "model",
    [
        "../../admin",
        "models/..",
        "models/.",
        "..",
        "x:deleteModel",
        "x:deleteModel?y=",
        "a?key=1",
        "a#b",
        "a%2f..",
        "/a",
        "models/a/b",
        "admin/a",
        "models/",
        "models//a",
        "a\\..",
        "a\nb",
        "a\x00",
        "\uff0e\uff0e/a",
        "",
        " ",
        "m" * 501,
    ],
)
def test_a_models_name_is_one_segment_of_the_path(model):
    with pytest.raises(CallerError):
        request_path(model, stream=True)


# What the wire carries: supervisors first, one text each; a result's pictures behind its text; what stands behind a
# result begins with a text; signatures that are base64; names that are safe; no error but of the tool's own doing.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.builds(core.TextualContent, WORDS)
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", fullmatch=True)
VALUES = WORDS | st.integers(-9, 9) | st.booleans() | st.none()
OBJECTS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=2), max_size=3)
EXTRA = st.sampled_from([None, {"videoMetadata": {"fps": 1}}, {"mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}])
PICTURES = st.builds(
    core.PictureContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["image/png", "image/jpeg"]), extra=EXTRA
) | (st.builds(core.PictureContent, url=st.just("https://x/y.png"), extra=EXTRA))
FILES = st.builds(core.FileContent, data=st.binary(min_size=1), mime_type=st.just("application/pdf"), extra=EXTRA) | (
    st.builds(core.FileContent, url=st.just("gs://x"), mime_type=st.just("video/mp4"), extra=EXTRA)
)
MEDIA = PICTURES | FILES
SPOKEN = st.tuples(TEXTS, st.lists(TEXTS | MEDIA, max_size=3)).map(lambda pair: (pair[0], *pair[1]))
SIGNATURES = st.binary(min_size=1, max_size=4).map(lambda data: base64.b64encode(data).decode())
FOLLOWING = SIGNATURES.map(lambda signature: f">{signature}")
THOUGHTS = st.builds(core.ReasoningContent, WORDS, st.just("") | SIGNATURES | FOLLOWING, st.just("m"))
RESULTS = st.one_of(
    st.just(()),
    st.tuples(TEXTS),
    OBJECTS.map(lambda value: (core.TextualContent(msgspec.json.encode(value).decode()),)),
    st.tuples(TEXTS, MEDIA),
    st.tuples(MEDIA),
)


@st.composite
def turn_canisters(draw, identifiers):
    canisters, results = [], []
    for _ in range(draw(st.integers(1, 3))):
        content = draw(
            st.lists(TEXTS, max_size=1).flatmap(lambda t: st.lists(THOUGHTS, max_size=1).map(lambda r: (*r, *t)))
        )
        if not canisters or isinstance(canisters[-1], core.InvocationCanister):
            canisters += [core.AssistantCanister(content)] if content else []
        if draw(st.booleans()):
            arguments = draw(OBJECTS)
            identifier, name = f"c{next(identifiers)}", draw(NAMES)
            canisters.append(
                core.InvocationCanister(identifier, name, arguments, msgspec.json.encode(arguments).decode())
            )
            failed = draw(st.booleans())
            result = (
                error_result(identifier, "execution", draw(WORDS))
                if failed
                else core.ResultCanister(draw(RESULTS), invocation_id=identifier)
            )
            results.append(result)
    return canisters + results


@st.composite
def conversations(draw):
    canisters = [core.SupervisorCanister((each,)) for each in draw(st.lists(TEXTS, max_size=2))]
    identifiers = iter(range(1000))
    for _ in range(draw(st.integers(0, 4))):
        # A turn or a user's word followed by another would be one content.
        canisters += [core.UserCanister(draw(SPOKEN)), *draw(turn_canisters(identifiers))]
    merged = []
    for canister in canisters:
        if merged and isinstance(canister, core.UserCanister) and isinstance(merged[-1], core.UserCanister):
            continue
        merged.append(canister)
    return tuple(merged)


SCHEMAS = OBJECTS.map(lambda properties: {"type": "object", "x_y": properties})
UNNAMED = st.sampled_from([{}, {"gemini": {"behavior": "NON_BLOCKING", "response": {"type": "STRING"}}}])
TOOLS = st.lists(
    st.builds(core.ToolDeclaration, NAMES, st.just("") | WORDS, SCHEMAS, extra=UNNAMED),
    unique_by=lambda t: t.name,
    max_size=3,
)
EFFORTS = st.sampled_from([None, "none", "minimal", "low", "medium", "high", "xhigh"])
CONTROLS = st.builds(
    core.Controls,
    st.none() | st.floats(0, 2),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 99),
    st.none() | st.integers(0, 99),
    st.lists(WORDS, max_size=2).map(tuple),
    EFFORTS,
)
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "safetySettings": st.just([{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]),
        "generationConfig": st.just({"topK": 3}),
        "toolConfig": st.just({"retrievalConfig": {"languageCode": "de"}}),
    },
)


@st.composite
def requests(draw):
    tools = tuple(draw(TOOLS))
    choices = [core.NamedTool(tools[0].name), "none", "required"] if tools else []
    return core.Request(
        model="m",
        canisters=draw(conversations()),
        tools=tools,
        tool_choice=draw(st.sampled_from(["auto", *choices])),
        constraint=draw(st.none() | st.builds(core.Constraint, st.just("reply"), SCHEMAS)),
        controls=draw(CONTROLS),
        stream=draw(st.booleans()),
        extra=draw(EXTRAS),
        hosted=draw(
            st.sampled_from(
                [(), (core.HostedTool("gemini", "googleSearch", {}), core.HostedTool("gemini", "urlContext", {}))]
            )
        ),
    )


@given(requests())
def test_what_is_encoded_is_decoded(request):
    low = encode_request(request)
    assert (low.names, low.dropped) == ({}, ())
    assert decode_request(low.body, model="m", stream=request.stream) == request
    assert (
        decode_request(msgspec.json.decode(msgspec.json.encode(low.body)), model="models/m", stream=request.stream)
        == request
    )


def test_a_conversation_costs_what_it_holds():
    """20,000 canisters, all calls under one identifier: this finishes because each is looked at once."""
    step = [core.UserCanister("u"), invocation(), invocation(), core.ResultCanister("1", invocation_id="a")]
    assert len(lowered(*step * 5_000).body["contents"]) == 10_001


def test_a_client_s_conversation_costs_what_it_holds():
    """20,000 parts of each kind in one content: this finishes because each is looked at once."""
    many = 20_000
    said = [text("0123456789")] * many + [text("x", thought=True)] * many + [call()] * many
    contents = [model(*said), user(*[{"functionResponse": {"name": "f"}}] * many, *[PICTURE_PART] * many)]
    canisters = decoded({"contents": contents}).canisters
    assert len(canisters) == 1 + 2 * many
    assert len(canisters[-1].content) == many


# A client's request, in the spelling of Google's own examples.
GOOGLE = {
    "system_instruction": {"parts": [{"text": "s"}]},
    "contents": [
        {"parts": [{"text": "see"}, {"inline_data": {"mime_type": "image/jpeg", "data": "_-8"}}]},
        {
            "role": "model",
            "parts": [
                {"function_call": {"name": "f", "args": {"snake_case": 1}}, "thought_signature": "_-8="},
                {"function_call": {"name": "g"}},
            ],
        },
        {
            "role": "function",
            "parts": [
                {"function_response": {"name": "g", "response": {"snake_case": 2}}},
                {"function_response": {"name": "f", "response": {"output": "1"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "t"}, {"executable_code": {"code": "1"}}]},
    ],
    "tools": [
        {
            "function_declarations": [
                {
                    "name": "f",
                    "description": "does",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"snake_case": {"type": "STRING", "nullable": True, "min_length": "1"}},
                        "property_ordering": ["snake_case"],
                    },
                },
                {"name": "g"},
            ]
        },
        {"google_search": {"exclude_domains": ["x"]}},
    ],
    "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}},
    "generation_config": {
        "max_output_tokens": 10,
        "stop_sequences": ["\n"],
        "candidate_count": 1,
        "response_mime_type": "application/json",
        "thinking_config": {"thinking_budget": 5000},
    },
    "safety_settings": None,
    "cached_content": "cachedContents/x",
}


def test_a_client_s_request():
    assert decode_request(GOOGLE, model="models/m") == core.Request(
        model="m",
        canisters=(
            core.SupervisorCanister("s"),
            core.UserCanister(
                [core.TextualContent("see"), core.PictureContent(data=b"\xff\xef", mime_type="image/jpeg")]
            ),
            core.AssistantCanister(core.ReasoningContent("", ">/+8=", "m")),
            core.InvocationCanister("call_0", "f", {"snake_case": 1}, '{"snake_case":1}'),
            core.InvocationCanister("call_1", "g", {}, "{}"),
            core.ResultCanister('{"snake_case":2}', invocation_id="call_1"),
            core.ResultCanister("1", invocation_id="call_0"),
            core.AssistantCanister("t"),
        ),
        tools=(
            core.ToolDeclaration(
                "f",
                "does",
                {"type": "object", "properties": {"snake_case": {"type": ["string", "null"], "minLength": 1}}},
            ),
            core.ToolDeclaration("g", "", {"type": "object", "properties": {}}),
        ),
        tool_choice=core.NamedTool("f"),
        controls=core.Controls(max_tokens=10, stop=("\n",), effort="medium"),
        stream=False,
        extra={
            "cachedContent": "cachedContents/x",
            "generationConfig": {
                "candidateCount": 1,
                "responseMimeType": "application/json",
                "thinkingConfig": {"thinkingBudget": 5000},
            },
        },
        hosted=(core.HostedTool("gemini", "googleSearch", {"excludeDomains": ["x"]}),),
    )


def test_several_allowed_names_are_the_tools_that_are_left():
    tools = [{"functionDeclarations": [{"name": name} for name in "fgh"]}]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "h"]}}
    request = decoded({"contents": [], "tools": tools, "toolConfig": config})
    assert [tool.name for tool in request.tools] == ["f", "h"]
    assert request.tool_choice == "required"


def test_what_the_core_has_no_word_for_comes_back():
    config = {"functionCallingConfig": {"mode": "VALIDATED"}}
    request = decoded({"contents": [], "tools": [{"functionDeclarations": [{"name": "f"}]}], "toolConfig": config})
    assert request.tool_choice == "auto"
    assert encode_request(request).body["toolConfig"] == config


@table(
    ("parts", "pairs"),
    [
        ([response("b", "f", output="2"), response("a", "f", output="1")], [("b", "2"), ("a", "1")]),
        ([{"functionResponse": {"name": "f", "response": {"output": x}}} for x in "12"], [("a", "1"), ("b", "2")]),
        ([response("z", "f", output="1")], [("a", "1")]),
        ([response("z", "g", output="1")], [("z", "1")]),
        ([response("a", "f", output="1"), response("a", "f", output="2")], [("a", "1"), ("a", "2")]),
        ([{"functionResponse": {"name": "f", "response": None}}], [("a", "")]),
    ],
    ids=["by identifier", "by name and order", "an identifier of its own", "no such call", "twice", "no response"],
)
def test_results_find_their_calls(parts, pairs):
    body = {"contents": [model(call("a"), call("b")), user(*parts)]}
    results = [each for each in decoded(body).canisters if isinstance(each, core.ResultCanister)]
    assert [(each.invocation_id, each.text) for each in results] == pairs


def test_parts_of_a_response_are_its_content():
    part = {
        "functionResponse": {"id": "a", "name": "f", "response": {"output": "x"}, "parts": [PICTURE_PART, FILE_PART]}
    }
    *_, result = decoded({"contents": [model(call()), user(part, PICTURE_PART)]}).canisters
    assert result == core.ResultCanister([core.TextualContent("x"), PICTURE, FILE, PICTURE], invocation_id="a")


def test_a_reply_comes_back_as_it_was_folded():
    """A signature stays on its part from the stream, over the conversation, to the next request and a client."""
    parts = [
        text("h", thought=True, thoughtSignature="QQ=="),
        text("m", thought=True, thoughtSignature="Qg=="),
        text("I'll look.", thoughtSignature="Qw=="),
        call("a", args={"x": 1}, thoughtSignature="RA=="),
        call("b"),
        text("", thoughtSignature="RQ=="),
    ]
    stage = StreamDecoder(DecodeContext(identify=lambda index, _: f"c{index}", origin="m"))
    chunks = [{"candidates": [{"content": model(part)}]} for part in parts]
    events = [event for chunk in chunks for event in stage.feed(json.dumps(chunk))]
    fold = core.Fold()
    canisters = [canister for event in events for canister in fold.feed(event)] + fold.finish()
    said, _ = lowered(*canisters).body["contents"]
    assert said["parts"] == parts
    assert decoded({"contents": [said]}).canisters == tuple(canisters)
    assert decoded({"contents": [model(*parts)]}).canisters == tuple(canisters)
    assert decoded({"contents": [model(part) for part in parts]}).canisters == tuple(canisters)


@table(
    ("body", "path"),
    [
        ([], ""),
        ({}, ""),
        ({"contents": "u"}, "contents"),
        ({"contents": [{"role": "wizard", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"text": 3}]}]}, "contents[0].parts[0].text"),
        ({"contents": [user({"inlineData": {"data": "*"}})]}, "contents[0].parts[0].inlineData.data"),
        ({"contents": [user({"inlineData": {"mimeType": "image/png"}})]}, "contents[0].parts[0].inlineData.data"),
        ({"contents": [user({"fileData": {"mimeType": "image/png"}})]}, "contents[0].parts[0].fileData.fileUri"),
        ({"contents": [model({"functionCall": {"args": {}}})]}, "contents[0].parts[0].functionCall"),
        ({"contents": [model({"functionCall": {"name": "f", "args": "x"}})]}, "contents[0].parts[0].functionCall.args"),
        (
            {"contents": [], "tools": [{"functionDeclarations": [{"name": None}]}]},
            "tools[0].functionDeclarations[0].name",
        ),
        (
            {"contents": [], "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}},
            "toolConfig.functionCallingConfig.mode",
        ),
        ({"contents": [], "generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
        (
            {"contents": [user({"functionResponse": {"name": "f", "parts": [{"inlineData": {"data": "*"}}]}})]},
            "contents[0].parts[0].functionResponse.parts[0].inlineData.data",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_request_is_refused_with_its_place(body, path):
    with pytest.raises(CallerError) as caught:
        decoded(body)
    assert caught.value.path == path


def test_a_request_without_model_is_refused():
    with pytest.raises(CallerError, match="no model is named"):
        decode_request({"contents": []})
    assert decode_request({"contents": [], "model": "models/m"}).model == "m"


FULL = encode_request(
    core.Request(
        "m",
        (
            core.SupervisorCanister("s"),
            core.UserCanister([core.TextualContent("u"), PICTURE, core.FileContent(url="gs://x")]),
            core.AssistantCanister([core.ReasoningContent("hm", "QQ==", "m"), core.ReasoningContent("", ">Qg==", "m")]),
            invocation(),
            core.ResultCanister("1", invocation_id="a"),
        ),
        tools=whole().tools,
        tool_choice="required",
        constraint=core.Constraint("reply", SCHEMA),
        controls=whole().controls,
        hosted=whole().hosted,
    )
).body


def spoiled(value, wrong):
    """The value with each of its places, one at a time, replaced by `wrong` or taken away."""
    yield wrong
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: each} for each in spoiled(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield [*value[:place], *value[place + 1 :]]
            yield from ([*value[:place], each, *value[place + 1 :]] for each in spoiled(inner, wrong))


@table("wrong", [None, True, 0, -1.5, "x", "é", "\ud83d", [], {}, [None], [[]], {"x": None}, {"a_b": [{}]}])
def test_anything_at_every_field(wrong):
    refused = 0
    for body in spoiled(FULL, wrong):
        try:
            request = decoded(body)
        except CallerError:
            refused += 1
        else:
            encode_request(request)
    assert refused


@pytest.fixture(scope="module")
def types():
    """What the official package reads."""
    from google.genai import types

    return types


@given(request=requests())
def test_what_we_send_is_google_s(types, request):
    body = msgspec.json.decode(msgspec.json.encode(encode_request(request).body))
    for content in body["contents"]:
        types.Content.model_validate(content)
    types.Content.model_validate(body.get("systemInstruction", {}))
    for tool in body.get("tools", []):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(body.get("toolConfig", {}))
    types.GenerationConfig.model_validate(body.get("generationConfig", {}))


STAND_INS = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"]


@table("stand_in", [*STAND_INS, *[base64.b64encode(each.encode()).decode() for each in STAND_INS]])
def test_a_word_that_stands_for_a_signature_is_none(stand_in):
    """Gemini CLI puts it onto calls whose signature it does not have; no other provider can read it."""
    request = decoded({"contents": [user(text("u")), model(call("a", thoughtSignature=stand_in))]})
    assert request.canisters == (core.UserCanister("u"), invocation("a", arguments={}, raw="{}"))


@table(
    "body",
    [
        {"contents": {"parts": {"text": "u"}}},
        {"contents": [{"parts": {"text": "u"}}]},
        {"contents": {"role": "user", "parts": [{"text": "u"}]}},
    ],
)
def test_one_object_may_stand_for_a_list(body):
    more = {"system_instruction": {"parts": {"text": "s"}}, "tools": {"function_declarations": {"name": "f"}}}
    request = decoded({**body, **more})
    assert request.canisters == (core.SupervisorCanister("s"), core.UserCanister("u"))
    assert [tool.name for tool in request.tools] == ["f"]


CLIENTS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((Path(__file__).resolve().parents[2] / "vectors" / "gemini_clients").glob("*.json"))
}
"""What the packages that speak this wire sent (`tests/clients/test_gemini.py`): a question, two calls, their results."""


@table("client", CLIENTS)
def test_what_clients_send_is_read(client):
    first, last = (decoded(CLIENTS[client][which]) for which in ("first", "last"))
    (tool,) = first.tools
    assert (tool.name, tool.schema["properties"]["city"]["type"]) == ("get_weather", "string")
    assert first.canisters[-1] == core.UserCanister("Weather?")
    calls = [each for each in last.canisters if isinstance(each, core.InvocationCanister)]
    results = [each for each in last.canisters if isinstance(each, core.ResultCanister)]
    assert [call.arguments for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert [result.invocation_id for result in results] == [call.identifier for call in calls]
    assert ["sunny in Oslo" in results[0].text, "sunny in Rome" in results[1].text] == [True, True]
    (thought,) = [part for each in last.canisters if isinstance(each, core.AssistantCanister) for part in each.content]
    assert thought == core.ReasoningContent("I look.", "", "m")


@table("client", CLIENTS)
def test_what_clients_send_comes_back(client):
    request = decoded(CLIENTS[client]["last"])
    again = decode_request(encode_request(request).body, model="m", stream=True)
    assert again == request
