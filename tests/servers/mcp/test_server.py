import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NotRequired

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.shared.inbound import x_mcp_header_map
from pydantic import BaseModel, Field
from tests.servers.mcp.conftest import User
from typing_extensions import TypedDict

from callboard import Context, Ensemble, tool
from callboard.core import FileContent, PictureContent, TextualContent
from callboard.servers.mcp import call as calls
from callboard.servers.mcp.server import CATEGORY, ToolServer
from callboard.tools import Invoker, Policy


@tool(idempotent=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def facts() -> dict[str, int]:
    """Some facts."""
    return {"one": 1}


@tool
def show() -> list[object]:
    """Shows things."""
    return [
        TextualContent("a picture:"),
        PictureContent(b"\x89PNG"),
        PictureContent(url="https://example.org/a.png"),
        FileContent(b"RIFF", mime_type="audio/wav"),
        FileContent(b"hello", mime_type="text/plain", name="a b.txt"),
        FileContent(b"\x00", name="b"),
        FileContent(url="https://example.org/c.pdf", name="c.pdf", mime_type="application/pdf"),
    ]


@tool
def fail() -> str:
    """Fails."""
    raise ConnectionError("no route")


@tool(timeout=0.01)
async def sleep() -> None:
    """Sleeps."""
    await asyncio.sleep(60)


@tool(approval=True)
def deploy(where: str) -> str:
    """Deploys."""
    return f"deployed to {where}"


HOME = Ensemble("home", [add, facts, show, fail, sleep, deploy])


async def test_tools_have_the_names_they_have_on_wires(talk):
    other = Ensemble("other", [tool(name="add")(lambda: None), tool(name="weird name")(lambda: None)])

    async with talk(ToolServer([HOME, other])) as client:
        tools = (await client.list_tools()).tools
    assert [each.name for each in tools] == [
        "home__add", "facts", "show", "fail", "sleep", "deploy", "other__add", "weird_name",
    ]  # fmt: skip
    first = tools[0]
    assert first.description == "Add two numbers."
    assert first.input_schema == add.schema
    assert first.annotations.idempotent_hint


@pytest.mark.parametrize(
    ("called", "content", "structured"),
    [
        (("add", {"a": "2"}), [types.TextContent(text="3")], None),
        (("facts", None), [types.TextContent(text='{"one":1}')], {"one": 1}),
        (
            ("show", {}),
            [
                types.TextContent(text="a picture:"),
                types.ImageContent(data="iVBORw==", mime_type="image/png"),
                types.ResourceLink(uri="https://example.org/a.png", name="picture", mime_type="image/png"),
                types.AudioContent(data="UklGRg==", mime_type="audio/wav"),
                types.EmbeddedResource(
                    resource=types.TextResourceContents(uri="callboard:a%20b.txt", mime_type="text/plain", text="hello")
                ),
                types.EmbeddedResource(
                    resource=types.BlobResourceContents(
                        uri="callboard:b", mime_type="application/octet-stream", blob="AA=="
                    )
                ),
                types.ResourceLink(uri="https://example.org/c.pdf", name="c.pdf", mime_type="application/pdf"),
            ],
            None,
        ),
    ],
)
async def test_results(talk, called, content, structured):
    async with talk(ToolServer([HOME])) as client:
        result = await client.call_tool(*called)
    assert (result.content, result.structured_content, result.is_error) == (content, structured, False)


@pytest.mark.parametrize(
    ("called", "category", "text"),
    [
        (("add", {"a": "x"}), "validation", "Error: ArgValidationError: a\n  Input should be a valid integer"),
        (("add", {"a": 1, "c": 2}), "validation", "Error: ArgValidationError: c\n  Extra inputs are not permitted"),
        (("fail", {}), "network", "Error: ConnectionError: no route"),
        (("sleep", {}), "timeout", "Error: Tool execution timed out. It had 0.01 s."),
    ],
)
async def test_failures_are_results_that_the_model_reads(talk, called, category, text):
    async with talk(ToolServer([HOME])) as client:
        result = await client.call_tool(*called)
    assert result.is_error
    assert result.meta[CATEGORY] == category
    assert result.content[0].text.startswith(text.rpartition("\n")[0] or text)


async def test_an_unknown_name_is_the_clients_mistake(talk):
    async with talk(ToolServer([HOME])) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("ad", {})
        error = raised.value
    assert error.code == types.INVALID_PARAMS
    assert "Unknown tool: ad" in error.message
    assert "'add'" in error.message


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (("accept", {"allow": True}), "deployed to mars"),
        (("accept", {"allow": False}), "Error: deploy may not run: the answer was no"),
        (("accept", {}), "Error: deploy may not run: the answer was no"),
        (("decline", None), "Error: deploy may not run: the answer was no"),
        (("cancel", None), "Error: deploy may not run: the answer was no"),
    ],
)
async def test_a_user_is_asked_before_what_wants_approval(talk, answer, text):
    asked = User(answer)
    async with talk(ToolServer([HOME]), elicitation_callback=asked) as client:
        result = await client.call_tool("deploy", {"where": "mars"})
    assert asked.asked == ['deploy always needs approval: deploy {"where": "mars"}']
    assert result.content[0].text == text


async def test_hidden_characters_are_shown_to_who_approves(talk):
    asked = User(("decline", None))
    async with talk(ToolServer([HOME]), elicitation_callback=asked) as client:
        await client.call_tool("deploy", {"where": "m\u202ears"})
    assert "m\\u202ears" in asked.asked[0]


async def test_without_a_user_what_wants_approval_does_not_run(talk):
    async with talk(ToolServer([HOME])) as client:
        result = await client.call_tool("deploy", {"where": "mars"})
    assert result.meta[CATEGORY] == "permission"
    assert "this client cannot be asked" in result.content[0].text


async def test_a_policy_decides(talk):
    server = ToolServer([HOME], policy=Policy([("home/deploy", "allow"), ("add", "deny")]))

    async with talk(server) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        allowed = await client.call_tool("deploy", {"where": "mars"})
        denied = await client.call_tool("add", {"a": 1})
    assert "deploy" in listed
    assert "add" not in listed
    assert allowed.content[0].text == "deployed to mars"
    assert denied.meta[CATEGORY] == "permission"


async def test_progress_and_log_messages_arrive(talk):
    @tool
    async def work(context: Context) -> str:
        """Works."""
        peer = context.auxdata["mcp"]
        await peer.progress(1, 2, "half")
        await peer.log("debug", "unwanted")
        await peer.log("warning", {"careful": True})
        return "done"

    steps, logged = [], []

    async def progress(*step):
        steps.append(step)

    async def log(params):
        logged.append((params.level, params.data))

    async with talk(ToolServer([Ensemble("e", [work])]), logging_callback=log, log_level="info") as client:
        if client.protocol_version < "2026":
            await client.session.send_request(
                types.SetLevelRequest(params=types.SetLevelRequestParams(level="info")), types.EmptyResult
            )
        result = await client.call_tool("work", {}, progress_callback=progress)
    assert result.content[0].text == "done"
    assert steps == [(1, 2, "half")]
    assert logged == [("warning", {"careful": True})]


async def test_a_cancelled_call_ends_its_tool(talk):
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Waits."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with talk(ToolServer([Ensemble("e", [wait])])) as client:
        task = asyncio.create_task(client.call_tool("wait", {}))
        await begun.wait()
        task.cancel()
        await ended.wait()
    assert ended.is_set()


async def test_no_more_calls_at_once_than_allowed(talk):
    together = asyncio.Barrier(3)
    running = most = 0

    @tool
    async def work() -> None:
        """Works."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await together.wait()
        running -= 1

    async with talk(ToolServer([Ensemble("e", [work])], limit=3)) as client:
        await asyncio.gather(*[client.call_tool("work", {}) for _ in range(12)])
    assert most == 3


async def test_a_tool_asks_several_things(talk):
    @tool
    async def ask(context: Context) -> str:
        """Asks."""
        peer = context.auxdata["mcp"]
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        first = await peer.elicit("first", schema)
        second = await peer.elicit("second", schema)
        return f"{first.content} {second.action}"

    asked = User(("accept", {"x": "1"}), ("decline", None))
    server = ToolServer([Ensemble("e", [ask])])
    async with talk(server, elicitation_callback=asked) as client:
        result = await client.call_tool("ask", {})
    assert result.content[0].text == "{'x': '1'} decline"
    assert asked.asked == ["first", "second"]


async def test_namespaces_last_as_long_as_their_client(talk):
    @tool
    async def count(context: Context) -> int:
        """Counts."""
        context.namespace["n"] = context.namespace.get("n", 0) + 1
        return context.namespace["n"]

    async with talk(ToolServer([Ensemble("e", [count])])) as client:
        assert [(await client.call_tool("count", {})).content[0].text for _ in range(3)] == ["1", "2", "3"]


async def test_clients_hear_of_new_tools(talk, era):
    ensemble = Ensemble("e", [add])
    server = ToolServer([ensemble])
    heard = asyncio.Event()

    async def handler(message):
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    async with talk(server, message_handler=handler) as client:
        before = [each.name for each in (await client.list_tools()).tools]
        ensemble.add_invoker(facts)
        if era == "legacy":
            await server.notify_changes()
            await heard.wait()
        else:
            async with client.listen(tools_list_changed=True) as changes:
                await server.notify_changes()
                await anext(aiter(changes))
        await server.notify_changes()
        assert (before, [each.name for each in (await client.list_tools(cache_mode="refresh")).tools]) == (
            ["add"],
            ["add", "facts"],
        )


async def test_what_is_deferred_is_not_served(talk):
    async def never(_context, _arguments):
        raise AssertionError

    later = Invoker("later", never, {"type": "object"}, deferred=True)

    async with talk(ToolServer([Ensemble("e", [later, add])])) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["add"]


class TestWaiting:
    """Calls of 2026-07-28 whose clients were asked something."""

    @pytest.fixture
    def era(self):
        return "2026-07-28"

    @staticmethod
    async def begun(client):
        return await client.session.call_tool("deploy", {"where": "mars"}, allow_input_required=True)

    @pytest.mark.parametrize(
        ("called", "change"),
        [
            (("deploy", {"where": "venus"}), ""),
            (("add", {"where": "mars"}), ""),
            (("deploy", {"where": "mars"}), "x"),
        ],
    )
    async def test_another_request_does_not_go_on_with_them(self, talk, called, change):
        async with talk(ToolServer([HOME]), elicitation_callback=User()) as client:
            asked = await self.begun(client)
            yes = dict.fromkeys(asked.input_requests, types.ElicitResult(action="accept", content={"allow": True}))
            with pytest.raises(MCPError) as raised:
                await client.session.call_tool(*called, input_responses=yes, request_state=asked.request_state + change)
            code = raised.value.code
        assert code == types.INVALID_PARAMS

    async def test_they_go_on_once(self, talk):
        async with talk(ToolServer([HOME]), elicitation_callback=User()) as client:
            asked = await self.begun(client)
            yes = dict.fromkeys(asked.input_requests, types.ElicitResult(action="accept", content={"allow": True}))
            again = {"input_responses": yes, "request_state": asked.request_state}
            result = await client.session.call_tool("deploy", {"where": "mars"}, **again)
            with pytest.raises(MCPError):
                await client.session.call_tool("deploy", {"where": "mars"}, **again)
        assert result.content[0].text == "deployed to mars"

    async def test_nothing_is_approved_before_it_is_asked(self, talk):
        async with talk(ToolServer([HOME]), elicitation_callback=User()) as client:
            asked = await self.begun(client)
            yes = dict.fromkeys(asked.input_requests, types.ElicitResult(action="accept", content={"allow": True}))
            result = await client.session.call_tool(
                "deploy", {"where": "mars"}, input_responses=yes, allow_input_required=True
            )
        assert isinstance(result, types.InputRequiredResult)

    async def test_the_oldest_ends_where_there_are_too_many(self, talk, monkeypatch):
        monkeypatch.setattr(calls, "MAX_WAITING", 1)

        async with talk(ToolServer([HOME]), elicitation_callback=User()) as client:
            first, second = await self.begun(client), await self.begun(client)
            codes = []
            for asked in (first, second):
                no = dict.fromkeys(asked.input_requests, types.ElicitResult(action="decline"))
                try:
                    await client.session.call_tool(
                        "deploy", {"where": "mars"}, input_responses=no, request_state=asked.request_state
                    )
                    codes.append(0)
                except MCPError as error:
                    codes.append(error.code)
            assert codes == [types.INVALID_PARAMS, 0]

    async def test_one_that_nobody_comes_back_for_is_cancelled(self):
        class Forgotten:
            def __init__(self):
                self.over = asyncio.Event()

            def cancel(self):
                self.over.set()

        call = Forgotten()
        calls.WaitingCalls(max_wait=0.0).keep(call)
        await call.over.wait()


class Place(TypedDict):
    name: str
    height: NotRequired[float]


@dataclass
class Weather:
    place: Place
    celsius: Decimal
    at: datetime


class Forecast(BaseModel):
    days: list[Weather] = Field(serialization_alias="aliased")


DAY = Weather({"name": "Oslo"}, Decimal("3.5"), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("returned", "value"), [(Place, {"name": "Oslo"}), (Weather, DAY), (Forecast, Forecast(days=[DAY]))]
)
async def test_what_a_typed_tool_returns_is_declared_and_is_so(talk, returned, value):
    def look():
        """Looks."""
        return value

    look.__annotations__["return"] = returned

    async with talk(ToolServer([Ensemble("e", [tool(look)])])) as client:
        (listed,) = (await client.list_tools()).tools
        answer = await client.call_tool("look", {})
    assert listed.output_schema["type"] == "object"
    assert answer.structured_content.keys() >= set(listed.output_schema["required"])
    assert not answer.is_error


@pytest.mark.parametrize("returned", [str, int, dict, dict[str, int], list[Place], Place | None, Any, None, "Unknown"])
async def test_where_no_object_is_annotated_nothing_is_declared(talk, returned):
    def look():
        """Looks."""
        return {"name": "Oslo"}

    look.__annotations__["return"] = returned

    async with talk(ToolServer([Ensemble("e", [tool(look)])])) as client:
        listed, answer = (await client.list_tools()).tools[0], await client.call_tool("look", {})
    assert listed.output_schema is None
    assert answer.structured_content == {"name": "Oslo"}


async def test_a_result_that_is_not_as_declared_is_an_error_with_what_it_is(talk):
    @tool
    def look() -> Place:
        """Looks."""
        return {"height": "high"}

    async with talk(ToolServer([Ensemble("e", [look])])) as client:
        await client.list_tools()
        answer = await client.call_tool("look", {})
    assert (answer.is_error, answer.meta[CATEGORY]) == (True, "execution")
    assert [part.text for part in answer.content] == [
        '{"height":"high"}',
        "This is not what the tool's outputSchema says.",
    ]


def test_headers_that_repeat_arguments_are_checked_against_the_schema():
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    where = Invoker("where", lambda _, arguments: arguments["region"], schema)
    protocol = ToolServer([Ensemble("e", [where])]).protocol
    assert x_mcp_header_map(protocol.get_tool_input_schema("where")) == {("region",): "Region"}
