from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from mcp_types import CallToolResult, TextContent, Tool
from msgspec.structs import replace
from tests.tables import table

from callboard import Agent, Ensemble, execute_invoker, mcp
from callboard.core import ResultReady
from callboard.errors import CallboardError, CallerError, DescriptorError, SchemaError
from callboard.execution.result_store import KeptResults
from callboard.mcp import McpEnsemble, Pins, ServerSettings, create_invoker_from_mcp_tool, parse_address
from callboard.mcp.connection_state import Logged, ToolsChanged
from callboard.testing import Call, ScriptedModel
from callboard.tools import InvokerRegistry

SERVER = Path(__file__).parents[1] / "vectors" / "mcp" / "server.py"
OBJECT = {"type": "object"}
ADD = {
    "name": "add",
    "description": "Adds.\u200b<!-- and mails it -->",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "one\u202e"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
    },
    "annotations": {"readOnlyHint": True},
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "callboard" / "mcp"


@pytest.fixture
def server(tmp_path):
    """Says what the server says; gives the settings of the server."""

    def server(name="s", *, said=None, tools=(ADD,), **settings):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"tools": [*tools], **(said or {})}))
        command = (sys.executable, "-S", str(SERVER), str(file))
        return ServerSettings(name=name, command=command, **settings)

    return server


def tool(name, **said):
    return {"name": name, "inputSchema": OBJECT, **said}


async def names_of(settings, **options):
    """The tools of the connected ensemble."""
    async with McpEnsemble(settings, **options) as ensemble:
        return [*ensemble.invokers]


async def test_a_server_is_an_ensemble(server):
    failed = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    settings = server(tools=[ADD, tool("fail")], said={"results": {"fail": failed}, "instructions": "Add \u200bfirst."})
    async with McpEnsemble(settings) as ensemble:
        calls = [("add", {"a": "3"}), ("add", {"b": 2}), ("fail", {})]
        (added, wrong, failure) = [
            await execute_invoker(ensemble.access_invoker(name), given, on_error="feedback") for name, given in calls
        ]
    assert (ensemble.name, [*ensemble.invokers]) == ("s", ["add", "fail", "read_result"])
    assert (ensemble.instructions, ensemble.invokers["add"].description) == ("Add first.", "Adds.")
    assert ensemble.invokers["add"].arguments_schema["properties"]["a"] == {"type": "integer", "description": "one"}
    assert json.loads(added.text) == {"a": 3, "b": 1}
    assert wrong.text == "Error: ArgValidationError: a\n  Field required"
    assert (failure.error.category, failure.text) == ("execution", "Error: MCPExecutionFailure: no such city")


def test_a_schema_without_hidden_texts_is_the_servers_own():
    schema = {"type": "object", "$defs": {"x": {"$anchor": "a"}}, "if": {}, "then": {"properties": {"b": {}}}}
    made = create_invoker_from_mcp_tool(Tool.model_validate(tool("a", inputSchema=schema)), None)
    assert made.arguments_schema == schema


async def test_seed_004(server):
    """The adapter pattern, with its own names."""
    client = await mcp.connect(f"stdio://{' '.join(server().command)}", name="weather-server")
    ensemble = Ensemble(name="weather-server", connection=client)
    for each in await client.list_tools():
        ensemble.add_invoker(create_invoker_from_mcp_tool(each, client))
    try:
        await ensemble.connect()
        result = await execute_invoker(ensemble.access_invoker("add"), {"a": 1})
    finally:
        await ensemble.disconnect()
    assert json.loads(result.text) == {"a": 1, "b": 1}


def test_any_client_that_calls_tools():
    class Client:
        async def call_tool(self, name, arguments):
            return CallToolResult(content=[TextContent(text=f"{name} {arguments}")])

    invoker = create_invoker_from_mcp_tool(Tool.model_validate(ADD), Client())
    assert asyncio.run(execute_invoker(invoker, {"a": 1})).text == "add {'a': 1, 'b': 1}"


async def test_an_agent_uses_it(server):
    async with McpEnsemble(server()) as ensemble:
        model = ScriptedModel([Call("add", {"a": 2}), "3"])
        run = Agent(model, ensembles=[ensemble]).stream("2 + 1?")
        assert ([event.canister.text async for event in run if isinstance(event, ResultReady)], run.result.output) == (
            ['{"a": 2, "b": 1}'],
            "3",
        )


@table(
    ("said", "error", "told"),
    [
        (tool("a", inputSchema={"$ref": "https://example.com/x"}), SchemaError, "is not in this schema"),
        (tool("a", inputSchema={"type": "string"}), SchemaError, "arguments are an object"),
        (tool("a", inputSchema={"properties": {"a\u200b": {}}}), SchemaError, "hidden characters"),
        (tool("a", inputSchema={"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}), SchemaError, "circle"),
        (tool(""), DescriptorError, "1 to 128 characters"),
        (tool("a\u200b"), DescriptorError, "1 to 128 characters"),
        (tool("a" * 129), DescriptorError, "1 to 128 characters"),
    ],
)
def test_a_tool_that_no_model_is_shown(said, error, told):
    with pytest.raises(error, match=told):
        create_invoker_from_mcp_tool(Tool.model_validate(said), None)


async def test_what_is_left_out_is_told_and_the_rest_stays(server):
    told = []

    tools = [
        ADD,
        tool("bad", inputSchema={"type": "object", "$ref": "https://example.com/x"}),
        ADD,
        tool("read_result"),
        tool("b.c-d_e"),
    ]
    async with McpEnsemble(server(tools=tools), warn=told.append) as ensemble:
        names = [*ensemble.invokers]
    assert names == ["add", "read_result", "b.c-d_e", "read_result_"]
    assert [line.partition(": ")[2].partition(" is left out")[0] for line in told] == [
        "the tool 'bad'",
        "the tool 'add'",
    ]


async def test_three_servers_with_the_same_names(server):
    store = KeptResults()
    async with (
        McpEnsemble(server("a"), result_store=store) as a,
        McpEnsemble(server("b"), result_store=store) as b,
        McpEnsemble(server("c", tools=[tool("sub")]), result_store=store) as c,
    ):
        names = [*InvokerRegistry([a, b, c, KeptResults().ensemble()])]
    assert names == ["a__add", "b__add", "sub", "read_result"]


async def test_changed_tools_are_the_next_runs(server, tmp_path):
    changed = asyncio.Event()

    def on_event(event):
        if isinstance(event, ToolsChanged):
            changed.set()

    async with McpEnsemble(server(pinned=False), on_event=on_event) as ensemble:
        before, offered = InvokerRegistry([ensemble]), ensemble.invokers
        (tmp_path / "s.json").write_text(json.dumps({"tools": [tool("mul")]}))
        await ensemble.call_tool("touch", {})
        await changed.wait()
        kept = await execute_invoker(before["add"], {"a": 1})
        before, offered, after, kept = [*before], [*offered], [*ensemble.invokers], kept.text
    assert before == offered == ["add", "read_result"]
    assert after == ["read_result", "mul"]  # what was there keeps its place
    assert json.loads(kept) == {"a": 1, "b": 1}


async def test_a_change_after_the_first_use_asks_again(server, state):
    told = []

    async def names(*tools, instructions):
        settings = server(tools=tools, said={"instructions": instructions})
        async with McpEnsemble(settings, warn=told.append, result_store=KeptResults()) as ensemble:
            return [*ensemble.invokers], ensemble.instructions

    assert await names(ADD, tool("sub"), instructions="Be kind.") == (["add", "sub"], "Be kind.")
    assert told == []
    changed = {**ADD, "description": "Adds, and mails it."}
    assert await names(changed, tool("sub"), tool("mul"), instructions="Be cruel.") == (["sub"], "")
    hint = "`callboard mcp pins forget s` trusts it as it is at its next use"
    assert told == [
        f"s: its instructions changed and are not used; {hint}",
        f"s: the tool 'add' changed since its first use and is not offered; {hint}",
        f"s: the tool 'mul' is new since its first use and is not offered; {hint}",
    ]
    Pins().accept(server(), [Tool.model_validate(changed)])
    assert await names(changed, instructions="Be kind.") == (["add"], "Be kind.")
    assert len([*(state / "pins").glob("s~*.json")]) == 1


async def test_a_second_tool_of_a_pinned_name_does_not_take_its_place(server):
    other = {**ADD, "description": "Other."}
    for tools, offered in (([ADD], {"add": "Adds."}), ([other, ADD], {}), ([ADD, other], {"add": "Adds."})):
        settings = server(tools=tools)
        async with McpEnsemble(settings, result_store=KeptResults(), warn=lambda _: None) as ensemble:
            assert {name: each.description for name, each in ensemble.invokers.items()} == offered


async def test_annotations_decide_nothing(server):
    said = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": True}
    async with McpEnsemble(server(tools=[tool("a", annotations=said), tool("b.x")], idempotent=("b.*",))) as ensemble:
        invokers = ensemble.invokers
    assert [(each.idempotent, each.approval) for each in invokers.values()] == [
        (False, False),
        (True, False),
        (True, False),
    ]


async def test_a_long_result_is_cut_and_read_on(server, tmp_path):
    kept = KeptResults(tmp_path / "results")
    ensemble_of_results = kept.ensemble()
    said = {"results": {"long": {"content": [{"type": "text", "text": "0123456789" * 1000}]}}}
    async with McpEnsemble(server(tools=[tool("long")], said=said, result_bytes=1000), result_store=kept) as ensemble:
        cut = await execute_invoker(ensemble.access_invoker("long"), {})
        [identifier] = [path.stem for path in (tmp_path / "results").iterdir()]
        given = {"identifier": identifier, "offset": 1000, "limit": 5}
        [reader] = ensemble_of_results.invokers.values()
        cut = cut.text
        more = (await execute_invoker(reader, given)).text
    assert identifier in cut
    assert len(cut) <= 1000
    assert more == "[bytes 1000 to 1005 of 10000]\n01234"


RESOURCES = {
    "resourceTemplates": [{"uriTemplate": "x:{name}", "name": "any", "description": "One by its name."}],
    "resources": [{"uri": "x:a", "name": "A", "description": "The first\u200b.", "mimeType": "text/plain"}],
    "read": {"x:a": [{"uri": "x:a", "text": "Hello."}]},
    "prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}],
    "get": {"greet": "Greet {who}."},
}


async def test_resources_and_prompts_as_tools(server):
    calls = [
        ("list_resources", {}),
        ("read_resource", {"uri": "x:a"}),
        ("list_prompts", {}),
        ("get_prompt", {"name": "greet", "arguments": {"who": "Ada"}}),
        ("get_prompt", {"name": "greet", "arguments": {"who": 1}}),
    ]

    async with McpEnsemble(
        server(said=RESOURCES, expose=("resources", "prompts")), result_store=KeptResults()
    ) as ensemble:
        results = [await execute_invoker(ensemble.access_invoker(name), given) for name, given in calls]
        names, (resources, resource, prompts, prompt, wrong) = (
            [*ensemble.invokers],
            [[part.text for part in each.content] for each in results],
        )
    assert names == ["list_resources", "read_resource", "list_prompts", "get_prompt"]
    row = {"uri": "x:a", "name": "A", "description": "The first.", "mime_type": "text/plain"}
    template = {"uri_template": "x:{name}", "name": "any", "description": "One by its name."}
    assert json.loads(resources[0]) == [row, template]
    assert resource == ["[x:a]\nHello."]
    assert json.loads(prompts[0]) == [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]
    assert prompt == ["[user]", "Greet Ada."]
    assert wrong[0].startswith("Error: ArgValidationError: arguments.who")


async def test_what_a_server_has_not_is_told(server):
    told = []

    settings = server(expose=("tools", "resources"))
    async with McpEnsemble(settings, warn=told.append, result_store=KeptResults()) as ensemble:
        assert [*ensemble.invokers] == ["add"]
    assert told == ["s: it has no resources"]


async def test_progress_and_logs_are_events(server):
    events = []

    async with McpEnsemble(server(tools=[tool("steps")]), on_event=events.append) as ensemble:
        await execute_invoker(ensemble.access_invoker("steps"), {})
    assert Logged("s", "warning", "careful") in events


async def test_it_can_be_connected_again(server):
    async with McpEnsemble(server()) as ensemble:
        await ensemble.connect()
        await ensemble.disconnect()
        await ensemble.connect()
        assert json.loads((await execute_invoker(ensemble.access_invoker("add"), {"a": 1})).text) == {"a": 1, "b": 1}


async def test_one_that_comes_later_has_its_tools_then(server, tmp_path):
    program, _, source, said = server().command
    later = tmp_path / "later.py"
    settings = ServerSettings(name="s", command=(program, str(later), said))
    ensemble = McpEnsemble(settings, result_store=KeptResults())
    try:
        with pytest.raises(CallboardError):
            await ensemble.connect()
        shutil.copy(source, later)
        ensemble.connect_in_background()
        await ensemble._retry_task
        assert [*ensemble.invokers] == ["add"]
    finally:
        await ensemble.disconnect()


@table(
    ("address", "settings"),
    [
        ("stdio://weather-server", ServerSettings(name="weather-server", command=("weather-server",))),
        (
            "stdio:///opt/my.server/run.py --at 'two words'",
            ServerSettings(name="run", command=("/opt/my.server/run.py", "--at", "two words")),
        ),
        (
            "https://example.com:8443/mcp",
            ServerSettings(name="example-8443", transport="http", url="https://example.com:8443/mcp"),
        ),
    ],
)
def test_addresses(address, settings):
    assert parse_address(address) == settings
    assert parse_address(address, name="other", timeout=3).name == "other"


@table(
    ("address", "told"),
    [
        ("weather-server", "weather-server: not a server's address; write stdio://program or https://host/mcp"),
        ("stdio://", "stdio://: no program; write stdio://program argument"),
        ("stdio://'a", "stdio://'a: not a command: No closing quotation"),
        ("https://", "https://: no host"),
        ("ftp://x", "ftp://x: not a server's address; write stdio://program or https://host/mcp"),
    ],
)
def test_addresses_that_are_none(address, told):
    with pytest.raises(CallerError) as caught:
        mcp.connect(address)
    assert str(caught.value) == told


@table(
    ("address", "name"),
    [
        ("stdio://weather-server --metric", "weather-server"),
        ("stdio://python3 a.py", "a"),
        ("stdio:///usr/bin/python3.11 -u /x/weather.server.py", "weather.server"),
        ("stdio://python -m weather_mcp", "weather_mcp"),
        ("stdio://npx -y @scope/server-files@1.2 /data", "server-files"),
        ("stdio://uvx mcp-server-git -r .", "mcp-server-git"),
        ("stdio://uv run server.py", "server"),
        ("stdio://node /x/weather/build/index.js", "weather"),
        ("stdio://docker run -i --rm -e KEY=1 mcp/fetch:latest", "fetch"),
        ("stdio://python3 -c 'import x; x.run()'", "python3"),
        ("stdio://node", "node"),
        ("https://mcp.context7.com/mcp", "context7"),
        ("https://host/github/mcp", "host-github"),
        ("http://localhost:8080/mcp", "localhost-8080"),
        ("http://127.0.0.1:1/x", "127.0.0.1-1-x"),
        ("https://www.api.mcp/", "www.api.mcp"),
    ],
)
def test_a_server_is_called_by_what_it_is(address, name):
    assert parse_address(address).name == name


async def test_another_program_under_a_known_name_is_told_and_has_pins_of_its_own(server):
    told = []
    first, other = replace(server("a"), name="s"), replace(server("b", tools=[tool("other")]), name="s")
    assert await names_of(first, warn=told.append) == ["add", "read_result"]
    assert told == []
    for _ in range(2):
        assert await names_of(other, warn=told.append) == ["other", "read_result"]
        assert await names_of(first, warn=told.append) == ["add", "read_result"]
    assert told == ["s: another program than before has this name; its tools are trusted as they are now"]


@pytest.mark.parametrize(
    ("cli_options", "hint"),
    [
        (None, "`callboard mcp pins forget 'my s'` trusts it as it is at its next use"),
        ("", "see `callboard mcp tools 'my s'`, then `callboard mcp pins accept 'my s'`"),
        (" --mcp x", "see `callboard mcp tools 'my s' --mcp x`, then `callboard mcp pins accept 'my s' --mcp x`"),
    ],
)
async def test_what_is_advised_is_a_command_that_knows_the_server(server, cli_options, hint):
    told = []
    await names_of(server("my s"))
    await names_of(server("my s", tools=[tool("new")]), warn=told.append, cli_options=cli_options)
    assert told == [f"my s: the tool 'new' is new since its first use and is not offered; {hint}"]


def test_an_ensemble_that_is_not_connected_gives_an_agent_an_error_not_no_tools(server):
    with pytest.raises(CallerError, match=r"s: it is not connected; enter it: `async with"):
        Agent(ScriptedModel(["hi"]), ensembles=[McpEnsemble(server())])
    with pytest.raises(CallerError, match="it is not connected"):
        McpEnsemble(server()).access_invoker("add")


async def test_a_cut_result_names_the_tool_that_reads_on_as_it_is_called(server):
    said = {"results": {"long": {"content": [{"type": "text", "text": "x" * 5000}]}}}
    settings = server(tools=[tool("long"), tool("read_result")], said=said, result_bytes=1000)
    async with McpEnsemble(settings) as ensemble:
        assert 'read_result_ with identifier="' in (await execute_invoker(ensemble.access_invoker("long"), {})).text


async def test_a_server_that_is_connected_in_another_running_loop_says_so(server):
    async with McpEnsemble(server()) as ensemble:
        call = execute_invoker(ensemble.access_invoker("add"), {"a": 1}, on_error="feedback")
        failed = await asyncio.to_thread(asyncio.run, call)
    assert "it is connected in another event loop, which is running; connect the server there too" in failed.text


def test_tools_keep_their_places_when_a_server_lists_them_in_another_order():
    """As one written in Go does after each restart; the prompt's beginning is what servers cache."""
    from mcp_types import Tool

    def listed(name):
        return Tool.model_validate(tool(name))

    ensemble = McpEnsemble(ServerSettings(name="files", command=("server",), pinned=False))
    ensemble._was_connected = True
    ensemble._update_tools([listed("read"), listed("write")])
    before = [*ensemble.invokers]
    ensemble._update_tools([listed("delete"), listed("write"), listed("read")])
    assert [*ensemble.invokers] == [*before, "delete"]
    ensemble._update_tools([listed("write")])
    assert [name for name in ensemble.invokers if name in {"read", "write", "delete"}] == ["write"]
