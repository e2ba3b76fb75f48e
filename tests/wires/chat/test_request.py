"""Requests, both ways."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from callboard import core
from callboard.wires.chat import decode_request, encode_request

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
