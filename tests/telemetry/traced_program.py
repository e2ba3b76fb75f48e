"""A program of a user, in a process of its own: an agent whose tool is an MCP server's, traced by variables alone."""

import asyncio
import sys
from contextlib import suppress

from callboard import Agent, tool
from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded
from callboard.mcp import connect
from callboard.mcp.errors import ServerFailure
from callboard.providers import open_model
from callboard.telemetry import disable, enable
from callboard.testing import FakeBackend

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


@tool
def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


def call(name):
    return [
        InvocationStarted(0, "1", name),
        InvocationEnded(0, "1", name, {"a": 6, "b": 7}, '{"a": 6, "b": 7}'),
        ReplyEnded("invocations"),
    ]


async def main(endpoint, home):
    command = f"stdio://{sys.executable} -m callboard mcp serve --tools {__file__}:multiply"
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SERVICE_NAME": "server", "HOME": home}
    async with FakeBackend(lambda body: "42" if len(body["messages"]) > 2 else call("multiply")) as backend:
        model = open_model("openai:gpt-4o", base_url=backend.url, api_key=SECRET)
        async with connect(command, name="sums", environment=variables) as sums:
            result = await Agent(model, ensembles=[sums]).run(f"What is 6 * 7? The key is {SECRET}.")
            with suppress(ServerFailure):  # it has none
                await sums.client.get_prompt("greeting", {})
        await model.aclose()
    sys.stdout.write(f"{result.text}\n")


if __name__ == "__main__":
    enable()
    disable()
    enable()  # what is told is sent after the second time, too
    asyncio.run(main(*sys.argv[1:]))
    disable()
