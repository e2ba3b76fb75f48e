import asyncio
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from callboard import execute_invoker
from callboard.configuration import (
    disconnect_ensembles,
    load_configuration,
    load_directory,
    load_mcp_json,
    load_settings,
    prepare_ensembles,
    read_servers,
)
from callboard.configuration.edit_config import add_server
from callboard.errors import CallboardError, CallerError, DescriptorError, ToolExecutionFailure
from callboard.execution import result_store
from callboard.mcp import ServerSettings, sanitize, settings

SERVER = Path(__file__).parents[1] / "vectors" / "mcp" / "server.py"

# seed-facts 2.7, and seed 000's mapping of servers
SEED = """
[mcp.weather]
transport = "stdio"
command = ["python", "-m", "weather_mcp_server"]
environment = { WEATHER_API_KEY = "env:WEATHER_API_KEY" }

[mcp.database]
transport = "http"
url = "http://localhost:8080/mcp"
headers = { Authorization = "env:DATABASE_TOKEN" }
"""
WEATHER = ServerSettings(
    name="weather",
    command=("python", "-m", "weather_mcp_server"),
    environment={"WEATHER_API_KEY": "env:WEATHER_API_KEY"},
)
DATABASE = ServerSettings(
    name="database",
    transport="http",
    url="http://localhost:8080/mcp",
    headers={"Authorization": "env:DATABASE_TOKEN"},
)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def table(tmp_path):
    """A table of a server that has these tools."""

    def table(*tools, **more):
        file = tmp_path / f"{'-'.join(tools)}.json"
        file.write_text(json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}))
        return {"command": [sys.executable, "-S", str(SERVER), str(file)], **more}

    return table


def settings_of(described):
    return [each.settings for each in described]


def test_the_seeds_tables(write, tmp_path):
    write("ensembles/servers.toml", SEED)
    write("ensembles/other.toml", "[ensemble]\nname = 'other'\n")
    loaded = load_directory(tmp_path / "ensembles")
    assert settings_of(loaded["mcp"]) == [WEATHER, DATABASE]
    assert [each.name for each in loaded["ensembles"]] == ["other"]
    assert loaded["mcp"][1].path == f"{tmp_path}/ensembles/servers.toml:7: mcp.database"


def test_in_the_settings(tmp_path):
    own = tmp_path / "callboard" / "callboard.toml"
    own.parent.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    own.write_text(f'trusted = ["{project}"]\n{SEED}')
    (project / "callboard.toml").write_text(
        '[mcp.database]\nurl = "http://other/mcp"\n[mcp.files]\ncommand = ["files"]'
    )
    settings = load_settings({}, project, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert [*settings.mcp] == ["weather", "database", "files"]
    assert settings.mcp["weather"].settings == WEATHER
    assert settings.mcp["database"].settings.url == "http://other/mcp"
    assert settings.sources["mcp"] == f"{own}, {project / 'callboard.toml'}"


def test_a_project_that_is_not_trusted_starts_nothing(tmp_path):
    (tmp_path / "callboard.toml").write_text('[mcp.x]\ncommand = ["rm", "-rf", "/"]')
    settings = load_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "none")})
    assert settings.mcp == {}
    assert "you do not trust this project: mcp;" in settings.notices[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mcp = 3", "1: mcp: not a table; write [mcp.NAME]"),
        ("[mcp]\nweather = 3", "2: mcp.weather: not a table; write [mcp.weather]"),
        ("[mcp.x]\ncomand = ['a']", "2: mcp.x.comand: unknown key; did you mean 'command'?"),
        ("[mcp.x]\nname = 'y'", "2: mcp.x.name: unknown key"),
        ("[mcp.x]\ncommand = 'a'", "2: mcp.x.command: not a list"),
        ("[mcp.x]\ntransport = 'stdio'", "1: mcp.x: no command; a server of the transport stdio needs one"),
        ("[mcp.x]\ntransport = 'http'", "1: mcp.x: no url; a server of the transport http needs one"),
        ("[mcp.x]\ntransport = 'sse'", "2: mcp.x.transport: 'sse' is not allowed"),
        ("[mcp.x]\nurl = 'file:///x'", "2: mcp.x.url: not a URL of http or https"),
        ("[mcp.x]\ncommand = ['a']\ntimeout = 0", "3: mcp.x.timeout: not more than 0"),
        ("[mcp.x]\ncommand = ['a']\nexpose = ['all']", "3: mcp.x.expose"),
        ("[mcp.x]\ncommand = ['a']\nprotocol = 'banana'", "3: mcp.x.protocol: 'banana' is not allowed"),
        ("[mcp.'']\ncommand = ['a']", '1: mcp."": a server\'s name has 1 to 64 characters'),
        ("[mcp.x]\ncommand = ['a']\n[ensemble]\n", "3: ensemble: no name"),
        ("[mcp.x]\ncommand = ['a']\n[other]\n", "3: other: unknown key"),
    ],
)
def test_tables_that_are_wrong(write, tmp_path, text, told):
    write("x.toml", text)
    with pytest.raises(DescriptorError) as caught:
        load_directory(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/x.toml:{told}")


def test_a_directory_is_taken_from_the_file(write, tmp_path):
    write("servers.toml", "[mcp.a]\ncommand = ['a']\ndirectory = 'data'\n[mcp.b]\ncommand = ['b']\ndirectory = '/b'")
    first, second = settings_of(load_directory(tmp_path)["mcp"])
    assert (first.directory, second.directory) == (str(tmp_path / "data"), "/b")


# mcp.json


def test_the_files_of_other_clients(write):
    path = write(
        "mcp.json",
        json.dumps(
            {
                "mcpServers": {
                    "files": {
                        "command": "npx",
                        "args": ["-y", "@scope/files", "${HOME}/data", "${NONE:-all}"],
                        "env": {"KEY": "${env:KEY}", "PLAIN": "$5"},
                        "alwaysAllow": ["read"],
                    },
                    "web": {
                        "type": "http",
                        "url": "https://${HOST}/mcp",
                        "headers": {"Authorization": "Bearer ${KEY}"},
                    },
                    "short": {"url": "https://example.com/mcp", "protocol": "legacy"},
                    "off": {"command": "${UNSET}", "disabled": True},
                }
            }
        ),
    )
    environ = {"HOME": "/home/me", "KEY": "secret", "HOST": "example.com"}
    files, web, short, off = settings_of(load_mcp_json(path, environ))
    assert files == ServerSettings(
        name="files",
        command=("npx", "-y", "@scope/files", "/home/me/data", "all"),
        environment={"KEY": "secret", "PLAIN": "$5"},
    )
    assert (web.transport, web.url) == ("http", "https://example.com/mcp")
    assert web.headers == {"Authorization": "Bearer secret"}
    assert (short.transport, short.url, short.protocol) == ("http", "https://example.com/mcp", "legacy")
    assert off.enabled is False


@pytest.mark.parametrize("keys", [("tools", "exclude"), ("includeTools", "excludeTools")])
def test_tools_are_chosen_in_the_words_of_other_clients(write, keys):
    chosen = dict(zip(keys, (["read_*"], ["read_all"]), strict=True))
    path = write("mcp.json", json.dumps({"mcpServers": {"files": {"command": "npx", **chosen}}}))
    (files,) = settings_of(load_mcp_json(path, {}))
    assert (files.tools, files.exclude) == (("read_*",), ("read_all",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", ":1: not JSON: Expecting property name enclosed in double quotes"),
        ("[]", ": no servers in it; write "),
        ('{"mcpServers": []}', ": no servers in it; write "),
        ('{"mcpServers": {\n"a": 3}}', ":2: mcpServers.a: not an object"),
        (
            '{"mcpServers": {"a": {\n"command": "${NO}"}}}',
            ":2: mcpServers.a.command: the environment has no 'NO'; set NO",
        ),
        ('{"mcpServers": {"a": {}}}', ":1: mcpServers.a: no command"),
        ('{"mcpServers": {"a": {"command": ["x"]}}}', ":1: mcpServers.a.command: not a string"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', ":1: mcpServers.a.args: not a list"),
        ('{"mcpServers": {"a": {\n"type": "sse", "url": "x"}}}', ":2: mcpServers.a.type: no transport 'sse'; ask for"),
        ('{"mcpServers": {"a": {"type": "http", "url": "x"}}}', ":1: mcpServers.a.url: not a URL"),
        ('{"mcpServers": {"a": {"url": "http://x", "protocol": 3}}}', ":1: mcpServers.a.protocol: 3 is not allowed"),
        ('{"mcpServers": {"a": {"command": "x",\n"tools": "y"}}}', ":2: mcpServers.a.tools: not a list"),
    ],
)
def test_files_of_other_clients_that_are_wrong(write, text, told):
    path = write("mcp.json", text)
    with pytest.raises(DescriptorError) as caught:
        load_mcp_json(path, {})
    assert str(caught.value).startswith(f"{path}{told}")


def test_no_such_file(tmp_path):
    with pytest.raises(DescriptorError, match=r"mcp\.json: No such file"):
        load_mcp_json(tmp_path / "mcp.json")


# connected


def prepared(configuration, use=lambda ensembles: ensembles, **options):
    async def scenario():
        ensembles = await prepare_ensembles(configuration, **options)
        try:
            used = use(ensembles)
            return await used if asyncio.iscoroutine(used) else used
        finally:
            await disconnect_ensembles(ensembles)

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def names(ensembles):
    return {each.name: [*each.invokers] for each in ensembles}


def test_servers_stand_behind_the_ensembles_and_share_a_reader(table):
    configuration = load_configuration(["io"]) | {"mcp": {"a": table("one"), "b": table("two", "three")}}
    assert prepared(configuration, names) == {
        "io": ["read_file", "write_file", "list_directory"],
        "a": ["one"],
        "b": ["two", "three"],
        "results": ["read_result"],
    }


def test_only_what_is_named_passes(table, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.setenv("INHERITED", "inherited")
    given = table("environment", environment={"MINE": "env:GIVEN", "PLAIN": "1"}, inherit=["INHERITED"])

    async def asked(ensembles):
        return await execute_invoker(ensembles[0].access_invoker("environment"), {})

    seen = json.loads(prepared({"mcp": {"a": given}}, asked).text)
    assert seen.items() >= {"MINE": "given", "PLAIN": "1", "INHERITED": "inherited"}.items()
    assert "s3cret" not in seen.values()
    assert seen["PATH"] == os.environ["PATH"]


def test_one_that_fails_leaves_the_others_alone(table):
    told = []
    configuration = {
        "mcp": {
            "missing": {"command": ["/nowhere/at/all"]},
            "unset": table("x", environment={"KEY": "env:NOT_SET_AT_ALL"}),
            "dies": {"command": [sys.executable, "-S", "-c", "raise SystemExit('last words')"]},
            "good": table("one"),
            "off": {"enabled": False},
        }
    }
    found = prepared(configuration, names, warn=told.append)
    assert found == {"missing": [], "unset": [], "dies": [], "good": ["one"], "results": ["read_result"]}
    lines = [f'MCP server "{name}" is unreachable. Continuing without it.' for name in ("missing", "unset", "dies")]
    assert [text.split("\n")[0] for text in told] == lines
    assert "/nowhere/at/all cannot be started" in told[0]
    assert "NOT_SET_AT_ALL" in told[1]
    assert "last words" in told[2]


def test_one_that_is_required_ends_it(table):
    configuration = {"mcp": {"good": table("one"), "bad": {"command": ["/nowhere/at/all"], "required": True}}}
    with pytest.raises(ToolExecutionFailure, match=r"ensemble bad: cannot connect: .*/nowhere/at/all"):
        prepared(configuration)


def test_two_of_one_name(table):
    described = read_servers({"io": table("one")})
    with pytest.raises(DescriptorError, match="two ensembles are named 'io'"):
        prepared({**load_configuration(["io"]), "mcp": described})
    with pytest.raises(DescriptorError, match="two ensembles are named 'io'"):
        prepared({"ensembles": [], "mcp": [*described, *read_servers({"io": table("two")})]})


# written


def test_a_server_is_added_to_a_file_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "callboard.toml"
    path.write_bytes(b"\xef\xbb\xbfmodel = 'x'\n")
    add_server(path, "one", {"transport": "stdio", "command": ["a"]})
    assert tomllib.loads(path.read_text("utf-8"))["mcp"]["one"]["command"] == ["a"]


def test_a_server_is_added_to_what_is_there(tmp_path):
    path = tmp_path / "callboard" / "callboard.toml"
    add_server(path, "one", {"transport": "stdio", "command": ["a", 'b "c"\n\x7f']})
    path.write_text(f"# mine\nmodel = 'x'  # this one\n{path.read_text()}".rstrip("\n"))
    before = path.read_text()
    add_server(path, "two words", {"transport": "http", "url": "https://x/y", "headers": {"A b": "env:C"}})
    assert path.read_text().startswith(before)
    assert path.stat().st_mode & 0o777 == 0o600
    servers = load_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)}).mcp
    assert servers["one"].settings.command == ("a", 'b "c"\n\x7f')
    assert servers["two words"].settings.headers == {"A b": "env:C"}


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("one", {"command": ["b"]}, "callboard.toml:2: mcp.one: a server with this name exists"),
        ("two", {"comand": ["b"]}, "mcp.two.comand: unknown key; did you mean 'command'?"),
        ("two", {"transport": "stdio"}, "mcp.two: no command"),
    ],
)
def test_what_cannot_be_added(tmp_path, name, table, told):
    path = tmp_path / "callboard.toml"
    path.write_text("model = 'x'\n[mcp.one]\ncommand = ['a']\n")
    before = path.read_text()
    with pytest.raises(CallerError) as caught:
        add_server(path, name, table)
    assert told in str(caught.value)
    assert path.read_text() == before


def test_a_file_whose_servers_are_one_value(tmp_path):
    path = tmp_path / "callboard.toml"
    path.write_text("mcp = { one = { command = ['a'] } }\n")
    with pytest.raises(CallboardError, match=r"cannot be added: .*write it yourself"):
        add_server(path, "two", {"command": ["b"]})


# documented

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "mcp.md").read_text("utf-8").split())


def test_figures_of_the_page():
    assert (
        f"larger than {sanitize.SCHEMA_BYTES // 1024} KB or has more than {sanitize.MAX_PROPERTIES} properties" in PAGE
    )
    assert f"the newest {result_store.MAX_KEPT} results" in PAGE
    assert all(f"`{name}`" in PAGE for name in settings.PASSED_VARIABLES)
