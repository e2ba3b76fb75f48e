"""A server of the SDK's, of both eras, on standard input and output or with `--port` on HTTP.

What it is asked is written to the file `--journal`, a line each.
"""

import argparse
import os
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

given = argparse.ArgumentParser()
given.add_argument("--journal", default=os.devnull)
given.add_argument("--port", type=int, default=0)
flags = given.parse_args()

MODERN = "2026-07-28"
FORM = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 7}}}
TOOLS = ["add", "wait", "steps", "ask", "think", "log", "grow", "die", "wrong"]
bus = InMemorySubscriptionBus()


def note(text):
    with Path(flags.journal).open("a", encoding="utf-8") as journal:
        journal.write(f"{text}\n")


def text_result(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def list_tools(_context, _params):
    note("tools/list")
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    outputs = {"wrong": number}
    tools = [types.Tool(name=n, input_schema={"type": "object"}, output_schema=outputs.get(n)) for n in TOOLS]
    return types.ListToolsResult(tools=tools)


async def asked(context, params):
    if context.protocol_version != MODERN:
        answer = await context.session.elicit_form("Who are you?", FORM, related_request_id=context.request_id)
    elif not params.input_responses:
        form = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=form)})
    else:
        answer = params.input_responses["who"]
    return text_result(f"{answer.action} {answer.content}")


async def thought(context, params):
    messages = [types.SamplingMessage(role="user", content=types.TextContent(type="text", text="2 + 2"))]
    if context.protocol_version != MODERN:
        answer = await context.session.create_message(messages, max_tokens=10, related_request_id=context.request_id)
    elif not params.input_responses:
        asked_of = types.CreateMessageRequestParams(messages=messages, max_tokens=10)
        return types.InputRequiredResult(input_requests={"sum": types.CreateMessageRequest(params=asked_of)})
    else:
        answer = params.input_responses["sum"]
    return text_result(answer.content.text)


async def call_tool(context, params):
    note(f"call {params.name}")
    arguments = params.arguments or {}
    match params.name:
        case "add":
            return text_result(str(arguments["a"] + arguments["b"]))
        case "wait":
            try:
                await anyio.sleep(600)
            except BaseException:
                note("cancelled")
                raise
        case "steps":
            for step in range(3):
                await context.session.report_progress(step + 1, 3, "on")
            return text_result("done")
        case "ask":
            return await asked(context, params)
        case "think":
            return await thought(context, params)
        case "log":
            await context.session.send_log_message("warning", {"what": "x"}, "here", context.request_id)
            return text_result("logged")
        case "grow":
            TOOLS.append(f"new{len(TOOLS)}")
            await context.session.send_tool_list_changed()
            await bus.publish(ToolsListChanged())
            return text_result("grown")
        case "wrong":
            return types.CallToolResult(content=[], structured_content={"n": "no number"})
        case "die":
            os._exit(3)
        case _:
            raise ValueError(params.name)


server = Server(
    "ordinary",
    version="2",
    instructions="Add numbers.",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=ListenHandler(bus),
)


async def main():
    note(f"start {os.getpid()}")
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ != "__main__":  # a test serves it by itself
    pass
elif flags.port:
    import uvicorn

    note(f"start {os.getpid()}")
    uvicorn.run(server.streamable_http_app(), port=flags.port, log_level="error", timeout_graceful_shutdown=1)
else:
    anyio.run(main)
