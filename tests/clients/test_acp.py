"""A client of the Agent Client Protocol that is not ours: acpx, on the protocol's TypeScript library."""

import asyncio

import pytest
from tests.calc_project import EDIT, READ, reply_with

from callboard.core import ReplyStarted, TextPiece
from callboard.testing import Call, FakeBackend, Silence

SHOW = {"command": "cat calc.py"}


@pytest.fixture
def edit(run, room):
    """What acpx made of the replies, and the file behind it."""

    def edit(client, replies):
        file = room.work / "calc.py"
        file.write_text("a ^ b\n")

        async def scenario():
            async with FakeBackend(replies) as backend:
                ran = await run(client, "mend it", url=backend.url, model="fake-model")
                backend.assert_complete()
                return ran

        return asyncio.run(scenario()), file.read_text()

    return edit


def test_calls_are_shown_allowed_and_run(edit):
    ran, text = edit("acpx", [reply_with(READ), reply_with(EDIT), reply_with(Call("bash", SHOW)), "Done."])
    assert (ran.code, ran.answer, text) == (0, "Done.", "a + b\n")
    asked = [each["params"]["toolCall"] for each in ran.events if each.get("method") == "session/request_permission"]
    assert [each["kind"] for each in asked] == ["edit", "execute"]
    assert [each.get("newText") for each in asked[0]["content"]] == ["a + b\n"]
    assert ran.events[-1]["result"] == {"stopReason": "end_turn"}


def test_a_denied_edit_is_not_made(edit):
    ran, text = edit("acpx, denies", [reply_with(EDIT), "A pity."])
    assert (ran.answer, text) == ("A pity.", "a ^ b\n")


def test_a_client_that_gives_up_cancels_the_turn(edit):
    ran, _ = edit("acpx, gives up", [Silence([ReplyStarted(), TextPiece("Once upon")])])
    assert {"stopReason": "cancelled"} in [each.get("result") for each in ran.events], ran
