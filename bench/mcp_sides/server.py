"""The servers of `bench.mcp_servers`, on standard input and output, each with the tool `add`.

usage: python -m bench.mcp_sides.server sdk            the SDK's low-level server, as its documentation has it
       python -m bench.mcp_sides.server callboard      ours
       python -m bench.mcp_sides.server late SECONDS   one that answers so late for the first time, without the SDK
"""

import asyncio
import json
import sys
import time

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def sdk() -> None:
    import mcp_types as types  # noqa: PLC0415  # each server weighs its own
    from mcp.server.lowlevel import Server  # noqa: PLC0415
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    tool = types.Tool(name="add", input_schema=SCHEMA)

    async def on_list_tools(_context, _params):
        return types.ListToolsResult(tools=[tool])

    async def on_call_tool(_context, params):
        total = params.arguments["a"] + params.arguments["b"]
        return types.CallToolResult(content=[types.TextContent(text=str(total))])

    server = Server("bench", on_list_tools=on_list_tools, on_call_tool=on_call_tool)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())


def callboard() -> None:
    from callboard import Ensemble, tool  # noqa: PLC0415
    from callboard.servers.mcp.server import ToolServer  # noqa: PLC0415
    from callboard.servers.mcp.transports import serve_stdio  # noqa: PLC0415
    from callboard.servers.stdio import claim_stdio  # noqa: PLC0415

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with claim_stdio() as wire:
        asyncio.run(serve_stdio(ToolServer([Ensemble("bench", [add])]), wire))


def late(seconds: str) -> None:
    time.sleep(float(seconds))
    answers = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "late", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "add", "inputSchema": SCHEMA}]},
        "ping": {},
    }
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            found = answers.get(message["method"])
            said = {"result": found} if found is not None else {"error": {"code": -32601, "message": "no such method"}}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    {"sdk": sdk, "callboard": callboard, "late": late}[sys.argv[1]](*sys.argv[2:])
