"""What was encoded once is kept on every wire, and never shows in what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core import (
    AssistantCanister,
    DocumentCanister,
    InvocationCanister,
    NamedTool,
    PictureContent,
    ReasoningContent,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    ToolDeclaration,
    ToolError,
    UserCanister,
)
from callboard.wires import chat, gemini, messages, responses
from callboard.wires.common.request_encoder import EncodedRequest

CACHED = {"cache_control": {"type": "ephemeral"}}


def broken(request):
    """Anthropic's body with breakpoints, put into the objects."""
    lowered = messages.encode_request(request)
    body = msgspec.json.decode(msgspec.json.encode(lowered.body))
    tools, system, said = body.get("tools", []), body.get("system", []), body["messages"]
    last = [block for block in said[-1]["content"] if "thinking" not in block["type"]] if said else []
    if b"cache_control" not in msgspec.json.encode(body):
        for blocks in (tools, system, last):
            if blocks:
                blocks[-1] |= CACHED
    return EncodedRequest(body, lowered.names, lowered.dropped)


budgets = partial(gemini.encode_request, budgets=True)
# By a name, what encodes a request anew, and what makes an encoder that keeps.
WIRES = {
    "chat": (chat.encode_request, chat.RequestEncoder),
    "responses": (responses.encode_request, responses.RequestEncoder),
    "messages": (messages.encode_request, messages.RequestEncoder),
    "messages with breakpoints": (broken, partial(messages.RequestEncoder, breakpoints=True)),
    "gemini": (gemini.encode_request, gemini.RequestEncoder),
    "gemini for older models": (budgets, partial(gemini.RequestEncoder, budgets=True)),
}
each_wire = pytest.mark.parametrize("wire", WIRES)

U = UserCanister("go")
identifiers = st.sampled_from(["a", "b", "a b", "a_b"])
names = st.sampled_from(["add", "a.b", "a_b", "naïve", "ns__x"])
texts = st.sampled_from(["x", "", " ", "add\nns__x", '{"a":1}'])
thoughts = st.builds(
    ReasoningContent, st.sampled_from(["hm", ""]), st.sampled_from(["s", ">s", ""]), st.sampled_from(["m1", ""])
)
extras = st.sampled_from([None, None, None, CACHED, {"messages": {"type": "image", "ttl": 1}}])
contents = st.lists(
    st.builds(TextualContent, texts, extra=extras) | thoughts | st.just(PictureContent(b"\x89PNG")), max_size=2
).map(tuple)
roles = st.sampled_from([None, {"role": "system"}])
errors = st.sampled_from([None, ToolError("execution", "no")])
canisters = st.lists(
    st.one_of(
        st.builds(UserCanister, contents),
        st.builds(SupervisorCanister, contents | texts, extra=roles),
        st.builds(DocumentCanister, contents, title=st.sampled_from(["T", ""])),
        st.builds(AssistantCanister, contents),
        st.builds(
            InvocationCanister, identifiers, names, st.sampled_from([{}, {"a": 1}, {"input": "t"}, None]), st.just("[")
        ),
        st.builds(ResultCanister, contents, invocation_id=identifiers, error=errors),
    ),
    max_size=12,
)
kinds = st.sampled_from(["function", "function", "custom", "search"])


@st.composite
def declared(draw):
    chosen = draw(st.lists(names, max_size=2, unique=True))
    return tuple(ToolDeclaration(name, kind=draw(kinds), namespace="ns" * name.startswith("ns_")) for name in chosen)


choices = st.sampled_from(["auto", "none", "required", NamedTool("a.b")])


def encoded_parts(lowered):
    return msgspec.json.encode(lowered.body), lowered.names, lowered.dropped


@each_wire
@settings(max_examples=60)
@given(st.data(), canisters, st.sampled_from([0, 4000, 10**6]))
def test_what_is_sent_is_what_a_fresh_encoding_sends(wire, data, conversation, most):
    """Conversations that grow, are cut, branch off and change model and tools, over one encoder."""
    anew, keeping = WIRES[wire]
    encoder = keeping(most)
    branches = [conversation]
    for _ in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.sampled_from(branches))
        grown = [*base[: data.draw(st.integers(0, len(base)))], *data.draw(canisters)]
        branches.append(grown)
        model = data.draw(st.sampled_from(["m1", "m1", "m2"]))
        request = Request(model, tuple(grown), data.draw(declared()), data.draw(choices))
        assert encoded_parts(encoder.encode(request)) == encoded_parts(anew(request))


class Read(Mapping):
    """Arguments that count how often they are read."""

    def __init__(self):
        self.times = 0

    def __getitem__(self, key):
        raise KeyError(key)

    def __iter__(self):
        self.times += 1
        return iter(())

    def __len__(self):
        return 1


def rounds(count):
    for number in range(count):
        call = InvocationCanister(f"c{number}", "add")
        msgspec.structs.force_setattr(call, "arguments", Read())  # a canister would copy them
        yield call
        yield ResultCanister(str(number), invocation_id=f"c{number}")


def read(conversation):
    """How often each call of a conversation was encoded."""
    return [each.arguments.times for each in conversation if isinstance(each, InvocationCanister)]


def ask(encoder, conversation, end=None, tools=()):
    encoder.encode(Request("m", tuple(conversation[:end]), tools))


@each_wire
def test_a_canister_is_encoded_once(wire):
    encoder, conversation = WIRES[wire][1](), [U, *rounds(20)]
    for end in range(1, len(conversation) + 1, 2):
        ask(encoder, conversation, end)
    assert read(conversation) == [1] * 20


def test_conversations_take_turns():
    encoder, one, other = chat.RequestEncoder(), [U, *rounds(5)], [U, *rounds(5)]
    for end in range(3, len(one) + 1, 2):
        ask(encoder, one, end)
        ask(encoder, other, end)
    assert read(one + other) == [1] * 10


def test_what_waits_for_its_result_is_encoded_again():
    encoder, conversation = chat.RequestEncoder(), [U, *rounds(1)]
    ask(encoder, conversation, 2)
    ask(encoder, conversation)
    assert read(conversation) == [2]


def test_the_oldest_is_forgotten():
    encoder, old, new = chat.RequestEncoder(max_cached=6000), [U, *rounds(1)], [U, *rounds(1)]
    for conversation in (old, new, new, old):
        ask(encoder, conversation)
    assert (read(old), read(new)) == ([2], [1])


def test_a_conversation_that_is_too_large_is_kept_while_it_is_the_last():
    encoder, conversation = chat.RequestEncoder(max_cached=0), [U, *rounds(3)]
    for _ in range(3):
        ask(encoder, conversation)
    assert read(conversation) == [1, 1, 1]


def test_on_responses_a_conversation_with_a_tool_search_is_encoded_anew():
    """What a search found is declared behind it, and the declarations are the request's."""
    encoder, conversation = responses.RequestEncoder(), [U, *rounds(3)]
    for _ in range(3):
        ask(encoder, conversation, tools=(ToolDeclaration("add", kind="search"),))
    assert read(conversation) == [3, 3, 3]


@each_wire
def test_arguments_that_are_equal_but_other_json_are_not_mixed_up(wire):
    encoder = WIRES[wire][1]()
    bodies = {
        encoded_parts(
            encoder.encode(
                Request("m", (InvocationCanister("a", "add", {"x": x}), ResultCanister("", invocation_id="a")))
            )
        )[0]
        for x in (1, True, 1.0)
    }
    assert len(bodies) == 3
