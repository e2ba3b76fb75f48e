"""What was encoded once is kept, and never shows in what is sent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from hypothesis import given
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
    UserCanister,
)
from callboard.wires.chat import RequestEncoder, encode_request

U = UserCanister("go")
PICTURE = PictureContent(b"\x89PNG")
identifiers = st.sampled_from("abc")
names = st.sampled_from(["add", "a.b", "a_b", "naïve"])
contents = st.lists(
    st.sampled_from([TextualContent("x"), PICTURE, ReasoningContent("hm", origin="m1"), ReasoningContent("hm")]),
    max_size=2,
).map(tuple)
canisters = st.lists(
    st.one_of(
        st.builds(UserCanister, contents),
        st.builds(SupervisorCanister, contents),
        st.builds(DocumentCanister, contents, title=st.just("T")),
        st.builds(AssistantCanister, contents),
        st.builds(InvocationCanister, identifiers, names, st.sampled_from([{}, {"a": 1}, {"a": True}, None])),
        st.builds(ResultCanister, contents, invocation_id=identifiers),
    ),
    max_size=12,
)
tools = st.lists(names, max_size=2, unique=True).map(lambda found: tuple(ToolDeclaration(name) for name in found))
choices = st.sampled_from(["auto", "none", "required", NamedTool("a.b")])


def fresh(request):
    lowered = encode_request(request)
    return msgspec.json.encode(lowered.body), lowered.names, lowered.dropped


def encoded(encoder, request):
    lowered = encoder.encode(request)
    return msgspec.json.encode(lowered.body), lowered.names, lowered.dropped


@given(st.data(), canisters, st.sampled_from([0, 4000, 10**6]))
def test_what_is_sent_is_what_a_fresh_encoding_sends(data, conversation, most):
    """Conversations that grow, are cut, branch off and change model and tools, over one encoder."""
    encoder = RequestEncoder(most)
    branches = [conversation]
    for _ in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.sampled_from(branches))
        grown = [*base[: data.draw(st.integers(0, len(base)))], *data.draw(canisters)]
        branches.append(grown)
        request = Request(data.draw(st.sampled_from(["m1", "m2"])), tuple(grown), data.draw(tools), data.draw(choices))
        assert encoded(encoder, request) == fresh(request)


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
        return 0


def rounds(count):
    for number in range(count):
        yield InvocationCanister(f"c{number}", "add", Read())
        yield ResultCanister(str(number), invocation_id=f"c{number}")


def read(conversation):
    """How often each call of a conversation was encoded."""
    return [each.arguments.times for each in conversation if isinstance(each, InvocationCanister)]


def ask(encoder, conversation, end=None):
    encoder.encode(Request("m", tuple(conversation[:end])))


def test_a_canister_is_encoded_once():
    encoder, conversation = RequestEncoder(), [U, *rounds(20)]
    for end in range(1, len(conversation) + 1, 2):
        ask(encoder, conversation, end)
    assert read(conversation) == [1] * 20


def test_conversations_take_turns():
    encoder, one, other = RequestEncoder(), [U, *rounds(5)], [U, *rounds(5)]
    for end in range(3, len(one) + 1, 2):
        ask(encoder, one, end)
        ask(encoder, other, end)
    assert read(one + other) == [1] * 10


def test_what_waits_for_its_result_is_encoded_again():
    encoder, conversation = RequestEncoder(), [U, *rounds(1)]
    ask(encoder, conversation, 2)
    ask(encoder, conversation)
    assert read(conversation) == [2]


def test_the_oldest_is_forgotten():
    encoder, old, new = RequestEncoder(most=6000), [U, *rounds(1)], [U, *rounds(1)]
    for conversation in (old, new, new, old):
        ask(encoder, conversation)
    assert (read(old), read(new)) == ([2], [1])


def test_a_conversation_that_is_too_large_is_kept_while_it_is_the_last():
    encoder, conversation = RequestEncoder(most=0), [U, *rounds(3)]
    for _ in range(3):
        ask(encoder, conversation)
    assert read(conversation) == [1, 1, 1]


def test_arguments_that_are_equal_but_other_json_are_not_mixed_up():
    encoder = RequestEncoder()
    results = [
        encoded(
            encoder, Request("m", (InvocationCanister("a", "add", {"x": x}), ResultCanister("", invocation_id="a")))
        )
        for x in (1, True, 1.0)
    ]
    assert len({body for body, _, _ in results}) == 3
