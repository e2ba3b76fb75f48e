"""A client of the Agent Client Protocol that is not ours: acpx, on the protocol's TypeScript library."""

import asyncio
import json

import pytest

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, TextPiece
from callboard.testing import FakeBackend, Silence

READ = {"action": "read", "path": "calc.py"}
EDIT = {"action": "replace", "path": "calc.py", "old": "a - b", "new": "a + b"}
SHOW = {"command": "cat calc.py"}


def call(name, arguments):
    return [
        ReplyStarted(),
        InvocationStarted(0, "call_1", name),
        InvocationEnded(0, "call_1", name, arguments, json.dumps(arguments)),
        ReplyEnded("invocations"),
    ]


@pytest.fixture
def edit(run, room):
    """What acpx made of the replies, and the file behind it."""

    def edit(client, replies):
        file = room.work / "calc.py"
        file.write_text("a - b\n")

        async def scenario():
            async with FakeBackend(replies) as backend:
                ran = await run(client, "mend it", url=backend.url, model="fake-model")
                backend.assert_complete()
                return ran

        return asyncio.run(scenario()), file.read_text()

    return edit


def test_calls_are_shown_allowed_and_run(edit):
    ran, text = edit("acpx", [call("file", READ), call("file", EDIT), call("bash", SHOW), "Done."])
    assert (ran.code, ran.answer, text) == (0, "Done.", "a + b\n")
    asked = [each["params"]["toolCall"] for each in ran.events if each.get("method") == "session/request_permission"]
    assert [each["kind"] for each in asked] == ["edit", "execute"]
    assert [each.get("newText") for each in asked[0]["content"]] == ["a + b\n"]
    assert ran.events[-1]["result"] == {"stopReason": "end_turn"}


def test_a_denied_edit_is_not_made(edit):
    ran, text = edit("acpx, denies", [call("file", EDIT), "A pity."])
    assert (ran.answer, text) == ("A pity.", "a - b\n")


def test_a_client_that_gives_up_cancels_the_turn(edit):
    ran, _ = edit("acpx, gives up", [Silence([ReplyStarted(), TextPiece("Once upon")])])
    assert {"stopReason": "cancelled"} in [each.get("result") for each in ran.events], ran
