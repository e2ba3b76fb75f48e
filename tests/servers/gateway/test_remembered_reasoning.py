"""What a model thought before its calls comes back to it, through clients that do not send it back, and to no other owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    InvocationEnded,
    ReasoningContent,
    ReasoningPiece,
    Request,
    ResultCanister,
    TextPiece,
    UserCanister,
)
from callboard.servers.gateway import remembered_reasoning as module
from callboard.servers.gateway.remembered_reasoning import ReasoningMemory

ASKED = Request("m", (UserCanister("u"),))
CALL = InvocationCanister("c", "f", {"x": 1, "y": 2}, '{"x":1,"y":2}')
SAME = InvocationCanister("c", "f", {"y": 2, "x": 1}, '{"y": 2, "x": 1}')
RESULT = ResultCanister("r", invocation_id="c")


def remember(*events, thoughts=None, owner="o", unsigned=False, request=ASKED):
    thoughts = ReasoningMemory() if thoughts is None else thoughts
    thoughts.recorder(owner, request, unsigned=unsigned).feed(
        [*events, InvocationEnded(0, "c", "f", CALL.arguments, CALL.raw)]
    )
    return thoughts


def restored(thoughts, *said, owner="o", words="u"):
    request = Request("m", (UserCanister(words), *said, RESULT))
    return list(thoughts.restore(owner, request).canisters[1:-1])


SIGNED = ReasoningPiece("hm", "sig", "m")
OWN = AssistantCanister(ReasoningContent("hm", "sig", "m"))


def test_a_signed_thought_stands_before_its_call_again():
    assert restored(remember(SIGNED), CALL) == [OWN, CALL]
    assert restored(remember(SIGNED), SAME) == [OWN, SAME]


def test_pieces_are_one_thought_and_what_was_thought_before_the_text_stands_before_it():
    pieces = [ReasoningPiece("h", origin="m"), ReasoningPiece("m", origin="m"), ReasoningPiece("", "sig", "m")]
    text = AssistantCanister("Well.")
    near = AssistantCanister(ReasoningContent("", ">near", "m"))
    thoughts = remember(*pieces, TextPiece("Well."), ReasoningPiece("", ">near", "m"))
    assert restored(thoughts, text, CALL) == [OWN, text, near, CALL]


def test_what_the_client_sent_back_itself_stays_as_it_is():
    own = AssistantCanister(ReasoningContent("hm", "other", "m"))
    assert restored(remember(SIGNED), own, CALL) == [own, CALL]


def test_a_thought_whose_signature_the_client_left_out_is_replaced():
    told = AssistantCanister([ReasoningContent("hm", origin="m"), "Well."])
    assert restored(remember(SIGNED, TextPiece("Well.")), told, CALL) == [OWN, AssistantCanister("Well."), CALL]


def test_unsigned_thoughts_are_remembered_only_where_they_are_needed():
    thought = ReasoningPiece("hm", origin="m")
    assert len(remember(thought)) == 0
    assert restored(remember(thought, unsigned=True), CALL) == [
        AssistantCanister(ReasoningContent("hm", origin="m")),
        CALL,
    ]


def test_another_owner_s_another_question_s_and_another_call_s_are_not_taken():
    thoughts = remember(SIGNED)
    assert restored(thoughts, CALL, owner="p") == [CALL]
    assert restored(thoughts, CALL, words="v") == [CALL]
    for other in (
        InvocationCanister("d", "f", CALL.arguments, CALL.raw),
        InvocationCanister("c", "g", CALL.arguments, CALL.raw),
        InvocationCanister("c", "f", {"x": 2, "y": 2}, ""),
    ):
        assert restored(thoughts, other) == [other]


@given(st.lists(st.integers(0, 60), max_size=40))
def test_the_memory_is_bounded_and_forgets_what_came_first(sizes):
    thoughts = ReasoningMemory(most=4 * 512)
    for number, size in enumerate(sizes):
        remember(
            ReasoningPiece("x" * size, "sig", "m"),
            thoughts=thoughts,
            request=Request("m", (UserCanister(f"{number}"),)),
        )
    assert len(thoughts) <= 3
    newest = [number for number in range(len(sizes)) if len(restored(thoughts, CALL, words=f"{number}")) == 2]
    assert newest == list(range(len(sizes) - len(thoughts), len(sizes)))


def counting(monkeypatch, name, measure):
    """The sizes of what `name` of the module is given."""
    sizes = []
    made = getattr(module, name)

    def count(*given):
        sizes.append(measure(*given))
        return made(*given)

    monkeypatch.setattr(module, name, count)
    return sizes


def test_long_words_before_many_calls_are_read_once(monkeypatch):
    thoughts = remember(SIGNED)
    sizes = counting(monkeypatch, "sha256", len)
    restored(thoughts, *[CALL] * 100, words="u" * 10_000)
    assert sum(sizes) < 100_000


def test_a_long_thought_is_put_together_once(monkeypatch):
    sizes = counting(monkeypatch, "ReasoningContent", lambda text, *_: len(text))
    remember(*[ReasoningPiece("hm", origin="m")] * 1000, unsigned=True)
    assert sum(sizes) == 2000
