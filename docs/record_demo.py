# ruff: noqa: INP001, S603  # a script: no package, and it starts our own command
"""Record docs/pictures/demo.svg: one question to a local server, asked directly and then through Callboard.

Run `make demo`. The script needs the extra `local`, and downloads the default model (491 MB) if it is missing.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.text import Text

from callboard.providers.local.model_files import locate
from callboard.providers.local.server import EmbeddedServer

ROOT = Path(__file__).parent.parent
MODEL = "qwen2.5-coder-0.5b"
_PROGRESS = re.compile(rf"^(?:local:|{re.escape(MODEL)}:|waiting for the model:).*\n", re.MULTILINE)
QUESTION = "What is 48213 times 9177?"
TOOL = {
    "name": "multiply",
    "description": "Multiply two whole numbers exactly.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def main() -> None:
    """Run both halves and write the picture."""
    console = Console(record=True, width=92, force_terminal=True, color_system="truecolor")
    with_callboard = ask_callboard()
    message = asyncio.run(ask_directly())
    console.print(Text(f"$ curl localhost:8080/v1/chat/completions -d @question.json   # {QUESTION}", "bold"))
    console.print(
        Text(json.dumps({key: message.get(key) for key in ("content", "tool_calls")}), "dim"), soft_wrap=False
    )
    console.print(Text("# The call is in the text. `tool_calls` is empty, so nothing runs.\n", "italic yellow"))
    console.print(Text(f'$ callboard run "{QUESTION}" --tools tools.py', "bold"))
    console.print(Text(with_callboard.strip(), "green"))
    console.save_svg(str(ROOT / "docs" / "pictures" / "demo.svg"), title="Qwen2.5-Coder 0.5B on a laptop")


def ask_callboard() -> str:
    """Return what `callboard run` prints for the question, without lines about the download, loading and waiting."""
    command = [sys.executable, "-m", "callboard", "run", "--model", f"local:{MODEL}", "--tools", "examples/first.py"]
    ran = subprocess.run(
        [*command, QUESTION], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return _PROGRESS.sub("", ran.stdout)


async def ask_directly() -> dict[str, Any]:
    """Return the message that the model's own server answers with."""
    server = EmbeddedServer(locate(MODEL))
    await server.start()
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": TOOL}],
        "temperature": 0,
    }
    headers = {"Authorization": f"Bearer {server.api_key}"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        reply = await response.json()
    message: dict[str, Any] = reply["choices"][0]["message"]
    return message


if __name__ == "__main__":
    main()
