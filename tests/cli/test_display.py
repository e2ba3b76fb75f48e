"""What stays on the screen of a terminal, with its status line."""

import asyncio
import re
from io import StringIO

import pytest

from callboard.cli.approvals import Approvals
from callboard.cli.display import Display, JobDisplay
from callboard.coding.chat.approver import CallQuestion
from callboard.coding.job import Notice, PhaseEnded, PromptSent
from callboard.coding.workspace.changed_files import ChangedFile, describe_edit
from callboard.core import (
    InvocationCanister,
    InvocationEnded,
    Nested,
    ReasoningPiece,
    ReplyEnded,
    ResultCanister,
    ResultReady,
    RoundStarted,
    TextPiece,
)
from callboard.providers.local.fill import HOLE


class FakeTerminal(StringIO):
    def isatty(self):
        return True


def read_screen(terminal):
    """The text that a person sees: a cleared line is gone."""
    lines = [line.rpartition("\r\x1b[K")[2] for line in terminal.getvalue().split("\n")]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


@pytest.fixture
def impatient(monkeypatch):
    """Draws the status line at once, and takes each pause for a long one."""
    monkeypatch.setattr("callboard.cli.display._POLL_SECONDS", -1.0)
    monkeypatch.setattr("callboard.cli.display.REFRESH_SECONDS", 0.0)


async def show_slowly(display, *events):
    async with display.report_silence():
        for event in events:
            display.show(event)
            for _ in range(10):
                await asyncio.sleep(0)


@pytest.mark.usefixtures("impatient")
async def test_the_beginning_of_a_slow_word_stays_on_the_screen():
    screen = FakeTerminal()
    display = Display(screen, screen, verbose=False, color=True)
    await show_slowly(display, RoundStarted(1), TextPiece("Hel"), TextPiece("lo world"), ReplyEnded("stop"))
    assert read_screen(screen) == "Hello world\n"


@pytest.mark.usefixtures("impatient")
async def test_the_status_line_erases_no_reasoning_if_the_text_goes_to_a_file():
    screen = FakeTerminal()
    display = Display(StringIO(), screen, verbose=True, color=True)
    thoughts = ReasoningPiece("Let me think"), ReasoningPiece(" about it\n")
    await show_slowly(display, RoundStarted(1), *thoughts, ReplyEnded("stop"))
    assert read_screen(screen) == "round 1\nLet me think about it\n"


def test_a_code_block_that_was_cut_off_ends_with_its_reply():
    screen = FakeTerminal()
    display = Display(screen, screen, verbose=False, color=True)
    for event in (TextPiece("```\nx ="), ReplyEnded("length"), RoundStarted(2), TextPiece("**done**\n")):
        display.show(event)
    assert read_screen(screen) == "x =\ndone\n"


def test_a_terminal_that_was_resized_gets_the_next_reply_in_its_width(monkeypatch):
    screen = FakeTerminal()
    monkeypatch.setenv("COLUMNS", "80")
    display = Display(screen, screen, verbose=False, color=True)
    monkeypatch.setenv("COLUMNS", "20")
    for event in (RoundStarted(1), TextPiece("one two three four five\n"), ReplyEnded("stop")):
        display.show(event)
    assert read_screen(screen) == "one two three four\nfive\n"


def test_a_result_is_shown_though_a_call_with_its_id_was_silent():
    screen = FakeTerminal()
    display = JobDisplay(screen, screen, verbose=False, as_json=False)
    for name, arguments, text in (("read_file", {"path": "a"}, "read"), ("bash", {"command": "ls"}, "listed")):
        display.show(InvocationEnded(0, "call_0", name, arguments, ""))
        display.show(ResultReady(ResultCanister(text, invocation_id="call_0")))
    assert [line for line in read_screen(screen).splitlines() if line.startswith("<-")] == ["<- listed"]


@pytest.mark.parametrize(("answer", "is_shown_again"), [("y", False), ("n", True)])
async def test_a_reviewed_diff_is_not_shown_again_unless_it_was_refused(tmp_path, answer, is_shown_again):
    screen = FakeTerminal()
    display = JobDisplay(screen, screen, verbose=False, as_json=False)

    async def ask(_):
        return answer

    change = ChangedFile("calc.py", b"old\n", b"new\n")
    call = InvocationCanister(identifier="call_0", name="edit_file", arguments={})
    await Approvals(tmp_path, tmp_path, display, ask).ask(CallQuestion(call, "", (change,), ""))
    assert read_screen(screen).count("+new") == 1
    display.show(describe_edit(change))
    assert (read_screen(screen).count("+new") == 2) == is_shown_again


def show_lines(*ends):
    """What a person sees of single lines, with the steps after each of them."""
    out, err = StringIO(), StringIO()
    display = JobDisplay(out, err, verbose=False, as_json=False)
    for number, end in enumerate(ends):
        edit = describe_edit(ChangedFile("a.py", b"a = 1\n", b"a = %d\n" % (2 + number)))
        call = InvocationEnded(0, "1", "put_code", {"path": "a.py", "code": f"a = {2 + number}", "line": 1}, "")
        result = ResultReady(ResultCanister((), invocation_id="1"))
        text = TextPiece(f"a = {2 + number}")
        for step in (PromptSent(f"{HOLE}\n"), text, call, result, edit, Notice("running the tests"), *end):
            display.step(step)
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("end", [PhaseEnded("fix", ()), Notice("kept: 1 of 2 tests still fail")])
def test_of_single_lines_only_the_one_that_helps_is_shown(end):
    text, lines = show_lines([], [], [end])
    assert not text
    assert [each for each in lines.splitlines() if each.startswith(("-a", "+a"))] == ["-a = 1", "+a = 4"]
    assert lines.count("put_code") == 1
    assert "running the tests" not in lines


def test_no_single_line_is_shown_if_none_helps():
    assert show_lines([], [PhaseEnded("fix", ("the tests do not pass",))]) == (
        "",
        "   missing: the tests do not pass\n",
    )


def test_calls_of_a_search_are_shown_and_their_results_are_not():
    err = StringIO()
    display = Display(StringIO(), err, verbose=False, color=False)
    for event in (
        InvocationEnded(0, "1", "file", {"path": "a.py"}, ""),
        ResultReady(ResultCanister(invocation_id="1", content="x = 1")),
    ):
        display.show(Nested("7", "explore", event))
    assert err.getvalue() == '.. explore: file(path="a.py")\n'
