"""What each round of a run took."""

from datetime import UTC, datetime, timedelta

from callboard.coding.jobs.log import RoundMeasured
from callboard.coding.jobs.round_meter import RoundMeter
from callboard.core import ReplyEnded, ResultCanister, ResultReady, RoundStarted, RunEnded, TextPiece, Usage
from callboard.profiles import Prices
from callboard.profiles.prices import FallbackPrices

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DOLLAR = Prices(input=1_000_000.0, output=1_000_000.0)


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


def measured(events, pricing=DOLLAR):
    meter = RoundMeter(pricing)
    return [each for second, event in enumerate(events) for each in meter.feed(event, at(second))]


def test_a_round_begins_with_its_request_and_ends_before_the_next():
    events = [
        RoundStarted(1),
        TextPiece("a"),
        Usage(2, 3),
        ReplyEnded("invocations"),
        ResultReady(ResultCanister("x", invocation_id="c1")),
        RoundStarted(2),
        Usage(1, 0),
        ReplyEnded("stop"),
        RunEnded("completed"),
    ]
    first, second = measured(events)
    counts = {"input": 2, "output": 3, "cached": 0, "reasoning": 0}
    assert first == RoundMeasured(1, at(0), at(3), counts, 5.0, {"c1": at(4)})
    assert (second.number, second.began_at, second.replied_at, second.cost) == (2, at(5), at(7), 1.0)


def test_a_reply_that_was_made_again_counts_twice():
    events = [RoundStarted(1), Usage(2, 0), ReplyEnded("retry"), Usage(3, 0), ReplyEnded("stop"), RunEnded("completed")]
    (only,) = measured(events)
    assert (only.usage["input"], only.cost, only.replied_at) == (5, 5.0, at(4))


def test_each_reply_costs_what_the_model_takes_that_gave_it():
    row = FallbackPrices((("a", DOLLAR), ("b", Prices(input=5_000_000.0, output=0))))
    events = [RoundStarted(1), Usage(2), ReplyEnded("retry"), Usage(1, model="b"), ReplyEnded("stop")]
    (only,) = measured([*events, RunEnded("completed")], row)
    assert only.cost == 7.0


def test_a_round_that_was_cut_is_measured_as_far_as_it_came():
    (only,) = measured([RoundStarted(1), Usage(2, 0), RunEnded("cancelled")])
    assert (only.replied_at, only.cost) == (at(2), 2.0)
    assert measured([RunEnded("cancelled")]) == []


def test_what_nobody_counted_has_no_cost():
    for pricing, usage in ((DOLLAR, []), (None, [Usage(1, 1)])):
        (only,) = measured([RoundStarted(1), *usage, ReplyEnded("stop"), RunEnded("completed")], pricing)
        assert only.cost is None
