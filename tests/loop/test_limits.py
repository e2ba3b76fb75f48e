from datetime import UTC, datetime, timedelta

import pytest
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.loop import CallModel, CheckOutput, Finish, Limits, Loop, LoopRules
from callboard.loop.limits import Budget
from callboard.profiles import Prices
from callboard.profiles.prices import FallbackPrices
from callboard.tools import Ensemble, Invoker, InvokerRegistry, Policy, tool

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@tool
def search(query: str) -> str:
    return query


async def elsewhere(context, arguments): ...


ROSTER = InvokerRegistry([Ensemble("local", [search, Invoker("later", elsewhere, {"type": "object"}, deferred=True)])])


class Driven:
    def __init__(self, now=NOW, check=None, *, limits=None, **rules):
        self.now = now
        self.check = check
        self.loop = Loop(
            [core.UserCanister("Go.")],
            ROSTER,
            rules=LoopRules(checks_output=check is not None, **rules),
            limits=limits,
        )
        self.loop.start(now)
        self.turn = 0

    def round(self, *, error=False):
        """A reply with one call, and its result."""
        self.turn += 1
        call = core.InvocationEnded(0, f"c{self.turn}", "search", {"query": str(self.turn)}, "")
        for event in (call, core.Usage(10, 5), core.ReplyEnded("invocations")):
            actions = self.loop.feed(event, self.now)
        if actions and isinstance(actions[0], Finish):
            return actions[0]
        result = (
            core.error_result(call.identifier, "execution", "no")
            if error
            else core.ResultCanister(invocation_id=call.identifier, content="yes")
        )
        (action,) = self.loop.feed(core.ResultReady(result), self.now)
        return action

    def answer(self, text="So."):
        (action,) = [a for e in (core.TextPiece(text), core.ReplyEnded("stop")) for a in self.loop.feed(e, self.now)]
        if isinstance(action, CheckOutput):
            (action,) = self.loop.answer_check(self.check(action.text), self.now)
        return action


@table(
    ("limits", "rounds", "error", "why"),
    [
        (Limits(rounds=2), 2, False, "no answer within 2 rounds"),
        (Limits(calls=3), 3, False, "no answer within 3 calls"),
        (Limits(errors=2), 2, True, "2 errors one after another"),
    ],
)
def test_when_calls_are_used_up_a_last_reply_is_asked_for(limits, rounds, error, why):
    run = Driven(limits=limits)
    for _ in range(rounds - 1):
        assert not run.round(error=error).last
    assert run.round(error=error).last
    assert run.answer() == Finish("incomplete", "So.", why)


def test_a_success_forgives_the_errors_before_it():
    run = Driven(limits=Limits(errors=2))
    assert [run.round(error=error).last for error in (True, False, True, False)] == [False] * 4


@table(
    ("limits", "prices", "why"),
    [
        (Limits(tokens=30), None, "30 tokens are used, of 30"),
        (Limits(cost=0.04), Prices(input=1000, output=2000), "the budget is spent: $0.04 of $0.04"),
    ],
)
def test_when_tokens_or_money_are_used_up_nothing_more_is_asked(limits, prices, why):
    run = Driven(limits=limits, prices=prices)
    assert isinstance(run.round(), CallModel)
    assert run.round() == Finish("incomplete", "", why)


def test_when_the_seconds_are_over_nothing_more_is_asked():
    run = Driven(limits=Limits(seconds=60))
    assert isinstance(run.round(), CallModel)
    run.now += timedelta(seconds=60)
    assert run.round() == Finish("incomplete", "", "60 seconds are over")


class Unlisted:
    """A price that nobody knows."""

    def cost(self, usage, now):
        return None


def budget_after(usages, prices, *, limit=1.0):
    budget = Budget(Limits(cost=limit), prices)
    for usage in usages:
        budget.add(usage, prices, NOW)
    return budget


def test_an_unknown_cost_is_none_and_nothing_more_is_asked_under_a_budget():
    prices = Prices(input=1, output=1)
    for usages, pricing in (([core.Usage(1, 1)], Unlisted()), ([core.Usage(1, 1), core.Usage()], prices)):
        budget = budget_after(usages, pricing)
        assert budget.cost is None
        assert budget.exhaustion_reason() == "the cost is not known any more, and there is a budget of $1"


def test_tokens_that_nobody_counted_are_free_where_all_are():
    assert budget_after([core.Usage()], Prices(input=0, output=0)).cost == 0.0
    row = FallbackPrices((("dear", Prices(input=1, output=1)), ("free", Prices(input=0, output=0))))
    assert budget_after([core.Usage(model="free")], row).cost == 0.0
    assert budget_after([core.Usage(model="dear")], row).cost is None


def test_an_unknown_cost_of_an_inner_run_makes_that_of_the_outer_one_unknown():
    outer = Budget(Limits(), Prices(input=1, output=1))
    Budget(Limits(), Unlisted(), outer).add(core.Usage(1, 1), Unlisted(), NOW)
    assert (outer.cost, outer.usage, outer.is_bounded) == (None, core.Usage(1, 1), False)


@table("bound", [{"rounds": -1}, {"cost": -1.0}, {"seconds": 0}])
def test_a_limit_is_above_zero(bound):
    with pytest.raises(CallerError, match=rf"^limits.{next(iter(bound))}: a limit is above zero"):
        Limits(**bound)


def test_a_deferred_call_ends_the_run_until_its_result_comes():
    run = Driven()
    calls = [
        core.InvocationEnded(0, "a", "later", {}, "{}"),
        core.InvocationEnded(1, "b", "search", {"query": "x"}, ""),
    ]
    (execute,) = [a for e in (*calls, core.ReplyEnded("invocations")) for a in run.loop.feed(e, NOW)]
    assert [each.identifier for each in execute.invocations] == ["b"]
    (finish,) = run.loop.feed(core.ResultReady(core.ResultCanister(invocation_id="b", content="y")), NOW)
    assert (finish.state, [each.identifier for each in run.loop.pending]) == ("pending", ["a"])
    assert [each.invocation_id for each in run.loop.transcript if isinstance(each, core.ResultCanister)] == ["b"]


def test_a_run_of_deferred_calls_only_ends_at_once():
    run = Driven(policy=Policy())
    (finish,) = [
        a
        for e in (core.InvocationEnded(0, "a", "later", {}, "{}"), core.ReplyEnded("stop"))
        for a in run.loop.feed(e, NOW)
    ]
    assert finish.state == "pending"


def test_a_refused_finish_is_told_and_a_second_one_ends_the_run():
    run = Driven(check=lambda said: "" if said == "right" else f"{said} is not right")
    assert isinstance(run.answer("wrong"), CallModel)
    assert run.loop.transcript[-1] == core.UserCanister("wrong is not right")
    assert run.answer("again") == Finish("incomplete", "again", "again is not right")

    other = Driven(check=lambda said: "" if said == "right" else "no")
    other.answer("wrong")
    assert other.answer("right") == Finish("completed", "right")
