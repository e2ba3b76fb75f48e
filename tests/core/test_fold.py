from tests.tables import table

from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    Fold,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReasoningContent,
    ReasoningPiece,
    RefusalContent,
    RefusalPiece,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    TextualContent,
    Usage,
)

CALL = [
    InvocationStarted(0, "c0", "f"),
    ArgumentsPiece(0, '{"a":'),
    ArgumentsPiece(0, "1}"),
    InvocationEnded(0, "c0", "f", {"a": 1}, '{"a":1}'),
]


@table(
    ("events", "canisters"),
    [
        ([ReplyStarted(), ReplyEnded("stop")], []),
        ([TextPiece("a"), TextPiece("b"), ReplyEnded("stop")], [AssistantCanister("ab")]),
        (
            [ReasoningPiece("th"), ReasoningPiece("ink", "sig", ""), TextPiece("a"), Usage(1, 2), TextPiece("b")],
            [AssistantCanister([ReasoningContent("think", "sig"), TextualContent("ab")])],
        ),
        (
            [ReasoningPiece("a", origin="m1"), ReasoningPiece("b", origin="m2")],
            [AssistantCanister([ReasoningContent("a", origin="m1"), ReasoningContent("b", origin="m2")])],
        ),
        ([RefusalPiece("no"), ReplyEnded("refusal")], [AssistantCanister([RefusalContent("no")])]),
        (
            [TextPiece("before"), *CALL, TextPiece("after"), ReplyEnded("invocations")],
            [
                AssistantCanister("before"),
                InvocationCanister("c0", "f", {"a": 1}, '{"a":1}'),
                AssistantCanister("after"),
            ],
        ),
        (
            [InvocationStarted(0, "c0", "f"), InvocationIncomplete(0, "c0", "f", '{"a', "length")],
            [InvocationCanister("c0", "f", None, '{"a')],
        ),
        ([TextPiece("")], []),
    ],
)
def test_events_become_canisters(events, canisters):
    fold = Fold()
    assert [canister for event in events for canister in fold.feed(event)] + fold.finish() == canisters
