"""The tools that the official suite asks a server for, as an ensemble of ours, served by `serve_http`.

usage: python fixture.py     its first line of standard output is the URL
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import mcp_types as types

from callboard import Context, Ensemble, tool
from callboard.core import FileContent, PictureContent, TextualContent
from callboard.servers.mcp.client_proxy import McpClientProxy
from callboard.servers.mcp.server import ToolServer
from callboard.servers.mcp.transports import serve_http
from callboard.tools import Invoker, ToolLike

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAVE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "required": [],
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"{nth} Option"} for n, nth in enumerate(("First", "Second"), 1)],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": f"value{n}", "title": f"{nth} Choice"} for n, nth in enumerate(("First", "Second"), 1)
                ]
            },
        },
    },
    "required": [],
}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
WITH_HEADER = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


def peer_of(context: Context) -> McpClientProxy:
    peer: McpClientProxy = context.auxdata["mcp"]
    return peer


def form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def prompt(text: str, tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=tokens))


def format_elicited(result: types.ElicitResult) -> str:
    return f"action={result.action}, content={json.dumps(result.content)}"


@tool
def test_simple_text() -> str:
    """A text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> PictureContent:
    """A picture."""
    return PictureContent(PIXEL)


@tool
def test_audio_content() -> FileContent:
    """A sound."""
    return FileContent(WAVE, mime_type="audio/wav")


@tool
def test_embedded_resource() -> FileContent:
    """A file."""
    return FileContent(b"This is an embedded resource content.", mime_type="text/plain", name="embedded.txt")


@tool
def test_multiple_content_types() -> Any:
    """A text, a picture and a file."""
    return [
        TextualContent("Multiple content types test:"),
        PictureContent(PIXEL),
        FileContent(b'{"test":"data","value":123}', mime_type="application/json", name="mixed.json"),
    ]


@tool
def test_error_handling() -> str:
    """A failure."""
    raise ValueError("This tool intentionally returns an error for testing")


async def _log(context: Context) -> str:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await peer_of(context).log("info", text)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@tool
async def test_tool_with_logging(context: Context) -> str:
    """Three log messages."""
    return await _log(context)


@tool
async def test_logging_tool(context: Context) -> str:
    """Three log messages."""
    return await _log(context)


@tool
async def test_tool_with_progress(context: Context) -> str:
    """Three steps of progress."""
    for done in (0, 50, 100):
        await peer_of(context).progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@tool
async def test_sampling(context: Context, prompt: str) -> str:
    """Asks the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    reply = await peer_of(context).sample(params)
    return f"LLM response: {reply.content.text}"


@tool
async def test_elicitation(context: Context, message: str) -> str:
    """Asks the client's user."""
    return f"User response: {format_elicited(await peer_of(context).elicit(message, PERSON))}"


@tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """A form with defaults."""
    return f"Elicitation completed: {format_elicited(await peer_of(context).elicit('Please review', DEFAULTS))}"


@tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """A form with enumerations."""
    return f"Elicitation completed: {format_elicited(await peer_of(context).elicit('Please choose', ENUMS))}"


@tool
async def test_input_required_result_elicitation(context: Context) -> str:
    """Asks for a name."""
    result = await peer_of(context).elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {(result.content or {}).get('name')}!"


@tool
async def test_streaming_elicitation(context: Context) -> str:
    """Asks for a name while it says how far it is."""
    await peer_of(context).progress(1)
    return format_elicited(await peer_of(context).elicit("What is your name?", NAME))


@tool
async def test_input_required_result_sampling(context: Context) -> str:
    """Asks the client's model."""
    answers = await peer_of(context).ask({"capital_question": prompt("What is the capital of France?")})
    return str(answers["capital_question"].content.text)


@tool
async def test_input_required_result_list_roots(context: Context) -> str:
    """Asks for the client's roots."""
    answers = await peer_of(context).ask({"client_roots": types.ListRootsRequest()})
    return ", ".join(str(root.uri) for root in answers["client_roots"].roots)


@tool
async def test_input_required_result_request_state(context: Context) -> str:
    """Asks for a confirmation."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    await peer_of(context).elicit("Please confirm", schema, key="confirm")
    return "state-ok"


@tool
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Asks for a confirmation."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    await peer_of(context).elicit("Please confirm", schema, key="confirm")
    return "state-ok"


@tool
async def test_input_required_result_multiple_inputs(context: Context) -> str:
    """Asks three things at once."""
    answers = await peer_of(context).ask(
        {
            "user_name": form("What is your name?", NAME),
            "greeting": prompt("Generate a greeting", 50),
            "client_roots": types.ListRootsRequest(),
        }
    )
    return ", ".join(answers)


@tool
async def test_input_required_result_multi_round(context: Context) -> str:
    """Asks two things, one after the other."""
    first = await peer_of(context).elicit("Step 1: What is your name?", NAME, key="step1")
    color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    second = await peer_of(context).elicit("Step 2: What is your favorite color?", color, key="step2")
    return f"{first.content} {second.content}"


@tool
async def test_input_required_result_capabilities(context: Context) -> str:
    """Asks what the client can be asked."""
    peer = peer_of(context)
    questions: dict[str, types.InputRequest] = {}
    if "elicitation" in peer.can:
        questions["user_name"] = form("What is your name?", NAME)
    if "sampling" in peer.can:
        questions["greeting"] = prompt("Generate a greeting", 50)
    return ", ".join(await peer.ask(questions))


@tool
async def test_missing_capability(context: Context) -> str:
    """Needs the client's model."""
    return str(await peer_of(context).ask({"greeting": prompt("Generate a greeting", 50)}))


async def _whatever(_: Context, arguments: Any) -> str:
    return json.dumps(arguments)


def conforming() -> ToolServer:
    """A server with all of them, and one that adds another."""
    functions: list[ToolLike] = [each for name, each in globals().items() if name.startswith("test_")]
    ensemble = Ensemble("conformance", functions)
    ensemble.add_invoker(Invoker("json_schema_2020_12_tool", _whatever, SCHEMA_2020_12, description="All of it."))
    ensemble.add_invoker(Invoker("test_header", _whatever, WITH_HEADER, description="A header."))

    @tool
    async def test_trigger_tool_change() -> str:
        """Adds a tool."""
        name = f"added_{len(ensemble.invokers)}"
        ensemble.add_invoker(Invoker(name, _whatever, {"type": "object"}, description="Added."))
        await server.notify_changes()
        return "changed"

    ensemble.add_invoker(test_trigger_tool_change)
    server = ToolServer([ensemble], name="conformance")
    return server


def _ready(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve_http(conforming(), ready=_ready))
