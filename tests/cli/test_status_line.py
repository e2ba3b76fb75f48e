"""The last line of a terminal: what the command waits for."""

import asyncio
from io import StringIO

from callboard.cli.status_line import RunActivity, StatusLine
from callboard.coding.job import Notice, PhaseStarted
from callboard.core import (
    InvocationEnded,
    ReplyEnded,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    Usage,
)
from callboard.testing import FakeBackend


class FakeTerminal(StringIO):
    def isatty(self):
        return True


def test_a_run_names_what_it_waits_for():
    now = 0.0
    activity = RunActivity("gpt-5", clock=lambda: now)
    assert activity.describe() == ""
    activity.feed(RoundStarted(1))
    now = 12.0
    assert activity.describe() == "gpt-5, 12 s, Ctrl-C stops"
    activity.feed(TextPiece("Hello"))
    assert activity.describe() == "gpt-5, writing, 12 s, Ctrl-C stops"
    activity.feed(InvocationEnded(0, "c1", "bash", {}, "{}"))
    activity.feed(ReplyEnded("invocations"))
    now = 15.0
    assert activity.describe() == "bash, 3 s, Ctrl-C stops"
    activity.feed(ResultReady(ResultCanister("done", invocation_id="c1")))
    assert activity.describe() == ""


def test_a_local_model_loads_at_first_and_then_reads():
    activity = RunActivity("local:qwen", clock=lambda: 0.0)
    activity.feed(RoundStarted(1))
    assert activity.describe().startswith("local:qwen, loading and reading the prompt, ")
    activity.feed(RoundStarted(2))
    assert activity.describe().startswith("local:qwen, reading the prompt, ")


def test_a_job_names_its_phase_step_and_tokens():
    activity = RunActivity("gpt-5", clock=lambda: 0.0)
    for step in (PhaseStarted("fix", 9), RoundStarted(2), Usage(input=1000, output=200)):
        activity.feed(step)
    assert activity.describe() == "fix, step 2, gpt-5, 1,200 tokens, 0 s, Ctrl-C stops"
    activity.feed(Notice("running the tests"))
    assert "running the tests" in activity.describe()
    activity.feed(RunEnded("completed"))
    assert activity.describe() == ""


def test_the_line_is_cleared_before_an_output_and_while_a_person_types():
    stream = FakeTerminal()
    line = StatusLine(stream)
    line.draw("gpt-5, 1 s")
    line.clear()
    assert stream.getvalue().endswith("\r\x1b[K")
    length = len(stream.getvalue())
    with line.hold():
        line.draw("gpt-5, 2 s")
    line.clear()
    assert len(stream.getvalue()) == length


def test_a_terminal_shows_it_and_a_pipe_does_not(terminal, tmp_path):
    async def ask(**options):
        async with FakeBackend(["It is **42**."]) as backend:
            command = ("run", "6 times 7?", "--model", "fake-model", "--base-url", backend.url)
            return await asyncio.to_thread(terminal, *command, cwd=tmp_path, **options)

    code, shown = asyncio.run(ask())
    assert code == 0
    assert "fake-model, " in shown
    assert shown.endswith("It is \x1b[1m42\x1b[22m.\n")
    with (tmp_path / "out").open("wb") as out:
        asyncio.run(ask(out=out))
    assert (tmp_path / "out").read_text() == "It is **42**.\n"
