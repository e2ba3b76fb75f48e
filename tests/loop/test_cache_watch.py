import pytest
from msgspec.structs import replace

from callboard.core import (
    AssistantCanister,
    Constraint,
    Controls,
    InvocationCanister,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    ToolDeclaration,
    Usage,
    UserCanister,
)
from callboard.loop.cache_watch import CacheWatch

RULES = SupervisorCanister("Be brief.")
TOOLS = (ToolDeclaration("look"), ToolDeclaration("pay"))
SAID = (
    UserCanister("Look."),
    AssistantCanister("I look."),
    InvocationCanister(identifier="c1", name="look", arguments={}, raw="{}"),
    ResultCanister("a tree", invocation_id="c1"),
    AssistantCanister("A tree."),
    UserCanister("Again."),
)
FIRST = Request("m", (RULES, *SAID), TOOLS)
NEXT = (AssistantCanister("A tree again."), UserCanister("Thanks."))
LATER = Request("m", (RULES, *SAID, *NEXT), TOOLS)
TREE = ResultCanister("a bush", invocation_id="c1")


def with_said(request, place, canister):
    canisters = [*request.canisters]
    canisters[place] = canister
    return replace(request, canisters=tuple(canisters))


class Watch:
    """A watch with a clock; a reply takes a second."""

    def __init__(self):
        self.watch = CacheWatch()
        self.now = 0.0

    def after(self, request, cached, *, model="m", seconds=1.0, owner="", size=None):
        self.now += seconds
        usage = Usage(size or cached + 500, 10, cached)
        return self.watch.observe(request, usage, model=model, now=self.now, lifetime=300.0, owner=owner)


@pytest.mark.parametrize(
    ("request_", "more", "cause", "message"),
    [
        (replace(LATER, tools=TOOLS[::-1]), {}, "tools", 0),
        (replace(LATER, tools=(TOOLS[0],)), {}, "tools", 0),
        (with_said(LATER, 0, SupervisorCanister("Be brief. It is 3 o'clock.")), {}, "instructions", 0),
        (replace(LATER, canisters=LATER.canisters[1:]), {}, "instructions", 0),
        (with_said(LATER, 4, TREE), {}, "history", 3),
        (with_said(LATER, 2, AssistantCanister("I see.")), {}, "history", 2),
        (with_said(LATER, 6, UserCanister("Once more.")), {}, "history", 5),
        (LATER, {"model": "n"}, "model", 0),
        (replace(LATER, tools=()), {"model": "n"}, "model", 0),
        (LATER, {"seconds": 301.0}, "idle", 0),
        (replace(LATER, tool_choice="none"), {}, "settings", 0),
        (replace(LATER, controls=Controls(effort="high")), {}, "settings", 0),
        (replace(LATER, constraint=Constraint("answer", {"type": "object"})), {}, "settings", 0),
        (replace(LATER, controls=Controls(temperature=1.0)), {}, "unknown", 0),
        (LATER, {"seconds": 299.0}, "unknown", 0),
    ],
)
def test_a_collapse_is_told_with_its_cause(request_, more, cause, message):
    watch = Watch()
    assert watch.after(FIRST, 50_000) is None
    collapse = watch.after(request_, 1_000, **more)
    assert (collapse.cause, collapse.message) == (cause, message)
    assert collapse.text.startswith("the prompt cache collapsed from 50000 tokens to 1000: ")
    if cause == "history":
        assert collapse.text.endswith(f"at message {message}")


def test_it_is_told_once():
    watch = Watch()
    watch.after(FIRST, 50_000)
    longer = [replace(LATER, canisters=(*LATER.canisters, *NEXT * times)) for times in range(4)]
    told = [watch.after(each, cached) for each, cached in zip(longer, (0, 0, 40_000, 0), strict=True)]
    assert [each and each.after for each in told] == [0, None, None, 0]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (50_000, 50_500, False),
        (50_000, 47_600, False),
        (50_000, 47_400, True),
        (10_000, 8_100, False),
        (10_000, 7_900, True),
        (2_000, 0, False),
        (2_100, 0, True),
    ],
)
def test_more_than_five_percent_and_two_thousand_tokens_are_a_collapse(before, after, told):
    watch = Watch()
    watch.after(FIRST, before)
    assert (watch.after(LATER, after) is not None) == told


def test_a_reply_without_figures_is_no_collapse():
    watch = Watch()
    watch.after(FIRST, 50_000)
    assert watch.watch.observe(LATER, Usage(), model="m", now=9.0, lifetime=300.0) is None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (FIRST, Request("m", (RULES, UserCanister("Something else."), *NEXT))),
        (LATER, FIRST),
        (LATER, Request("m", (RULES, SAID[0]), TOOLS)),
    ],
    ids=["another conversation", "gone back", "begun anew"],
)
def test_what_does_not_go_on_is_no_collapse(one, two):
    watch = Watch()
    watch.after(one, 50_000)
    assert watch.after(two, 500) is None


def test_owners_are_apart():
    watch = Watch()
    watch.after(FIRST, 50_000, owner="one")
    assert watch.after(LATER, 0, owner="two") is None
    assert watch.after(LATER, 0, owner="one") is not None


def test_conversations_that_begin_alike_are_apart():
    """The same prompt is asked several times at once, as evaluations do."""
    watch = Watch()
    begun = Request("m", (RULES, UserCanister("Solve it.")), TOOLS)
    turns = [
        [
            replace(begun, canisters=(*begun.canisters, *[AssistantCanister(f"{run}"), UserCanister("Go on.")] * count))
            for count in range(1, 5)
        ]
        for run in range(4)
    ]
    told = [watch.after(begun, 3_000) for _ in turns]
    for count, run in [(0, 0), (1, 0), (2, 0), (0, 1), (3, 0), (0, 2), (1, 1), (0, 3), (1, 2), (2, 1)]:
        told.append(watch.after(turns[run][count], 3_000 + 10_000 * count))
    assert told == [None] * len(told)
    assert watch.after(turns[1][3], 3_000).cause == "unknown"


@pytest.mark.parametrize(
    "change",
    [
        lambda each: replace(each, extra={"cache_control": {"type": "ephemeral"}}),
        lambda each: replace(each, content=(TextualContent("Look.", extra={"cache_control": {}}),)),
    ],
    ids=["message", "content"],
)
def test_where_a_client_wants_the_cache_to_end_is_no_change(change):
    watch = Watch()
    watch.after(with_said(FIRST, 1, change(FIRST.canisters[1])), 50_000)
    assert watch.after(LATER, 0).cause == "unknown"


def test_what_an_agents_model_is_shown_is_compared():
    watch = Watch()
    watch.after(replace(FIRST, conversation=FIRST.canisters), 50_000)
    shown = (RULES, SAID[0], UserCanister("In short: a tree."), *NEXT)
    collapse = watch.after(replace(LATER, canisters=shown, conversation=LATER.canisters), 0)
    assert (collapse.cause, collapse.message) == ("history", 2)


def test_half_a_character_is_no_failure():
    watch = Watch()
    watch.after(with_said(FIRST, 4, ResultCanister("\ud800", invocation_id="c1")), 50_000)
    assert watch.after(LATER, 0).cause == "history"


def test_memory_is_bounded():
    watch = Watch()
    for number in range(300):
        watch.after(Request("m", (UserCanister(f"{number}"),)), 50_000)
    for number in range(20):
        watch.after(replace(LATER, canisters=(*SAID[:1], AssistantCanister(f"{number}"), *SAID[1:])), 50_000)
        watch.after(replace(LATER, canisters=SAID[:1]), 50_000)
    watch.after(Request("m", (UserCanister("x"),) * 2_000 + NEXT * 2_000), 50_000)
    kept = watch.watch._conversations
    assert len(kept) == 256
    assert max(len(branches) for branches in kept.values()) <= 16
    assert max(len(each.conversation) for branches in kept.values() for each in branches) == 1024 * 8
