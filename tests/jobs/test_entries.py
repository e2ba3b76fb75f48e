"""The lines of a job's entries, and their conversation."""

from __future__ import annotations

import asyncio

import pytest
from tests.tables import table

from callboard.agent import Transcript
from callboard.coding.job import Notice, PhaseStarted
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, RolledBack, RoundStarted, UserCanister
from callboard.errors import CallerError
from callboard.jobs.entries import JobEntry, decode_entry, encode_entry, order_results, read_conversation
from callboard.jobs.queries import SUMMARY
from callboard.jobs.tables import jobs


def call(name):
    return InvocationCanister(identifier=name, name="bash", arguments={})


def result(name, text="ran"):
    return ResultCanister(text, invocation_id=name)


ITEMS = [
    UserCanister("Fix it\nnow"),
    PhaseStarted("look", 5),
    RoundStarted(1),
    AssistantCanister("I see"),
    call("a"),
    call("b"),
    result("b"),
    Notice("slow"),
    result("a"),
]


def test_what_was_encoded_is_decoded_from_one_line():
    for item in [*ITEMS, RolledBack(1), UserCanister("\udcff\0")]:
        line = encode_entry(item)
        assert "\n" not in line
        assert encode_entry(decode_entry(line)) == line
    assert [decode_entry(encode_entry(item)) for item in ITEMS] == ITEMS


@table(
    "line", ["", "nothing", "\x80\x04N.", '{"role":"nobody"}', '{"type":"nothing"}', '{"role":"user"', "[" * 100_000]
)
def test_another_line_is_refused_with_its_place(line):
    with pytest.raises(CallerError, match="entry 7: not an entry of a job"):
        JobEntry(7, 0, line).item  # noqa: B018


def test_the_results_of_a_turn_are_in_the_order_of_its_calls():
    conversation = read_conversation(ITEMS)
    user, said, *calls = [ITEMS[place] for place in (0, 3, 4, 5)]
    assert conversation == [user, said, *calls, result("a"), result("b")]


def test_only_results_that_stand_together_are_ordered():
    first, second = [call("a"), call("b"), result("b"), result("a")], [call("b"), call("a"), result("a"), result("b")]
    assert order_results([*first, UserCanister("go on"), *second]) == [
        *[call("a"), call("b"), result("a"), result("b")],
        UserCanister("go on"),
        *[call("b"), call("a"), result("b"), result("a")],
    ]
    late = [call("a"), call("b"), result("b"), UserCanister("wait"), result("a")]
    assert order_results(late) == late
    assert order_results([result("x"), call("a")]) == [result("x"), call("a")]
    assert order_results([]) == []


def test_what_was_rolled_back_is_not_in_the_conversation():
    items = [
        UserCanister("one"),
        call("a"),
        call("b"),
        result("b"),
        result("a"),
        RolledBack(1),
        AssistantCanister("two"),
    ]
    assert read_conversation(items) == [UserCanister("one"), AssistantCanister("two")]


def test_an_entry_is_the_line_of_a_transcript(tmp_path):
    transcript = Transcript(tmp_path / "transcript.jsonl")
    for canister in read_conversation(ITEMS):
        transcript.append(canister)
    assert [*map(decode_entry, transcript.path.read_text("utf-8").splitlines()[1:])] == read_conversation(ITEMS)


def test_the_columns_are_the_fields_of_a_job():
    assert sorted(column.name for column in jobs.columns) == sorted(["key", "fence", "failures", *SUMMARY])


@pytest.mark.parametrize(("size", "most"), [(200, 1.6), (2000, 2.0), (20_000, 1.1)])
def test_a_database_is_hardly_larger_than_the_transcript(tmp_path, size, most):
    from callboard.jobs.database import Database
    from callboard.jobs.store import DurableStore

    async def story(database):
        store = DurableStore(database)
        claim = await store.claim((await store.create("agent")).id, 1, "one")
        for number in range(1, 151):
            name = f"call_{number}"
            await claim.append([AssistantCanister("I look."), call(name)], rounds=number, memory={"round": number})
            await claim.begin_calls([call(name)])
            await claim.end_call(result(name, "x" * size), calls=number)
        return sum(len(each.line) + 1 for each in await store.read_entries(claim.job.id))

    with Database.open(f"sqlite:///{tmp_path}/jobs.db") as database:
        bare = database.run_blocking(lambda connection: connection.exec_driver_sql("PRAGMA page_count").scalar()) * 4096
        transcript = asyncio.run(story(database))
    assert (tmp_path / "jobs.db").stat().st_size - bare < most * transcript
