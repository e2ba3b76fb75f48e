"""Ctrl-C at the terminal of a coding job: once to say something, twice to stop."""

import pytest
from tests.calc_project import READ, reply_with
from tests.cli.test_chat import terminal

from callboard.testing import Silence

TRIAGE = ("triage", "add returns a wrong sum", "--workflow", "phased", "--no-sandbox")
PAUSES = "You can say something before the next reply. Ctrl-C again stops the job."


@pytest.mark.parametrize("at", ["a reply", "the question"])
async def test_one_ctrl_c_is_to_say_something_and_two_stop(place, at):
    """The process gets Ctrl-C while it waits for each reply."""

    def reply(_):
        shown.types("\x03")
        shown.reads(PAUSES)
        if at == "the question" or len(shown.backend.requests) == 1:
            return reply_with(READ)
        shown.types("\x03")
        return Silence()

    async with terminal(place, reply, command=TRIAGE) as shown:
        await shown.sees(PAUSES, "Say something to the model (Enter to continue, Ctrl-C to stop):")
        shown.types("Look at the sign.\n")
        if at == "the question":
            await shown.sees("Say something to the model")
            shown.types("\x03")
        await shown.sees("Cancelled. Continue it: callboard jobs resume")
        assert await shown.ends() == 130
        first, second = [each.body["messages"] for each in shown.backend.requests]
    assert second[: len(first)] == first
    result, message = [each["content"] for each in second[-2:]]
    assert "return a ^ b" in result
    assert message == "Look at the sign."
