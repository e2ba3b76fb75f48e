"""A conversation is sent as the model takes it: no text is lost, none changes its place, the last word is not the model's."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tables import table

from callboard import core
from callboard.profiles import Profile, resolve
from callboard.providers.adapt_request import CONTINUE, NOT_RECORDED, adapt_history, adapt_request
from callboard.wires import WIRES

PICTURE = core.PictureContent(b"png")


def chat_messages(canisters, **facts):
    """The messages of a chat body."""
    request, _ = adapt_history(core.Request("m", tuple(canisters)), Profile(**facts))
    return WIRES["chat"].encode_request(request).body["messages"]


def text(canister):
    return "" if isinstance(canister, core.InvocationCanister) else canister.text


@st.composite
def conversations(draw):
    """Each text is of its own, so that its place can be found."""
    canisters = []
    for place in range(draw(st.integers(1, 8))):
        content = [f"text {place}.", *draw(st.sampled_from([[], [PICTURE], [PICTURE, f"more {place}."]]))]
        match draw(st.integers(0, 4)):
            case 0:
                canisters.append(core.SupervisorCanister(f"text {place}."))
            case 1:
                canisters.append(core.UserCanister(content))
            case 2:
                thought = draw(st.sampled_from([[], [core.ReasoningContent(f"thought {place}.", origin="m")]]))
                canisters.append(core.AssistantCanister([*thought, f"text {place}."]))
            case 3:
                canisters.append(core.DocumentCanister(f"text {place}.", title="d"))
            case _:
                thought = draw(st.sampled_from([[], [core.ReasoningContent(f"thought {place}.", origin="other")]]))
                canisters += [core.AssistantCanister(thought)] if thought else []
                canisters.append(core.InvocationCanister(f"c{place}", "f", {}, "{}"))
                canisters.append(core.ResultCanister(f"text {place}.", invocation_id=f"c{place}"))
    return canisters


FACTS = st.fixed_dictionaries(
    {
        "merge_system_messages": st.booleans(),
        "supports_system_role": st.booleans(),
        "requires_alternating_roles": st.booleans(),
        "requires_reasoning_history": st.booleans(),
        "reasoning_history": st.sampled_from(["never", "turn", "tools", "all"]),
        "wire": st.sampled_from(["chat", "messages"]),
    }
)


@given(conversations(), FACTS)
def test_no_text_is_lost_and_none_changes_its_place(canisters, facts):
    request, dropped = adapt_history(core.Request("m", tuple(canisters)), Profile(**facts))
    whole = "\n".join(map(text, request.canisters))
    places = [whole.index(each) for canister in canisters for each in text(canister).splitlines()]
    assert (places, dropped) == (sorted(places), ())
    assert not isinstance(request.canisters[-1], core.AssistantCanister)
    assert adapt_history(request, Profile(**facts))[0] is request


@given(conversations(), st.booleans())
def test_where_roles_alternate_they_do(canisters, supports_system_role):
    messages = chat_messages(
        canisters,
        merge_system_messages=True,
        requires_alternating_roles=True,
        supports_system_role=supports_system_role,
    )
    every = [each["role"] for each in messages]
    assert ("tool", "user") not in pairwise(every)
    roles = [each["role"] for each in messages if each["role"] != "tool"]
    turns = roles[1:] if roles[0] == "system" else roles
    assert all(role in {"user", "assistant"} for role in turns)
    assert not any(pair == ("user", "user") for pair in pairwise(turns))
    assert turns[:1] in ([], ["user"])


@given(conversations())
def test_what_a_model_takes_as_it_is_stays_the_same_object(canisters):
    request = core.Request("m", (*canisters, core.UserCanister("then")))
    assert adapt_history(request, Profile())[0] is request


@given(conversations())
def test_reasoning_that_is_required_stands_on_every_turn_with_calls(canisters):
    for message in chat_messages(canisters, requires_reasoning_history=True):
        assert message.get("reasoning_content") or not message.get("tool_calls")


def test_a_required_thought_is_the_other_model_s_own_words_where_there_are_any():
    call = core.InvocationCanister("c", "f", {}, "{}")
    for thought, expected in [
        (core.ReasoningContent("theirs", "sealed", "other"), "theirs"),
        (core.ReasoningContent("", "sealed", "other"), NOT_RECORDED),
    ]:
        messages = chat_messages(
            [core.UserCanister("u"), core.AssistantCanister(thought), call], requires_reasoning_history=True
        )
        assert messages[1]["reasoning_content"] == expected


def test_pictures_stay_between_the_texts_of_merged_messages():
    canisters = [core.UserCanister(["a", PICTURE]), core.UserCanister("b"), core.DocumentCanister("c", title="t")]
    request, _ = adapt_history(core.Request("m", tuple(canisters)), Profile(requires_alternating_roles=True))
    (only,) = request.canisters
    assert [part.text if isinstance(part, core.TextualContent) else part for part in only.content][:2] == ["a", PICTURE]
    assert only.content[2].text.startswith("b\n\n")


@table(
    ("wire", "fact", "asked", "way", "dropped"),
    [
        ("messages", "", "last", "last", ()),
        ("messages", "none", "last", "", ("prefill",)),
        ("messages", "last", "prefix", "last", ()),
        ("chat", "", "last", "", ("prefill",)),
        ("chat", "", "partial", "partial", ()),
        ("chat", "continue", "last", "continue", ()),
        ("chat", "none", "prefix", "", ("prefill",)),
        ("responses", "", "last", "", ("prefill",)),
        ("gemini", "", "last", "", ("prefill",)),
    ],
)
def test_how_a_prefill_is_asked_for(wire, fact, asked, way, dropped):
    canisters = (core.UserCanister("u"), core.AssistantCanister("{"))
    request, lost = adapt_history(core.Request("m", canisters, prefill=asked), Profile(wire=wire, prefill=fact))
    assert (request.prefill, lost) == (way, dropped)
    assert request.canisters == (canisters if way else (*canisters, core.UserCanister(CONTINUE)))


def test_thinking_that_cannot_be_asked_for_is_told():
    effort = {"efforts": ("",)}
    request = core.Request("m", (core.UserCanister("u"),))
    asked = replace(request, controls=core.Controls(effort="high"))
    assert adapt_request(asked, Profile(**effort))[1] == ("effort high",)
    assert adapt_request(asked, Profile(efforts=("none",)))[1] == ("effort high",)
    assert adapt_request(asked, Profile(efforts=("none", "low")))[1] == ()


@table("fact", ["merge_system_messages", "requires_alternating_roles", "supports_system_role", "reasoning_history", "requires_reasoning_history", "prefill", "dummy_signature"])  # fmt: skip
def test_what_a_family_takes_otherwise_says_where_it_is_known_from(fact):
    for family in FAMILIES:
        resolution = resolve(family)
        if (
            resolution.sources[fact].startswith("family") and fact != "merge_system_messages"
        ):  # `requires_alternating_roles` says it for both
            assert len(resolution.evidence[fact]) > 10, family


FAMILIES = [
    "gpt-oss-20b", "claude-opus-4-6", "claude-sonnet-4-5", "gemini-3-pro", "mistral-small", "mistral-7b", "qwen3-8b",
    "qwen3.6-27b", "deepseek-chat", "deepseek-r1", "deepseek-v3.2", "deepseek-v4", "deepseek-v4.1", "kimi-k2", "kimi-k3",
    "glm-4.7", "glm-4.5", "gemma-4", "gemma-3", "gemma-2", "minimax-m2", "minimax-m1", "mimo", "functiongemma",
]  # fmt: skip


def test_many_messages_of_the_user_are_put_together_once(monkeypatch):
    sizes = []
    joined = import_module("callboard.providers.adapt_request")._text

    def counted(texts):
        sizes.append(sum(map(len, texts)))
        return joined(texts)

    monkeypatch.setattr("callboard.providers.adapt_request._text", counted)
    chat_messages([core.UserCanister("u" * 98)] * 1000, requires_alternating_roles=True)
    assert sum(sizes) < 200_000
