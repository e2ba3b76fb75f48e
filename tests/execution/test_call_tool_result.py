"""The SDK's CallToolResult, returned by a function that a person wrote (seed 004)."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace

import pytest
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from tests.tables import table

from callboard import Invoker, execute_invoker
from callboard.errors import ToolExecutionFailure

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def run(result, **options):
    async def mcp_invocable(_context, _arguments):
        return result

    return asyncio.run(execute_invoker(Invoker("weather", mcp_invocable, {"type": "object"}), {}, **options))


def test_its_contents_are_those_of_the_result():
    resource = TextResourceContents(uri="file:///a", text="a")
    blocks = [
        TextContent(type="text", text="62\N{DEGREE SIGN}F"),
        ImageContent(type="image", data=PICTURE, mime_type="image/png"),
        EmbeddedResource(type="resource", resource=resource),
    ]
    text, picture, embedded = run(CallToolResult(content=blocks)).content
    assert (text.text, picture.mime_type, embedded.text) == ("62\N{DEGREE SIGN}F", "image/png", "a")


def test_structured_content_alone():
    assert run(CallToolResult(content=[], structured_content={"temperature": 62})).text == '{"temperature":62}'
    assert run(CallToolResult(content=[])).text == ""


class CallToolResultOfTheFirstVersion(SimpleNamespace):
    pass


CallToolResultOfTheFirstVersion.__name__ = "CallToolResult"


@table(
    "result",
    [
        CallToolResult(content=[TextContent(type="text", text="no such city")], is_error=True),
        CallToolResultOfTheFirstVersion(content=[SimpleNamespace(type="text", text="no such city")], isError=True),
    ],
)
def test_an_error_is_an_error(result):
    told = run(result, on_error="feedback")
    assert (told.error.category, "no such city" in told.error.message) == ("execution", True)
    with pytest.raises(ToolExecutionFailure, match="no such city"):
        run(result)
