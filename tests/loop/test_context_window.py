"""What of a long conversation a model is shown."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.loop import ContextWindow
from callboard.loop.shorten import PICTURE, cut_to, share_room, size_of
from callboard.tools import Ensemble, InvokerRegistry, tool


@tool(idempotent=True, subjects={"path": "path"}, cli={"-f": "path"})
def read(path: str, start: int | None = None, lines: int = 100) -> str:
    return f"{path} {start} {lines}"


@tool(subjects={"path": "path"})
def write(path: str, text: str = "") -> str:
    return path + text


@tool(idempotent=True)
def search(pattern: str) -> str:
    return pattern


ROSTER = InvokerRegistry([Ensemble("local", [read, write, search])])
BEGUN = (core.SupervisorCanister("Be good."), core.UserCanister("Mend it."))


class Told:
    """A transcript that grows by rounds."""

    def __init__(self, *begun):
        self.canisters = [*(begun or BEGUN)]
        self.rounds = 0

    def round(self, *calls, said="", size=1000, failed=False):
        self.rounds += 1
        if said:
            self.canisters.append(core.AssistantCanister(said))
        made = [core.InvocationCanister(f"c{self.rounds}_{at}", name, given) for at, (name, given) in enumerate(calls)]
        self.canisters += made
        for each in made:
            text = f"result {self.rounds} " + "x" * size
            self.canisters.append(
                core.error_result(each.identifier, "execution", text)
                if failed
                else core.ResultCanister(invocation_id=each.identifier, content=text)
            )
        return self


def history(limit=2000, **options):
    return ContextWindow(limit=limit, invokers=ROSTER, **options)


def texts(canisters):
    return [each.text for each in canisters if isinstance(each, core.ResultCanister)]


def stubs(canisters):
    return [
        each.text if each.text.startswith("[") else "" for each in canisters if isinstance(each, core.ResultCanister)
    ]


def assert_paired(canisters):
    called = [each.identifier for each in canisters if isinstance(each, core.InvocationCanister)]
    assert [each.invocation_id for each in canisters if isinstance(each, core.ResultCanister)] == called


def weight(canisters):
    return sum(map(size_of, canisters))


def test_without_a_limit_all_is_shown():
    told = Told()
    for number in range(50):
        told.round(("search", {"pattern": str(number)}))
    assert ContextWindow().show(told.canisters) == tuple(told.canisters)


def test_below_the_threshold_nothing_is_changed():
    view, told = history(limit=2000), Told()
    for number in range(5):
        told.round(("read", {"path": "a"}), said=str(number))
        assert view.show(told.canisters) == tuple(told.canisters)
    assert view.tokens < 1500


READ = ("read", {"path": "a"})
STALE = "[superseded by the call in round 2]"


@table(
    ("first", "second", "stale"),
    [
        (READ, READ, True),
        (READ, ("read", {"path": "./b/../a"}), True),
        (READ, ("read", {"path": "b"}), False),
        (READ, ("write", {"path": "a"}), True),
        (READ, ("write", {"path": "./a"}), True),
        (READ, ("write", {"path": "b"}), False),
        (READ, ("search", {"pattern": "a"}), False),
        (READ, ("read", {"path": "a", "start": 3}), False),
        (READ, ("read", {"path": "a", "start": None, "lines": 100}), True),
        (READ, ("read", {"-f": "a"}), True),
        (("read", {"path": "a", "start": 3}), READ, True),
        (("read", {"path": "a", "start": 3}), ("read", {"path": "a", "start": 9}), False),
        (("search", {"pattern": "x"}), ("search", {"pattern": "x"}), True),
        (("write", {"path": "a"}), ("write", {"path": "a"}), False),
        (("write", {"path": "a"}), READ, False),
    ],
)
def test_results_that_a_later_call_makes_stale_are_replaced(first, second, stale):
    told = Told().round(first).round(second)
    for number in range(4):
        told.round(("search", {"pattern": f"other {number}"}))
    shown = history(limit=1900).show(told.canisters)
    assert_paired(shown)
    if stale:
        assert stubs(shown) == [STALE, "", "", "", "", ""]
        assert shown[0:3] == tuple(told.canisters[0:3])
    else:
        assert STALE not in stubs(shown)


def test_a_failure_is_replaced_where_the_call_was_made_again_and_makes_nothing_stale():
    told = Told().round(READ, failed=True).round(READ)
    for number in range(4):
        told.round(("search", {"pattern": str(number)}))
    shown = history(limit=1900).show(told.canisters)
    assert stubs(shown)[0] == STALE
    told = Told().round(READ).round(("write", {"path": "a"}), failed=True)
    for number in range(4):
        told.round(("search", {"pattern": str(number)}))
    assert STALE not in stubs(history(limit=1900).show(told.canisters))


def test_the_last_rounds_are_kept_as_they_are():
    told = Told().round(READ).round(READ).round(READ).round(READ)
    assert stubs(history(limit=1200).show(told.canisters)) == ["[superseded by the call in round 4]", "", "", ""]
    assert stubs(history(limit=1200, keep=1).show(told.canisters))[:3] == [
        "[superseded by the call in round 4]",
        "[superseded by the call in round 4]",
        "[superseded by the call in round 4]",
    ]


def long(rounds=12):
    told = Told()
    for number in range(rounds):
        told.round(
            ("search", {"pattern": f"p{number}"}), ("write", {"path": f"f{number}.py", "text": "t" * 50}),
            said=f"Step {number}. " + "s" * 300, failed=number == 2,
        )  # fmt: skip
    return told


def test_the_oldest_rounds_are_told_in_short():
    told = long()
    before = [*told.canisters]
    view = history(limit=8000, pinned=lambda: "[ ] the checklist")
    shown = view.show(told.canisters)
    assert told.canisters == before
    assert_paired(shown)
    assert shown[0] == BEGUN[0]
    assert shown[1].content[0] == core.TextualContent("Mend it.")
    summary = shown[1].content[1].text
    lines = summary.splitlines()
    assert lines[0] == "Rounds 1 to 8 of the work so far, in short; they are not shown any more."
    assert lines[1] == f'- round 1: "Step 0. {"s" * 192}..."; search pattern p0; write path f0.py'
    assert lines[3].endswith("; search pattern p2 (failed); write path f2.py (failed)")
    assert "Files that were changed: f0.py, f1.py, f3.py, f4.py, f5.py, f6.py, f7.py" in lines
    assert lines[-1] == "[ ] the checklist"
    assert shown[2:] == tuple(told.canisters[2 + 8 * 5 :])
    assert view.tokens == pytest.approx(weight(shown) / 4, abs=2)
    assert view.tokens < 4000


def test_the_beginning_stays_the_same_until_it_is_made_shorter_again():
    view, told = history(limit=8000), Told()
    shown = ()
    changes = 0
    for number in range(200):
        told.round(("search", {"pattern": str(number)}), size=2000)
        before, shown = shown, view.show(told.canisters)
        changes += shown[: len(before)] != before
        assert view.tokens <= 8000
        assert_paired(shown)
    assert 10 < changes < 40
    assert " lines from the beginning are left out.)" in shown[1].text


def test_what_was_replaced_stays_replaced():
    view, told = history(limit=1900), Told().round(READ).round(READ)
    for number in range(4):
        told.round(("search", {"pattern": str(number)}))
    first = view.show(told.canisters)
    assert stubs(first)[0] == STALE
    told.round(("search", {"pattern": "more"}), size=10)
    assert view.show(told.canisters)[: len(first)] == first


def test_what_the_user_said_last_is_told_whole():
    told = long(4)
    told.canisters.append(core.UserCanister("And then do this: " + "y" * 500))
    for number in range(12):
        told.round(("search", {"pattern": str(number)}))
    shown = history(limit=2000).show(told.canisters)
    summary = shown[1].content[1].text
    assert summary.endswith("In these rounds the user said last:\nAnd then do this: " + "y" * 500)
    assert sum(isinstance(each, core.UserCanister) for each in shown) == 1
    told.canisters.append(core.UserCanister("Go on."))
    assert history(limit=2000).show(told.canisters)[-1] == core.UserCanister("Go on.")


def test_a_conversation_without_a_task_gets_a_summary_of_its_own():
    told = Told(core.SupervisorCanister("Be good."))
    for number in range(12):
        told.round(("search", {"pattern": str(number)}))
    shown = history(limit=2000).show(told.canisters)
    assert [type(each) for each in shown[:2]] == [core.SupervisorCanister, core.UserCanister]
    assert shown[1].text.startswith("Rounds 1 to ")


def test_a_single_result_that_is_too_large_is_cut_in_view():
    told = Told().round(("search", {"pattern": "x"}), size=100_000)
    view = history(limit=2000)
    shown = view.show(told.canisters)
    assert view.tokens <= 1500
    assert "[... 100009 characters, not all are shown ...]" in shown[-1].text
    assert shown[-1].text.startswith("result 1 xxx")
    assert shown[-1].text.endswith("xxx")
    assert told.canisters[-1].text == "result 1 " + "x" * 100_000


def test_of_several_the_large_ones_are_cut():
    told = Told().round(("search", {"pattern": "a"}), size=100).round(("write", {"path": "a", "text": "t" * 50_000}))
    told.round(("search", {"pattern": "b"}), said="s" * 50_000, size=50_000)
    view = history(limit=2000)
    shown = view.show(told.canisters)
    assert view.tokens <= 2000
    assert_paired(shown)
    assert "characters, not all are shown" in shown[2].text
    assert "characters, not all are shown" in shown[-1].text
    wide = Told().round(("write", {"path": "a", "text": "t" * 50_000}), size=100)
    call, result = history(limit=2000).show(wide.canisters)[2:]
    assert "characters, not all are shown" in call.arguments["text"]
    assert (call.arguments["path"], result) == ("a", wide.canisters[-1])


def test_another_conversation_begins_anew():
    view = history(limit=2000)
    view.show(long().canisters)
    other = Told(core.UserCanister("Else.")).round(READ)
    assert view.show(other.canisters) == tuple(other.canisters)
    shorter = long(2).canisters
    assert view.show(shorter[:5]) == tuple(shorter[:5])
    assert view.show(shorter[:3]) == tuple(shorter[:3])


def test_a_conversation_that_is_read_again_is_shown_the_same():
    told = long(30)
    view = history(limit=8000)
    shown = view.show(told.canisters)
    assert history(limit=8000).show([*told.canisters]) == shown
    # An agent makes the supervisor's canister anew for each run.
    again = [core.SupervisorCanister("Be good."), *told.canisters[1:]]
    assert view.show(again) == shown


# Tokens.


def test_without_a_count_four_characters_are_a_token():
    view = history()
    view.show([core.UserCanister("x" * 400)])
    assert view.tokens == 104


def test_what_a_backend_counts_goes_before():
    view, told = history(limit=100_000), Told()
    view.show(told.canisters)
    view.count(core.Usage(input=3000))
    assert view.tokens == 3000  # the tools are in it
    told.round(READ, size=6000)
    view.show(told.canisters)
    view.count(core.Usage(input=3000))
    view.count(core.Usage(input=6000))  # told with every piece, the last one counts
    assert view.tokens == 6000
    told.round(READ, size=5940)
    view.show(told.canisters)
    assert view.tokens == pytest.approx(9000, abs=40)  # two characters a token
    view.count(core.Usage(output=7))
    assert view.tokens == pytest.approx(9000, abs=40)


def test_what_is_counted_decides_when_it_is_made_shorter():
    told = long(4)
    view = history(limit=8000)
    assert view.show(told.canisters) == tuple(told.canisters)
    view.count(core.Usage(input=7000))
    assert view.show(told.canisters) != tuple(told.canisters)


def test_tools_alone_may_be_too_large():
    told = long(4)
    view = history(limit=2000)
    view.show(told.canisters)
    view.count(core.Usage(input=900_000))
    assert_paired(view.show(told.canisters))


@table("limit", [0, 100_000])
def test_rounds_are_told_in_short_whenever_so_many_have_come(limit):
    view, told = history(limit=limit, keep=2, every=3), Told()
    rounds = []
    for number in range(20):
        told.round(("read", {"path": str(number)}))
        shown = view.show(told.canisters)
        assert_paired(shown)
        rounds.append(len(texts(shown)))
    assert rounds == [1, 2, 3, 4] + [2, 3, 4] * 5 + [2]
    assert "read" in shown[1].text


def test_every_and_a_limit():
    view, told = history(limit=2000, keep=2, every=50), Told()
    for number in range(60):
        told.round(("read", {"path": str(number)}), size=300)
        assert_paired(view.show(told.canisters))
        assert view.tokens <= 2000


@table("bounds", [{"every": -1}, {"limit": -1}, {"threshold": 0}, {"threshold": 1.5}, {"keep": 0}])
def test_bounds_that_cannot_be(bounds):
    with pytest.raises(CallerError, match=r"^history: no history of limit"):
        ContextWindow(**bounds)


# Whatever comes.

CALLS = st.tuples(
    st.sampled_from(["read", "write", "search", "unknown"]),
    st.one_of(
        st.none(),
        st.dictionaries(
            st.sampled_from(["path", "pattern", "text", "lines"]), st.sampled_from(["a", "b", 3, "x" * 700])
        ),
    ),
)
ROUNDS = st.tuples(
    st.lists(CALLS, max_size=4),
    st.sampled_from([0, 10, 900, 9000]),
    st.booleans(),
    st.sampled_from(["", "So.", "s" * 2000]),
)


@given(st.lists(ROUNDS, max_size=25), st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1), st.booleans())
def test_it_ends_below_the_limit_with_every_call_paired(rounds, keep, asked, together):
    told = Told()
    view = history(limit=3000, keep=keep)
    for number, (calls, size, failed, said) in enumerate(rounds):
        told.round(*calls, said=said, size=size, failed=failed)
        if not calls:
            told.canisters.append(core.UserCanister("Go on."))
        if asked[number % len(asked)] and not together:
            before = [*told.canisters]
            shown = view.show(told.canisters)
            assert told.canisters == before
            assert weight(shown) / 4 == pytest.approx(view.tokens, abs=2)
            assert view.tokens <= 3000
            assert_paired(shown)
            assert shown[0] == BEGUN[0]
            assert shown[1].content[0] == BEGUN[1].content[0]
    shown = view.show(told.canisters)
    assert view.tokens <= 3000
    assert_paired(shown)


def test_the_work_of_a_round_does_not_grow():
    view, told = history(limit=30_000), Told()
    done = 0
    work = []

    def watch(_frame, event, _argument):
        nonlocal done
        done += event in {"call", "c_call"}

    for number in range(1000):
        told.round(
            ("read", {"path": f"f{number % 40}", "start": number}), ("write", {"path": f"f{number % 7}"}), said="So."
        )
        sys.setprofile(watch)
        try:
            view.show(told.canisters)
        finally:
            sys.setprofile(None)
        work.append(done)
    assert work[999] - work[799] <= 1.3 * (work[399] - work[199])


# Sizes.


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 400))
def test_each_has_room(sizes, room):
    most = share_room(sizes, room)
    assert sum(min(size, most) for size in sizes) <= room
    if most < max(sizes):
        assert sum(min(size, most + 1) for size in sizes) > room


@table("most", [0, 30, 200, 1000, 6000])
@table(
    "canister",
    [
        core.ResultCanister(invocation_id="a", content="x" * 5000),
        core.ResultCanister(invocation_id="a", content=(core.TextualContent("x" * 5000), core.PictureContent(b"1"))),
        core.AssistantCanister("y" * 5000),
        core.InvocationCanister("a", "write", {"text": "z" * 4000, "more": "n" * 900, "line": 3}),
        core.InvocationCanister("a", "write", {"text": "\x01\n" * 2000}),
        core.InvocationCanister("a", "write", None, "z" * 5000),
    ],
)
def test_what_is_cut_is_about_as_large_as_it_may_be(canister, most):
    cut = cut_to(canister, most)
    assert size_of(cut) <= max(most, 200)
    assert type(cut) is type(canister)
    if size_of(canister) <= most:
        assert cut is canister


def test_a_picture_counts_as_some_text():
    assert (
        size_of(core.ResultCanister(invocation_id="a", content=(core.PictureContent(b"x" * 100_000),))) == PICTURE + 16
    )
