"""Replies that repeat themselves: where they are stopped, what is not stopped, and that pieces do not matter."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.agent import Agent
from callboard.loop import RepetitionFilter
from callboard.loop.repetition import MAX_TIMES, MAX_UNIT
from callboard.testing import Call, ScriptedModel, coalesce

SENTENCE = "I will add the function `add_numbers` to the file. "
CODE = "Here is the function:\n```python\ndef add(a, b):\n    return a + b\n```\n\n"
END = core.ReplyEnded("stop")


def through(*events):
    stage = RepetitionFilter()
    return [*[out for event in events for out in stage.feed(event)], *stage.finish()]


def text_of(events):
    return "".join([each.text for each in events if isinstance(each, core.TextPiece)])


def is_stopped(text):
    out = through(core.TextPiece(text), END)
    assert text.startswith(text_of(out))
    assert out[-1] == END or out[-2:] == [
        core.Note("alert", "the reply repeated itself, and was stopped", code="repetition"),
        core.ReplyEnded("length"),
    ]
    return out[-1] != END


@table(
    "text",
    [
        SENTENCE * 25,
        f"{SENTENCE.strip()}\n" * 90,
        f"{SENTENCE}\n\n" * 25,
        f"First a plan. {'Then I look at the code. After that I run all the tests! ' * 20}",
        CODE * 20,
        "我将在文件中添加这个函数。" * 30,
        f"```python\nx = 1\n```\n{SENTENCE * 25}",
        f"- {SENTENCE}\n" * 40,
        f"Use ```x``` here.\n{SENTENCE * 25}",
    ],
)
def test_a_reply_that_repeats_itself_is_stopped(text):
    assert is_stopped(text)
    assert len(text_of(through(core.TextPiece(text)))) <= len(text) * (MAX_TIMES + 2) / 20


@table(
    "text",
    [
        SENTENCE * (MAX_TIMES - 1),
        "| the cell | is the same | in each row | of it |\n" * 200,
        "+---------+---------+\n|         |         |\n" * 100,
        "".join(f"- The function number {number} has no test. \n" for number in range(200)),
        "".join(f"{SENTENCE}It is in file {number}.py. " for number in range(200)),
        "/\\/\\/\\/\\/\\\n\\/\\/\\/\\/\\/\n" * 100,
        "####    ####\n" * 100,
        "```python\n" + "assert this is not None and that is fine\n" * 300 + "```\n",
        f"```\n{SENTENCE * 100}\n```\n",
        f"~~~text\n```\n{SENTENCE * 100}\n~~~\n",
        "0, 0, 0, 0, 0, 0,\n" * 500,
        "        }\n" * 300,
        "".join(f"Change this file:\n```python\nx = {number}\n```\n" for number in range(100)),
        "ha " * 500,
        "word " * 3 + "\n\n" * 500,
        "",
    ],
)
def test_what_repeats_for_a_reason_is_not_stopped(text):
    assert not is_stopped(text)


def test_arguments_and_the_text_between_calls_are_not_stopped():
    call = [
        core.InvocationStarted(0, "c", "write"),
        core.ArgumentsPiece(0, SENTENCE * 50),
        core.TextPiece(SENTENCE * 50),
    ]
    events = [*call, core.InvocationEnded(0, "c", "write", {}, "{}"), core.TextPiece(SENTENCE * (MAX_TIMES - 1))]
    assert through(*events * 3, core.Usage(), END) == [*events * 3, core.Usage(), END]


def test_a_reply_in_the_place_of_another_begins_anew():
    piece = core.TextPiece(SENTENCE * (MAX_TIMES - 1))
    events = [core.ReplyStarted(), piece, core.ReplyEnded("retry"), core.ReplyStarted(), piece, END]
    assert through(*events) == events
    stage = RepetitionFilter()
    assert stage.feed(core.TextPiece(SENTENCE * 50))[-1] == core.ReplyEnded("length")
    assert stage.feed(core.TextPiece("more")) == stage.feed(END) == []
    assert stage.feed(core.ReplyStarted()) == [core.ReplyStarted()]
    assert stage.feed(core.TextPiece("more")) == [core.TextPiece("more")]


@given(
    parts=st.lists(
        st.sampled_from([SENTENCE, SENTENCE * 11, CODE, CODE * 11, "x" * MAX_UNIT, ". ", "\n", "```", "a? b! ", "。"]),
        max_size=12,
    ),
    sizes=st.lists(st.integers(1, 400), min_size=1),
)
def test_pieces_do_not_matter(parts, sizes):
    text, pieces, at = "".join(parts), [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(core.TextPiece(text[at : at + size]))
        at += size
    assert coalesce(through(*pieces, END)) == coalesce(through(*([core.TextPiece(text)] if text else []), END))


@table("piece", ["a", ".", " ", "\n", "`", "a. ", "```\n", "。"])
def test_the_work_for_a_piece_does_not_grow(piece):
    is_stopped(piece * 40_000)
    through(*[core.TextPiece(piece)] * 5_000)


def test_a_run_ends_where_its_reply_repeats_itself():
    """The rest of the reply is not waited for; calls before it still run."""
    model = ScriptedModel([[core.TextPiece(SENTENCE * 20), *[core.TextPiece(SENTENCE)] * 20], "Never asked for."])
    result = Agent(model, event_filter=RepetitionFilter).run_sync("Add it.")
    assert (result.state, result.why) == ("incomplete", "the reply repeated itself, and was stopped")
    assert result.text == SENTENCE * MAX_TIMES
    assert len(model.requests) == 1

    def look() -> str:
        return "seen"

    model = ScriptedModel([[Call("look"), core.TextPiece(SENTENCE * 20)], "Done."])
    assert Agent(model, [look], event_filter=RepetitionFilter).run_sync("Look.").output == "Done."
