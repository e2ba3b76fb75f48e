"""What every wire can say goes from the core over one wire to the core and over another back, unchanged."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard import core

NAMES = ["chat", "gemini", "messages", "responses"]
WIRES = [name for name in NAMES if find_spec("callboard.wires." + name) is not None]

# The common subset: instructions first and in one text; a user's text with pictures behind it; turns of one text
# and calls, each with its result in one text; a bound on the reply, for Messages asks for one; no more controls
# than all have. A turn without calls is followed by the user, and the user by a turn: neighbours are one.
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)
TEXTS = st.builds(core.TextualContent, WORDS)
PICTURES = st.builds(
    core.PictureContent, data=st.binary(min_size=1), mime_type=st.sampled_from(["image/png", "image/jpeg"])
)
IDENTIFIERS = st.from_regex(r"[a-z][a-zA-Z0-9_-]{0,30}", fullmatch=True)
VALUES = WORDS | st.integers(-9, 9) | st.booleans() | st.none()
OBJECTS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=2), max_size=3)
SCHEMAS = st.dictionaries(
    IDENTIFIERS, st.sampled_from([{"type": "string"}, {"type": "integer"}]), min_size=1, max_size=2
).map(lambda properties: {"type": "object", "properties": properties})
TOOLS = st.lists(st.builds(core.ToolDeclaration, IDENTIFIERS, WORDS, SCHEMAS), unique_by=lambda t: t.name, max_size=3)
CONTROLS = st.builds(
    core.Controls, st.none() | st.floats(0, 1), st.none() | st.floats(0, 1), st.integers(1, 99).map(lambda n: n * 1000)
)


@st.composite
def conversations(draw):
    canisters = [core.SupervisorCanister((text,)) for text in draw(st.lists(TEXTS, max_size=1))]
    count = 0
    for _ in range(draw(st.integers(1, 3))):
        canisters.append(core.UserCanister((draw(TEXTS), *draw(st.lists(PICTURES, max_size=2)))))
        for _ in range(draw(st.integers(0, 2))):
            results = []
            canisters += [core.AssistantCanister((text,)) for text in draw(st.lists(TEXTS, max_size=1))]
            for _ in range(draw(st.integers(1, 2))):
                identifier, arguments = f"call_{count}", draw(OBJECTS)
                count += 1
                raw = msgspec.json.encode(arguments).decode()
                canisters.append(core.InvocationCanister(identifier, draw(IDENTIFIERS), arguments, raw))
                results.append(core.ResultCanister((draw(TEXTS),), invocation_id=identifier))
            canisters += results
        if isinstance(canisters[-1], core.UserCanister) or draw(st.booleans()):
            canisters.append(core.AssistantCanister((draw(TEXTS),)))
    return (*canisters, core.UserCanister((draw(TEXTS),)))


@st.composite
def requests(draw):
    tools = tuple(draw(TOOLS))
    choices = [core.NamedTool(tools[0].name), "none", "required"] if tools else []
    return core.Request(
        model="m",
        canisters=draw(conversations()),
        tools=tools,
        tool_choice=draw(st.sampled_from(["auto", *choices])),
        controls=draw(CONTROLS),
        stream=draw(st.booleans()),
    )


TOLD = ("f", "does", {"type": "object", "properties": {}})


def over(name, request):
    """The request as the other side of the wire reads it; Gemini's URL says the model and whether it streams."""
    wire = import_module("callboard.wires." + name)
    lowered = wire.encode_request(request)
    assert (lowered.names, lowered.dropped) == ({}, ())
    body = msgspec.json.decode(msgspec.json.encode(lowered.body))
    if name == "gemini":
        return wire.decode_request(body, model=request.model, stream=request.stream)
    return wire.decode_request(body)


UNNAMED = {"later": True, "x": [1]}


@table(("there", "back"), [*product(WIRES, WIRES)])
def test_what_only_one_wire_says_of_a_tool_is_sent_on_that_one(there, back):
    tool = core.ToolDeclaration(*TOLD, extra={there: UNNAMED})
    request = core.Request("m", (core.UserCanister("u"),), tools=(tool,), controls=core.Controls(max_tokens=1000))
    assert over(there, request) == request
    crossed = request if there == back else msgspec.structs.replace(request, tools=(core.ToolDeclaration(*TOLD),))
    assert over(back, over(there, request)) == crossed


def past_arguments(wire, body):
    """Those of every call, as a server reads them for its template."""
    match wire:
        case "chat":
            calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
            return [msgspec.json.decode(call["function"]["arguments"]) for call in calls]
        case "responses":
            calls = [item for item in body["input"] if item["type"] == "function_call"]
            return [msgspec.json.decode(call["arguments"]) for call in calls]
        case "messages":
            blocks = [block for message in body["messages"] for block in message["content"]]
            return [block["input"] for block in blocks if block["type"] == "tool_use"]
    parts = [part for content in body["contents"] for part in content["parts"]]
    return [part["functionCall"]["args"] for part in parts if "functionCall" in part]


RAW = st.text(max_size=12) | OBJECTS.map(lambda value: msgspec.json.encode(value).decode()[:-1]) | st.just("[1]")


@pytest.mark.parametrize("name", WIRES)
@given(
    written=st.lists(st.tuples(OBJECTS | st.none(), RAW.filter(lambda raw: raw.isprintable())), min_size=1, max_size=4)
)
def test_past_arguments_are_objects_whatever_the_model_wrote(name, written):
    calls = [core.InvocationCanister(f"c{place}", "f", *each) for place, each in enumerate(written)]
    lowered = import_module("callboard.wires." + name).encode_request(
        core.Request("m", (core.UserCanister("u"), *calls))
    )
    body = msgspec.json.decode(msgspec.json.encode(lowered.body))
    assert past_arguments(name, body) == [
        ({"raw": raw} if raw.strip() else {}) if arguments is None else arguments for arguments, raw in written
    ]


@pytest.mark.parametrize(("there", "back"), [pair for pair in product(WIRES, WIRES) if pair[0] != pair[1]])
@settings(max_examples=settings.default.max_examples // 2)  # of each pair
@given(request=requests())
def test_a_request_goes_over_two_wires_unchanged(there, back, request):
    once = over(there, request)
    assert once == request
    assert over(back, once) == request
