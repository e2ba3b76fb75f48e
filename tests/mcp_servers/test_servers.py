"""Each server is connected, its tools are listed, encoded for every provider, and called."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.mcp_servers.conftest import COMMANDS, furnished

from callboard.core import PictureContent, Request, UserCanister
from callboard.execution import execute_invoker
from callboard.mcp import McpEnsemble, ServerSettings
from callboard.tools import InvokerRegistry
from callboard.wires import get_wire

VERSIONS = {
    "everything": "2025-11-25",
    "filesystem": "2025-11-25",
    "memory": "2025-11-25",
    "git": "2026-07-28",
    "fetch": "2026-07-28",
    "time": "2026-07-28",
}
TOOLS = {"everything": 13, "filesystem": 14, "memory": 9, "git": 12, "fetch": 1, "time": 2}
ALICE = {"name": "Alice", "entityType": "person", "observations": ["sings"]}
BOB = {"name": "Bob", "entityType": "person", "observations": []}
KNOWS = {"from": "Alice", "to": "Bob", "relationType": "knows"}
DATA = "data:text/plain;base64," + base64.b64encode(b"hello").decode()

# A tool, its arguments (with the room's places), and what is in the text of its result; in this order.
CALLS = {
    "everything": [
        ("echo", {"message": "hello"}, "hello"),
        ("get-annotated-message", {"messageType": "success"}, "success"),
        ("get-resource-links", {"count": 1}, "resource"),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, "esource"),
        ("get-structured-content", {"location": "Chicago"}, "temperature"),
        ("get-sum", {"a": "2", "b": 3}, "5"),
        ("get-env", {}, "PATH"),
        ("get-tiny-image", {}, ""),
        ("gzip-file-as-resource", {"name": "a.gz", "data": DATA}, ""),
        ("toggle-simulated-logging", {}, "ogging"),
        ("toggle-subscriber-updates", {}, "pdates"),
        ("trigger-long-running-operation", {"duration": 0.02, "steps": 2}, "completed"),
    ],
    "filesystem": [
        ("list_allowed_directories", {}, "{files}"),
        ("list_directory", {"path": "{files}"}, "a.txt"),
        ("list_directory_with_sizes", {"path": "{files}"}, "a.txt"),
        ("directory_tree", {"path": "{files}"}, "a.txt"),
        ("get_file_info", {"path": "{files}/a.txt"}, "size"),
        ("read_file", {"path": "{files}/a.txt"}, "one\ntwo"),
        ("read_text_file", {"path": "{files}/a.txt", "head": 1}, "one"),
        ("read_media_file", {"path": "{files}/p.png"}, ""),
        ("read_multiple_files", {"paths": ["{files}/a.txt"]}, "two"),
        ("write_file", {"path": "{files}/b.txt", "content": "three"}, "b.txt"),
        ("edit_file", {"path": "{files}/b.txt", "edits": [{"oldText": "three", "newText": "four"}]}, "four"),
        ("create_directory", {"path": "{files}/d"}, "d"),
        ("move_file", {"source": "{files}/b.txt", "destination": "{files}/d/b.txt"}, "b.txt"),
        ("search_files", {"path": "{files}", "pattern": "**/b.txt"}, "b.txt"),
    ],
    "memory": [
        ("create_entities", {"entities": [ALICE, BOB]}, "Alice"),
        ("create_relations", {"relations": [KNOWS]}, "knows"),
        ("add_observations", {"observations": [{"entityName": "Bob", "contents": ["dances"]}]}, "dances"),
        ("read_graph", {}, "sings"),
        ("search_nodes", {"query": "sings"}, "Alice"),
        ("open_nodes", {"names": ["Bob"]}, "dances"),
        ("delete_observations", {"deletions": [{"entityName": "Bob", "observations": ["dances"]}]}, ""),
        ("delete_relations", {"relations": [KNOWS]}, ""),
        ("delete_entities", {"entityNames": ["Alice", "Bob"]}, ""),
    ],
    "git": [
        ("git_status", {"repo_path": "{repository}"}, "main"),
        ("git_log", {"repo_path": "{repository}", "max_count": "1"}, "first"),
        ("git_show", {"repo_path": "{repository}", "revision": "HEAD"}, "first"),
        ("git_branch", {"repo_path": "{repository}", "branch_type": "local"}, "main"),
        ("git_create_branch", {"repo_path": "{repository}", "branch_name": "side", "base_branch": None}, "side"),
        ("git_checkout", {"repo_path": "{repository}", "branch_name": "side"}, "side"),
        ("git_diff_unstaged", {"repo_path": "{repository}"}, ""),
        ("git_add", {"repo_path": "{repository}", "files": ["new.txt"]}, "staged"),
        ("git_diff_staged", {"repo_path": "{repository}"}, "new.txt"),
        ("git_diff", {"repo_path": "{repository}", "target": "main"}, "new.txt"),
        ("git_reset", {"repo_path": "{repository}"}, "reset"),
        ("git_add", {"repo_path": "{repository}", "files": ["new.txt"]}, "staged"),
        ("git_commit", {"repo_path": "{repository}", "message": "second"}, ""),
    ],
    "fetch": [("fetch", {"url": "{url}"}, "A page that is read.")],
    "time": [
        ("get_current_time", {"timezone": "UTC"}, "UTC"),
        (
            "convert_time",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            "21:00",
        ),
    ],
}
ELSEWHERE = {"simulate-research-query"}
"""Not called: it is a task of an extension that the SDK has not."""


@asynccontextmanager
async def page():
    """A web page on this machine."""

    async def answer(_):
        return web.Response(text="A page that is read.", content_type="text/plain")

    app = web.Application()
    app.router.add_get("/page", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/page"
    finally:
        await runner.cleanup()


def filled(value, places):
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace("{" + name + "}", str(place))
        return value
    if isinstance(value, dict):
        return {key: filled(each, places) for key, each in value.items()}
    return [filled(each, places) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", COMMANDS)
def test_every_tool_is_called(using, room, name):
    async def use(ensemble):
        assert ensemble.client.protocol_version == VERSIONS[name]
        async with page() as url:
            places = {**vars(room), "url": url}
            for tool, arguments, said in CALLS[name]:
                invoker = ensemble.access_invoker(tool)
                result = await execute_invoker(invoker, filled(arguments, places), on_error="feedback")
                assert result.error is None, (tool, result)
                assert filled(said, places) in result.text, (tool, result)
        return {invoker.name for invoker in ensemble.invokers.values()}

    offered = using(name, use) - {"read_result"}
    assert len(offered) == TOOLS[name]
    assert offered == {tool for tool, _, _ in CALLS[name]} | (offered & ELSEWHERE)


def test_results_that_are_no_text(using):
    async def use(ensemble):
        result = await execute_invoker(ensemble.access_invoker("get-tiny-image"), {})
        return [type(part) for part in result.content]

    assert PictureContent in using("everything", use)


@pytest.mark.parametrize(
    ("name", "tool", "arguments", "category", "said"),
    [
        ("everything", "get-sum", {"a": "x"}, "validation", "ArgValidationError"),
        ("filesystem", "read_text_file", {"path": "/etc/passwd"}, "execution", "Access denied"),
        ("git", "git_status", {"repo_path": "/"}, "execution", ""),
        ("time", "get_current_time", {"timezone": "Nowhere"}, "execution", "Nowhere"),
        ("fetch", "fetch", {"url": "http://127.0.0.1:9/"}, "execution", "127.0.0.1"),
    ],
)  # fmt: skip
def test_failures_are_results_that_the_model_reads(using, name, tool, arguments, category, said):  # noqa: PLR0917  # a row
    async def use(ensemble):
        return await execute_invoker(ensemble.access_invoker(tool), arguments, on_error="feedback")

    result = using(name, use)
    assert result.error.category == category
    assert said in result.text


def exhaust(value):
    """Looks at all of it: what a package types as iterable is validated while it is iterated."""
    if isinstance(value, dict):
        for each in value.values():
            exhaust(each)
    elif not isinstance(value, str | int | float | None):
        for each in value:
            exhaust(each)


def by_openai_chat(body):
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from pydantic import TypeAdapter

    adapter = TypeAdapter(CompletionCreateParamsStreaming)  # held while its iterators are read
    exhaust(adapter.validate_python(body))


def by_openai_responses(body):
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from pydantic import TypeAdapter

    adapter = TypeAdapter(ResponseCreateParamsStreaming)  # held while its iterators are read
    exhaust(adapter.validate_python(body))


def by_anthropic(body):
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    from pydantic import ConfigDict, TypeAdapter

    MessageCreateParamsStreaming.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    adapter = TypeAdapter(MessageCreateParamsStreaming)  # held while its iterators are read
    exhaust(adapter.validate_python(body))


def by_google(body):
    from google.genai import types

    for tool in body["tools"]:
        types.Tool.model_validate(tool)


JUDGES = {"chat": by_openai_chat, "responses": by_openai_responses, "messages": by_anthropic, "gemini": by_google}


@pytest.fixture(scope="module")
def declared(tmp_path_factory):
    """What models are told of the tools of all six, connected at once."""
    home = tmp_path_factory.mktemp("home")
    room = furnished(home)

    async def scenario():
        ensembles = [
            McpEnsemble(ServerSettings(name=name, command=command(room), environment={"HOME": str(home)}, pinned=False))
            for name, command in COMMANDS.items()
        ]
        await asyncio.gather(*[each.connect() for each in ensembles])
        try:
            return InvokerRegistry(ensembles).declarations
        finally:
            await asyncio.gather(*[each.disconnect() for each in ensembles])

    return asyncio.run(scenario())


def test_together_they_are_one_roster(declared):
    names = {each.name for each in declared}
    assert len(names) == len(declared) == sum(TOOLS.values()) + len(TOOLS)
    assert {f"{name}__read_result" for name in TOOLS} <= names


@pytest.mark.parametrize("wire", JUDGES)
def test_every_wire_takes_their_tools(declared, wire):
    """The providers' own types are the judges."""
    lowered = get_wire(wire).encode_request(Request("gpt-5", (UserCanister("hello"),), declared))
    body = json.loads(json.dumps(lowered.body))
    JUDGES[wire]({"stream": True, **body})
    told = [each for tool in body["tools"] for each in tool.get("functionDeclarations", [tool])]
    assert len(told) == len(declared)
