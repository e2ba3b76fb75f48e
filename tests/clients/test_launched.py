"""Each client that `callboard launch` starts works, and its own settings stay as they are."""

import asyncio

import pytest
from tests.clients.test_configured import OTHERS, SHELL, calling

from callboard.testing import FakeBackend

TOOLS = {
    "codex": ("exec_command", {"cmd": SHELL}),
    "claude": ("Bash", {"command": SHELL, "description": "Makes it"}),
    "qwen": ("run_shell_command", {"command": SHELL, "is_background": False}),
    "gemini": ("run_shell_command", {"command": SHELL, "description": "Makes it"}),
    "opencode": ("bash", {"command": SHELL, "description": "Makes it"}),
}
FIRST = {"opencode": ["A title"]}
"""What a client asks for besides."""


@pytest.mark.parametrize("client", TOOLS)
def test_a_launched_client_calls_its_tool(client, run, room, private_state):
    path, text = OTHERS.get(client, (".config/opencode/opencode.json", '{"autoupdate": false}'))
    (room.home / path).parent.mkdir(parents=True)
    (room.home / path).write_text(text, "utf-8")

    async def scenario():
        replies = ["Hi!", *FIRST.get(client, ()), calling(*TOOLS[client]), "It is made."]
        async with FakeBackend(replies, models=["mystery", "other"]) as backend:
            ran = await run(f"{client}, launched", "Make it.", url="", model=backend.url)
            backend.assert_complete()
            return ran, {each.body["model"] for each in backend.requests if each.method == "POST"}

    ran, models = asyncio.run(scenario())
    assert (ran.code, ran.answer) == (0, "It is made."), ran
    assert (room.work / "made.txt").read_text("utf-8").strip() == "made"
    assert models == {"mystery"}
    # Some clients rewrite their file at the start.
    written = (room.home / path).read_text("utf-8")
    assert "127.0.0.1" not in written
    assert "mystery" not in written
    assert [*(private_state / "callboard" / "launch").iterdir()] == []
