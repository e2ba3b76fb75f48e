"""Requests, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.wires.chat import decode_request, encode_request

PICTURE = core.PictureContent(data=b"png")
FILE = core.FileContent(data=b"pdf", mime_type="application/pdf", name="a.pdf")
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
FILE_PART = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}}
WAV = core.FileContent(data=b"wav", mime_type="audio/wav")
MP3 = core.FileContent(data=b"mp3", mime_type="audio/mpeg")
WAV_PART = {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}}
MP3_PART = {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}}


def lowered(*canisters, **fields):
    return encode_request(core.Request("m", canisters, **fields))


def tool_call(identifier, name, arguments):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def invocation(identifier="a", name="f", arguments=None, raw=""):
    return core.InvocationCanister(identifier, name, arguments, raw)


NO_RESULT = {"role": "tool", "content": "No result: the call was not run.", "tool_call_id": "a"}
CALL_A = {"role": "assistant", "content": None, "tool_calls": [tool_call("a", "f", "{}")]}


@table(
    ("canisters", "messages", "dropped"),
    [
        (
            [core.SupervisorCanister("s"), core.UserCanister("u")],
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            (),
        ),
        (
            [core.UserCanister([core.TextualContent("a"), core.TextualContent("b")])],
            [{"role": "user", "content": "a\nb"}],
            (),
        ),
        (
            [core.AssistantCanister([core.TextualContent("a"), core.TextualContent("b")])],
            [{"role": "assistant", "content": "ab"}],
            (),
        ),
        ([core.UserCanister()], [{"role": "user", "content": ""}], ()),
        (
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
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        PICTURE_PART,
                        FILE_PART,
                        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                    ],
                }
            ],
            (),
        ),
        (
            [core.UserCanister([core.TextualContent("hear"), WAV, MP3])],
            [{"role": "user", "content": [{"type": "text", "text": "hear"}, WAV_PART, MP3_PART]}],
            (),
        ),
        (
            [
                core.UserCanister(
                    [
                        core.TextualContent("u"),
                        core.FileContent(b"ogg", "audio/ogg"),
                        core.FileContent(mime_type="audio/wav", url="https://x/a.wav"),
                        core.FileContent(mime_type="audio/wav"),
                    ]
                )
            ],
            [{"role": "user", "content": "u"}],
            ("file",),
        ),
        (
            [invocation(), core.ResultCanister(WAV, invocation_id="a")],
            [
                CALL_A,
                {"role": "tool", "content": "[file: in the next message]", "tool_call_id": "a"},
                {"role": "user", "content": [{"type": "text", "text": "From the result of a:"}, WAV_PART]},
            ],
            (),
        ),
        (
            [
                core.UserCanister(
                    [core.FileContent(url="https://x/a.pdf"), core.PictureContent(), core.TextualContent("u")]
                )
            ],
            [{"role": "user", "content": "u"}],
            ("file", "picture"),
        ),
        (
            [core.UserCanister(core.FileContent(extra={"file_id": "f1"}))],
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]}],
            (),
        ),
        (
            [core.SupervisorCanister([core.TextualContent("s"), PICTURE])],
            [{"role": "system", "content": "s"}],
            ("picture",),
        ),
        ([core.DocumentCanister("text", title="Title")], [{"role": "user", "content": "Title\n\ntext"}], ()),
        (
            [core.DocumentCanister([core.TextualContent("text"), PICTURE])],
            [{"role": "user", "content": [{"type": "text", "text": "text"}, PICTURE_PART]}],
            (),
        ),
        ([core.AssistantCanister("t")], [{"role": "assistant", "content": "t"}], ()),
        ([core.AssistantCanister()], [{"role": "assistant", "content": ""}], ()),
        (
            [core.AssistantCanister(core.RefusalContent("no"))],
            [{"role": "assistant", "content": None, "refusal": "no"}],
            (),
        ),
        (
            [
                core.AssistantCanister(
                    [
                        core.ReasoningContent("hm", origin="m"),
                        core.ReasoningContent("x", origin="n"),
                        core.ReasoningContent("", "opaque", "m"),
                        core.TextualContent("t"),
                        PICTURE,
                    ]
                )
            ],
            [{"role": "assistant", "content": "t", "reasoning_content": "hm"}],
            ("reasoning", "picture"),
        ),
        (
            [
                core.AssistantCanister("t"),
                invocation("a", "f", {"x": 1}),
                invocation("b", "g", None, '{"y'),
                core.ResultCanister("2", invocation_id="b"),
                core.ResultCanister("1", invocation_id="a"),
            ],
            [
                {
                    "role": "assistant",
                    "content": "t",
                    "tool_calls": [tool_call("a", "f", '{"x":1}'), tool_call("b", "g", '{"raw":"{\\"y"}')],
                },
                {"role": "tool", "content": "1", "tool_call_id": "a"},
                {"role": "tool", "content": "2", "tool_call_id": "b"},
            ],
            (),
        ),
        ([invocation(), core.UserCanister("u")], [CALL_A, NO_RESULT, {"role": "user", "content": "u"}], ()),
        ([core.ResultCanister("lost", invocation_id="z")], [{"role": "user", "content": "lost"}], ()),
        (
            [invocation(), core.ResultCanister((), invocation_id="a", error=core.ToolError("timeout", "late"))],
            [CALL_A, {"role": "tool", "content": "Error: late", "tool_call_id": "a"}],
            (),
        ),
        (
            [
                invocation(),
                invocation("b"),
                core.ResultCanister([core.TextualContent("seen"), PICTURE], invocation_id="a"),
                core.ResultCanister([FILE, core.RefusalContent("x")], invocation_id="b"),
            ],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [tool_call("a", "f", "{}"), tool_call("b", "f", "{}")],
                },
                {"role": "tool", "content": "seen\n[picture: in the next message]", "tool_call_id": "a"},
                {"role": "tool", "content": "[file: in the next message]", "tool_call_id": "b"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "From the result of a:"},
                        PICTURE_PART,
                        {"type": "text", "text": "From the result of b:"},
                        FILE_PART,
                    ],
                },
            ],
            ("refusal",),
        ),
    ],
    ids=[
        "system and user",
        "several texts are one string",
        "what a model said stays to the letter",
        "nothing said",
        "parts",
        "audio",
        "audio that this wire cannot carry is dropped",
        "audio in a result",
        "what has neither bytes nor a place here is dropped",
        "a file by its identifier",
        "pictures of the supervisor are dropped",
        "a document with its title",
        "a document without title",
        "an assistant's text",
        "an assistant that said nothing",
        "a refusal",
        "reasoning only of the model that is asked",
        "a turn is one message, results in the order of the calls",
        "a call without result",
        "a result without call",
        "an error without content",
        "pictures and files in results",
    ],
)
def test_messages(canisters, messages, dropped):
    request = lowered(*canisters)
    assert request.body["messages"] == messages
    assert request.dropped == dropped


def test_a_whole_body():
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    request = lowered(
        core.UserCanister("u"),
        tools=(core.ToolDeclaration("f", "does", schema), core.ToolDeclaration("g")),
        tool_choice=core.NamedTool("f"),
        parallel=False,
        constraint=core.Constraint("answer", schema),
        controls=core.Controls(0.0, 0.5, 10, 7, ("\n",)),
        extra={"user": "me", "temperature": 1},
    )
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "u"}],
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "does", "parameters": schema}},
            {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}},
        "temperature": 1,
        "top_p": 0.5,
        "max_tokens": 10,
        "seed": 7,
        "stop": ["\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "me",
    }


def test_a_plain_body_has_nothing_that_was_not_asked_for():
    request = lowered(core.UserCanister("u"), stream=False, parallel=True)
    assert request.body == {"model": "m", "messages": [{"role": "user", "content": "u"}]}
    assert (request.names, request.dropped) == ({}, ())


def test_a_choice_without_tools_is_dropped():
    assert lowered(tool_choice="required").dropped == ("tool_choice",)


def test_names_are_safe_everywhere():
    request = lowered(
        invocation("a", "io.read", {}), tools=(core.ToolDeclaration("io.read"),), tool_choice=core.NamedTool("io.read")
    )
    assert request.body["tools"][0]["function"]["name"] == "io_read"
    assert request.body["tool_choice"]["function"]["name"] == "io_read"
    assert request.body["messages"][0]["tool_calls"][0]["function"]["name"] == "io_read"
    assert request.names == {"io_read": "io.read"}


# What the wire carries: one text, or parts with something else among them; a turn that says its reasoning, text
# and refusal before its calls; a result a call, of text; names that are safe; no error, title, timestamp or extra.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.builds(core.TextualContent, WORDS)
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
VALUES = WORDS | st.integers(-9, 9) | st.booleans() | st.none()
OBJECTS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=2), max_size=3)
PICTURES = st.builds(
    core.PictureContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["image/png", "image/jpeg"])
) | (st.builds(core.PictureContent, url=st.just("https://x/y.png"), extra=st.sampled_from([None, {"detail": "high"}])))
FILES = st.builds(core.FileContent, data=st.binary(min_size=1), mime_type=st.just("application/pdf"), name=WORDS) | (
    st.builds(core.FileContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["audio/wav", "audio/mpeg"]))
)
SPOKEN = st.one_of(
    st.just(()),
    st.tuples(TEXTS),
    st.tuples(PICTURES | FILES, TEXTS),
    st.tuples(TEXTS, TEXTS, PICTURES, FILES),
)
OPTIONAL = st.lists(TEXTS, max_size=1)


@st.composite
def turn_canisters(draw, identifiers):
    content = [
        *draw(st.lists(st.builds(core.ReasoningContent, WORDS, origin=st.just("m")), max_size=1)),
        *draw(OPTIONAL),
        *draw(st.lists(st.builds(core.RefusalContent, WORDS), max_size=1)),
    ]
    calls = []
    for arguments in draw(st.lists(OBJECTS, max_size=3)):
        raw = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        calls.append(core.InvocationCanister(f"call_{next(identifiers)}", draw(NAMES), arguments, raw))
    said = [core.AssistantCanister(tuple(content))] if content or not calls else []
    return [
        *said,
        *calls,
        *[core.ResultCanister(tuple(draw(OPTIONAL)), invocation_id=call.identifier) for call in calls],
    ]


@st.composite
def conversations(draw):
    canisters = []
    identifiers = iter(range(1000))
    for _ in range(draw(st.integers(0, 4))):
        match draw(st.integers(0, 2)):
            case 0:
                canisters.append(core.SupervisorCanister(tuple(draw(OPTIONAL))))
            case 1:
                canisters.append(core.UserCanister(draw(SPOKEN)))
            case 2:
                # A turn without calls followed by another would be one message; a user's word keeps them apart.
                canisters += [*draw(turn_canisters(identifiers)), core.UserCanister("then")]
    return tuple(canisters)


SCHEMAS = OBJECTS.map(lambda properties: {"type": "object", "properties": {}, "x": properties})
STRICT = st.lists(WORDS, unique=True, max_size=2).map(
    lambda names: {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names,
        "additionalProperties": False,
    }
)
UNNAMED = st.sampled_from(
    [{}, {"chat": {"cache_control": {"type": "ephemeral"}}}, {"chat": {"x": 1, "function": {"defer_loading": True}}}]
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
    st.none() | st.floats(0, 2),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 99),
    st.none() | st.integers(0, 99),
    st.lists(WORDS, max_size=2).map(tuple),
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
        parallel=draw(st.sampled_from([None, True, False])) if tools else None,
        constraint=draw(st.none() | st.builds(core.Constraint, NAMES, SCHEMAS, st.booleans())),
        controls=draw(CONTROLS),
        stream=draw(st.booleans()),
        extra=draw(st.dictionaries(st.sampled_from(["user", "n", "logit_bias"]), WORDS)),
    )


@given(requests())
def test_what_is_encoded_is_decoded(request):
    low = encode_request(request)
    assert (low.names, low.dropped) == ({}, ())
    assert decode_request(low.body) == request
    assert decode_request(json.loads(json.dumps(low.body))) == request


def test_a_conversation_costs_what_it_holds():
    """20,000 canisters, all calls under one identifier: this finishes because each is looked at once."""
    step = [core.UserCanister("u"), invocation(), invocation(), core.ResultCanister("1", invocation_id="a")]
    assert len(lowered(*step * 5_000).body["messages"]) == 20_000


# A client's request, as the official package types it.
OPENAI = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "d"},
        {"role": "system", "content": [{"type": "text", "text": "s"}], "name": "x"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "auto"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [tool_call("a", "f", '{"x": 1}')]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "t"}, {"type": "refusal", "refusal": "no"}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "does", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "function", "function": {"name": "g"}},
        {"type": "custom", "custom": {"name": "c"}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": True,
    "max_completion_tokens": 10,
    "stop": "\n",
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "response_format": {"type": "json_object"},
    "reasoning_effort": "low",
    "logit_bias": None,
}


def test_a_client_s_request():
    assert decode_request(OPENAI) == core.Request(
        model="m",
        canisters=(
            core.SupervisorCanister("d"),
            core.SupervisorCanister("s", extra={"chat": {"name": "x"}}),
            core.UserCanister(
                [core.TextualContent("see"), core.PictureContent(url="https://x/y.png", extra={"detail": "auto"})]
            ),
            core.InvocationCanister("a", "f", {"x": 1}, '{"x": 1}'),
            core.ResultCanister("1", invocation_id="a"),
            core.AssistantCanister([core.TextualContent("t"), core.RefusalContent("no")]),
        ),
        tools=(
            core.ToolDeclaration("f", "does", {"type": "object"}, strict=True),
            core.ToolDeclaration("g", "", {"type": "object", "properties": {}}),
            core.ToolDeclaration("c", "", core.CUSTOM_SCHEMA, kind="custom"),
        ),
        tool_choice=core.NamedTool("f"),
        parallel=True,
        controls=core.Controls(max_tokens=10, stop=("\n",), effort="low"),
        stream=True,
        extra={"response_format": {"type": "json_object"}},
    )


@pytest.fixture(scope="module")
def openai_body():
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from pydantic import TypeAdapter

    return TypeAdapter(CompletionCreateParamsStreaming)


def test_the_request_above_is_openai_s(openai_body):
    openai_body.validate_python(OPENAI)


def test_what_we_send_is_openai_s(openai_body):
    request = lowered(
        core.SupervisorCanister("s"),
        core.UserCanister([core.TextualContent("see"), PICTURE, FILE]),
        core.AssistantCanister("t"),
        invocation("a", "f", {"x": 1}),
        core.ResultCanister([core.TextualContent("seen"), PICTURE], invocation_id="a"),
        tools=(core.ToolDeclaration("f", "does", {"type": "object"}),),
        tool_choice="required",
        constraint=core.Constraint("answer", {"type": "object"}),
    )
    openai_body.validate_python(request.body)


def message(**fields):
    return {"model": "m", "messages": [{"role": "user", "content": "u"}, fields]}


@table(
    ("body", "path"),
    [
        ({}, ""),
        ([], ""),
        ({"model": "m"}, ""),
        ({"model": 3, "messages": []}, "model"),
        ({"model": "m", "messages": "u"}, "messages"),
        ({"model": "m", "messages": [], "temperature": "hot"}, "temperature"),
        ({"model": "m", "messages": [], "tool_choice": "any"}, "tool_choice"),
        ({"model": "m", "messages": [], "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"model": "m", "messages": [], "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (message(role="wizard", content="x"), "messages[1].role"),
        (message(role="user", content=3), "messages[1].content"),
        (message(role="user", content=[{"type": "input_audio"}]), "messages[1].content[0]"),
        (message(role="user", content=[{"type": "video"}]), "messages[1].content[0].type"),
        (
            message(role="user", content=[{"type": "input_audio", "input_audio": {"data": "*", "format": "wav"}}]),
            "messages[1].content[0].input_audio.data",
        ),
        (
            message(role="user", content=[{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]),
            "messages[1].content[0].input_audio.data",
        ),
        (
            message(role="user", content=[{"type": "input_audio", "input_audio": {"data": "d2F2", "format": "../x"}}]),
            "messages[1].content[0].input_audio.format",
        ),
        (
            message(role="user", content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,*"}}]),
            "messages[1].content[0].image_url.url",
        ),
        (
            message(role="user", content=[{"type": "image_url", "image_url": "data:text/plain,x"}]),
            "messages[1].content[0].image_url.url",
        ),
        (message(role="user", content=[{"type": "file", "file": {}}]), "messages[1].content[0].file"),
        (message(role="tool", content="x"), "messages[1]"),
        (message(role="assistant", tool_calls=[{"id": "a"}]), "messages[1].tool_calls[0]"),
        (message(role="assistant", function_call={"name": "f", "arguments": ""}), "messages[1].function_call"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_request_is_refused_with_its_place(body, path):
    with pytest.raises(CallerError) as caught:
        decode_request(body)
    assert caught.value.path == path


@table(
    ("arguments", "expected", "raw"),
    [
        ('{"x": 1}', {"x": 1}, '{"x": 1}'),
        ("", {}, ""),
        (None, {}, "{}"),
        ({"x": 1}, {"x": 1}, '{"x":1}'),
        ("[1]", None, "[1]"),
        ("{", None, "{"),
    ],
)
def test_arguments_in_the_history(arguments, expected, raw):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    canister = decode_request(message(role="assistant", tool_calls=[call])).canisters[1]
    assert (canister.arguments, canister.raw) == (expected, raw)


@table(
    ("mime_type", "format_"),
    [("audio/x-wav", "wav"), ("audio/wave", "wav"), ("audio/vnd.wave; codec=1", "wav"), ("AUDIO/MP3", "mp3")],
)
def test_a_type_of_audio_may_have_several_names(mime_type, format_):
    (part,) = lowered(core.UserCanister(core.FileContent(b"a", mime_type))).body["messages"][0]["content"]
    assert part["input_audio"]["format"] == format_


@table(
    ("audio", "content"),
    [
        ({"data": "d2F2", "format": "wav"}, WAV),
        ({"data": "bXAz", "format": "mp3"}, MP3),
        ({"data": "data:audio/wav;base64,d2F2", "format": "wav"}, WAV),
        ({"data": "b2dn", "format": "ogg"}, core.FileContent(b"ogg", "audio/ogg", extra={"format": "ogg"})),
    ],
)
def test_a_client_s_audio_is_a_file(audio, content):
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}]}
    request = decode_request(body)
    assert request.canisters == (core.UserCanister(content),)
    # What a client sends in a format that OpenAI has not is for a backend that has it.
    (part,) = encode_request(request).body["messages"][0]["content"]
    assert part["input_audio"] == {**audio, "data": audio["data"].removeprefix("data:audio/wav;base64,")}
