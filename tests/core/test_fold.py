from tests.tables import table

from callboard import core

CALL = [
    core.InvocationStarted(0, "c0", "f"),
    core.ArgumentsPiece(0, '{"a":'),
    core.ArgumentsPiece(0, "1}"),
    core.InvocationEnded(0, "c0", "f", {"a": 1}, '{"a":1}'),
]


@table(
    ("events", "canisters"),
    [
        ([core.ReplyStarted(), core.ReplyEnded("stop")], []),
        ([core.TextPiece("a"), core.TextPiece("b"), core.ReplyEnded("stop")], [core.AssistantCanister("ab")]),
        (
            [
                core.ReasoningPiece("th"),
                core.ReasoningPiece("ink", "sig", ""),
                core.TextPiece("a"),
                core.Usage(1, 2),
                core.TextPiece("b"),
            ],
            [core.AssistantCanister([core.ReasoningContent("think", "sig"), core.TextualContent("ab")])],
        ),
        (
            [core.ReasoningPiece("a", origin="m1"), core.ReasoningPiece("b", origin="m2")],
            [
                core.AssistantCanister(
                    [core.ReasoningContent("a", origin="m1"), core.ReasoningContent("b", origin="m2")]
                )
            ],
        ),
        ([core.RefusalPiece("no"), core.ReplyEnded("refusal")], [core.AssistantCanister([core.RefusalContent("no")])]),
        (
            [core.TextPiece("before"), *CALL, core.TextPiece("after"), core.ReplyEnded("invocations")],
            [
                core.AssistantCanister("before"),
                core.InvocationCanister("c0", "f", {"a": 1}, '{"a":1}'),
                core.AssistantCanister("after"),
            ],
        ),
        (
            [core.InvocationStarted(0, "c0", "f"), core.InvocationIncomplete(0, "c0", "f", '{"a', "length")],
            [core.InvocationCanister("c0", "f", None, '{"a')],
        ),
        ([core.TextPiece("")], []),
    ],
)
def test_events_become_canisters(events, canisters):
    fold = core.Fold()
    assert [canister for event in events for canister in fold.feed(event)] + fold.finish() == canisters
