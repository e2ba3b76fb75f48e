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

PICTURE_PART = {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}


def lowered(*canisters, **fields):
    return encode_request(core.Request("m", canisters, **fields))


def decoded(body, **fields):
    return decode_request(body, **{"model": "m", "stream": True, **fields})


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def text(said, **fields):
    return {"text": said, **fields}


def call(identifier="a", name="f", args=None, **fields):
    return {"functionCall": {"id": identifier, "name": name, "args": args or {}}, **fields}


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


def test_a_client_s_conversation_costs_what_it_holds():
    """20,000 parts of each kind in one content: this finishes because each is looked at once."""
    many = 20_000
    said = [text("0123456789")] * many + [text("x", thought=True)] * many + [call()] * many
    contents = [model(*said), user(*[{"functionResponse": {"name": "f"}}] * many, *[PICTURE_PART] * many)]
    canisters = decoded({"contents": contents}).canisters
    assert len(canisters) == 1 + 2 * many
    assert len(canisters[-1].content) == many


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


def test_a_request_without_model_is_refused():
    with pytest.raises(CallerError, match="no model is named"):
        decode_request({"contents": []})
    assert decode_request({"contents": [], "model": "models/m"}).model == "m"


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
