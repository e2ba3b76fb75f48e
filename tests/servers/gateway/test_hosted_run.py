"""What a reply shows of calls that ran here, and how it is found again."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    PictureContent,
    ReasoningContent,
    ResultCanister,
    TextualContent,
    UserCanister,
    error_result,
)
from callboard.servers.gateway.hosted_run import format_call, format_result, restore_calls, seal

ADD = InvocationCanister("a", "add", {"a": 1, "b": 2}, '{"a":1,"b":2}')
THREE = ResultCanister("3", invocation_id="a")
LOOK = InvocationCanister("b", "look", {}, "{}")
PICTURE = ResultCanister((TextualContent("here"), PictureContent(b"\x89PNG")), invocation_id="b")
THEIRS = InvocationCanister("c", "shell", {"command": "ls"}, '{"command":"ls"}')
LISTED = ResultCanister("README", invocation_id="c")
ASKED = UserCanister("1 + 2?")

jsons = st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5)
calls = st.lists(
    st.tuples(st.text(min_size=1), st.none() | st.dictionaries(st.text(), jsons), st.text(), st.text()), min_size=1
)


def format_trace(invocations, results):
    return "".join(
        [format_call(call) + format_result(result) for call, result in zip(invocations, results, strict=True)]
    )


def reasoning(invocations, results, *, before="", joined=False):
    return ReasoningContent(before + format_trace(invocations, results), seal(invocations, results, joined=joined), "m")


@table(
    ("call", "result", "line"),
    [
        (ADD, THREE, 'add({"a":1,"b":2}) -> 3\n'),
        (LOOK, PICTURE, "look({}) -> here[picture]\n"),
        (InvocationCanister("a", "add", None, "{1"), error_result("a", "validation", "no"), "add({1) -> Error: no\n"),
    ],
)
def test_what_a_client_reads(call, result, line):
    assert format_trace([call], [result]) == line


@table("before", ["", "I add.\n"])
def test_calls_stand_where_their_reasoning_stood(before):
    said = AssistantCanister((reasoning([ADD], [THREE], before=before), TextualContent("It is 3.")))
    thought = [AssistantCanister(ReasoningContent("I add.", origin="m"))] if before else []
    assert restore_calls([ASKED, said, ASKED]) == [ASKED, *thought, ADD, THREE, AssistantCanister("It is 3."), ASKED]


def test_two_rounds_in_one_message():
    said = AssistantCanister((reasoning([ADD], [THREE]), TextualContent("Look."), reasoning([LOOK], [PICTURE])))
    assert restore_calls([said]) == [ADD, THREE, AssistantCanister("Look."), LOOK, PICTURE]


def test_calls_of_one_breath_stay_together():
    """Providers take results only behind all calls of their turn."""
    said = AssistantCanister(reasoning([ADD, LOOK], [THREE, PICTURE], joined=True))
    assert restore_calls([said, THEIRS, LISTED]) == [ADD, LOOK, THEIRS, THREE, PICTURE, LISTED]
    assert restore_calls([said]) == [ADD, LOOK, THREE, PICTURE]


def test_calls_of_the_next_breath_come_after():
    said = AssistantCanister(reasoning([ADD], [THREE]))
    assert restore_calls([said, THEIRS, LISTED]) == [ADD, THREE, THEIRS, LISTED]


@given(calls)
def test_what_was_sealed_comes_back(drawn):
    invocations = [InvocationCanister(f"i{at}", name, args, raw) for at, (name, args, raw, _) in enumerate(drawn)]
    results = [ResultCanister(said, invocation_id=f"i{at}") for at, (*_, said) in enumerate(drawn)]
    assert restore_calls([AssistantCanister(reasoning(invocations, results))]) == [*invocations, *results]


@table(
    "opaque",
    [
        "",
        "EsgJCkYIC",
        "callboard.hosted.1.",
        "callboard.hosted.1.%%%",
        "callboard.hosted.1.é",
        "callboard.hosted.1." + base64.urlsafe_b64encode(b"{}").decode(),
        "callboard.hosted.1." + base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        "callboard.hosted.1." + base64.urlsafe_b64encode(b'{"calls":[{"role":"supervisor"}],"results":[]}').decode(),
    ],
)
def test_what_is_no_seal_stays_as_it_is(opaque):
    said = [AssistantCanister((ReasoningContent("a thought", opaque, "m"), TextualContent("hello")))]
    assert restore_calls(said) == said
