from __future__ import annotations

from pathlib import Path

import pytest
from acp.schema import AcpMcpServer, EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer
from msgspec.structs import replace

from callboard.configuration import DescribedServer, load_settings
from callboard.errors import CallerError
from callboard.mcp.settings import ServerSettings
from callboard.servers.acp.agent import MAX_SERVERS, describe_servers

PROGRAM = McpServerStdio(name="small", command="/bin/small", args=["-v"], env=[EnvVariable(name="A", value="1")])
REMOTE = HttpMcpServer(
    type="http", name="far", url="https://far.example/mcp", headers=[HttpHeader(name="K", value="v")]
)


@pytest.fixture
def settings(tmp_path):
    return load_settings({}, tmp_path, {})


def test_a_server_is_described_as_ours_are(settings):
    program, remote = [each.settings for each in describe_servers([PROGRAM, REMOTE], settings)]
    assert (program.command, program.environment, program.inherit) == (("/bin/small", "-v"), {"A": "1"}, ())
    assert (program.directory, program.pinned) == (str(Path.home()), True)
    assert (remote.url, remote.headers, remote.transport) == ("https://far.example/mcp", {"K": "v"}, "http")


def test_what_our_settings_say_of_a_server_holds(settings):
    own = DescribedServer(ServerSettings(name="small", command=("other",), enabled=False), "callboard.toml")
    assert describe_servers([PROGRAM], replace(settings, mcp={"small": own})) == [own]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (PROGRAM.model_copy(update={"name": "coding"}), "use another name"),
        (PROGRAM.model_copy(update={"name": "a\nb"}), "characters that are seen"),
        (PROGRAM.model_copy(update={"env": [EnvVariable(name="A", value="env:HOME")]}), "begins with env:"),
        (REMOTE.model_copy(update={"headers": [HttpHeader(name="K", value="env:KEY")]}), "begins with env:"),
        (REMOTE.model_copy(update={"url": "file:///etc/passwd"}), "http or https"),
        (SseMcpServer(type="sse", name="old", url="https://old.example", headers=[]), "is not supported"),
        (AcpMcpServer(type="acp", name="inner", server_id="1"), "is not supported"),
    ],
)
def test_what_cannot_be_a_server_is_refused(settings, server, why):
    with pytest.raises(CallerError, match=why):
        describe_servers([server], settings)


def test_a_name_stands_for_one_server(settings):
    with pytest.raises(CallerError, match="use another name"):
        describe_servers([PROGRAM, PROGRAM], settings)
    many = [PROGRAM.model_copy(update={"name": f"n{number}"}) for number in range(MAX_SERVERS + 1)]
    with pytest.raises(CallerError, match="more than 64 servers"):
        describe_servers(many, settings)
