"""The official client of AG-UI takes our events: it refuses a stream that breaks the protocol's rules."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from callboard.jobs import VARIABLE

HERE = Path(__file__).parent
CREW = HERE.parent / "servers/agui/crew.py"
PATIENCE = 60


async def converse(tmp_path, node):
    """What the client made of the conversation with a board that serves the agent."""
    command = "import sys; from callboard.cli import main; main()"
    board = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command, "board", "--agui", f"{CREW}:clerk", "--port", "0", "--json"),
        env={**os.environ, "HOME": str(tmp_path), VARIABLE: f"sqlite:///{tmp_path / 'jobs.db'}"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        started = json.loads(await board.stdout.readline())
        url = started["url"].removesuffix("/board/")
        client = await asyncio.create_subprocess_exec(
            *(str(node[0]), str(HERE / "programs/ag_ui_client.mjs"), f"{url}/agui"),
            env={"PATH": os.environ["PATH"], "MODULES": str(node[1]), "KEY": started["agui_key"]},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(client.communicate(), PATIENCE)
        assert client.returncode == 0
        return json.loads(output)
    finally:
        board.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(board.wait(), PATIENCE) == 0


def test_a_conversation_with_tools_and_an_approval(tmp_path, node):
    client = asyncio.run(converse(tmp_path, node))
    said = [each["content"] for each in client["messages"] if each["role"] == "assistant" and each.get("content")]
    assert said == ["It is 3.", "It is booked 7 for {'user': 'Ada'}.", "It is yes."]
    roles = [each["role"] for each in client["messages"]]
    assert roles == [
        *("user", "reasoning", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]
    (interrupt,) = client["interrupts"]
    assert interrupt["metadata"]["callboard"]["name"] == "book"
    assert client["call"]["function"] == {"name": "confirm", "arguments": '{"what":"this"}'}
    assert "MESSAGES_SNAPSHOT" not in client["types"]
    assert client["warnings"] == []
