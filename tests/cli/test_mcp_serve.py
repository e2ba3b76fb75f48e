"""`callboard mcp serve` in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from callboard.errors import CallerError

LIMIT = 60  # seconds; against a test that hangs, not part of what it asserts
TOOLS = '''
import os, subprocess, sys
from callboard import Agent, tool
from callboard.testing import ScriptedModel

@tool
def add(a: int, b: int) -> int:
    """Add."""
    print("a tool prints")
    subprocess.run(["echo", "its child too"])
    os.write(1, b"and the system\\n")
    return a + b

@tool
def read() -> str:
    """Reads standard input."""
    return sys.stdin.read()

@tool(approval=True)
def deploy() -> str:
    """Deploys."""
    return "deployed"

agent = Agent(ScriptedModel(["It is done."]))
number = 3
'''
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(identifier, name, arguments):
    return {
        "jsonrpc": "2.0",
        "id": identifier,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "served.py"
    path.write_text(TOOLS)
    return str(path)


@pytest.fixture
def command(callboard):
    return [*callboard.command, "mcp", "serve"]


def say(command, *messages, end=True):
    """What a server answers to these messages on its standard input, by their identifiers, and its exit code."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    answers = {}
    with process:
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                answer = json.loads(process.stdout.readline())
                answers[answer["id"]] = answer.get("result") or answer["error"]
        if end:
            process.stdin.close()
        else:
            process.terminate()
        assert process.stdout.read() == ""
        return answers, process.wait(LIMIT)


@pytest.mark.parametrize("end", [True, False], ids=["end of input", "SIGTERM"])
def test_stdio(command, tools, end):
    """Nothing but the protocol is on the wire, and nothing of the wire is read."""
    answers, code = say(
        [*command, "--tools", tools],
        INITIALIZE,
        INITIALIZED,
        call(1, "add", {"a": 1, "b": "2"}),
        call(2, "read", {}),
        call(3, "deploy", {}),
        call(4, "nothing", {}),
        end=end,
    )
    assert answers[0]["serverInfo"]["name"] == "callboard"
    assert answers[1]["content"] == [{"type": "text", "text": "3"}]
    assert answers[2]["content"] == [{"type": "text", "text": ""}]
    assert answers[3]["isError"]
    assert answers[4]["code"] == -32602
    assert code == 0


def test_a_file_of_messages(command, tools, tmp_path):
    messages = [INITIALIZE, INITIALIZED]
    (tmp_path / "in").write_text("".join(json.dumps(each) + "\n" for each in messages))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as written:
        ran = subprocess.run([*command, "--tools", tools], stdin=given, stdout=written, check=False, timeout=LIMIT)
    assert ran.returncode == 0
    assert json.loads((tmp_path / "out").read_text())["id"] == 0


def test_noise_on_its_input_is_answered_and_forgotten(command, tools):
    with subprocess.Popen([*command, "--tools", tools], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"\xff noise\n" + json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != 0:
            pass
        process.stdin.close()
        process.stdout.read()
        assert process.wait(LIMIT) == 0


def test_it_ends_when_its_parent_is_gone(command, tools, tmp_path):
    """Though somebody else holds the other end of its input."""
    read, write = os.pipe()
    pid = tmp_path / "pid"
    parent = (
        "import subprocess, sys, pathlib\n"
        f"p = subprocess.Popen({[*command, '--tools', tools]!r}, stdin={read}, stdout=subprocess.PIPE, pass_fds=[{read}])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(p.pid))\n"
        "p.stdout.readline()\n"
    )
    os.set_inheritable(read, True)
    process = subprocess.Popen([sys.executable, "-c", parent], pass_fds=[read])
    os.write(write, json.dumps(INITIALIZE).encode() + b"\n")
    process.wait(LIMIT)
    served = int(pid.read_text())
    os.close(read)
    for _ in range(LIMIT * 100):
        if not _lives(served):
            break
        signal.sigtimedwait([], 0.01)
    assert not _lives(served)
    os.close(write)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def test_an_agent_is_a_tool(command, tools):
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answers, _ = say(
        [*command, "--agent", f"{tools}:agent"], INITIALIZE, INITIALIZED, listed, call(2, "run", {"prompt": "do it"})
    )
    assert [each["name"] for each in answers[1]["tools"]] == ["run"]
    assert answers[2]["content"] == [{"type": "text", "text": "It is done."}]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to serve; give --ensembles, --tools, --agent or --agents"),
        (["--agent", "{tools}:number"], "not an Agent"),
        (["--agent", "{tools}:nothing"], "has no 'nothing'"),
        (["--ensembles", "{tools}"], "no such directory"),
        (
            ["--tools", "{tools}", "--transport", "http", "--host", "0.0.0.0"],
            "beyond this machine everybody could call",
        ),
        (["--tools", "{tools}", "--transport", "http", "--key", "short"], "too short for a key"),
    ],
)
def test_mistakes_of_who_starts_it(invoke, tools, arguments, told):
    ran = invoke("mcp", "serve", *[each.format(tools=tools) for each in arguments])
    assert isinstance(ran.exception, CallerError)
    assert told in str(ran.exception)


@asynccontextmanager
async def over_http(command, *arguments):
    """A server over HTTP; its URL."""
    process = await asyncio.create_subprocess_exec(
        *command, "--transport", "http", "--port", "0", *arguments, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(LIMIT):
        url = re.search(r"http://\S+", (await process.stderr.readline()).decode())[0]
        yield url
        process.terminate()
        assert await process.wait() == 0


HEADERS = {"accept": "application/json, text/event-stream"}


async def statuses(url, *headers):
    async with aiohttp.ClientSession() as session:
        found = []
        for each in headers:
            async with session.post(url, json=INITIALIZE, headers={**HEADERS, **each}) as response:
                found.append(response.status)
        return found


OPEN = [
    ({}, 200),
    ({"host": "evil.example"}, 421),
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "http://localhost:3000"}, 200),
]
KEYED = [
    ({}, 401),
    ({"authorization": "Bearer another-key"}, 401),
    ({"authorization": "Bearer secret-key"}, 200),
    ({"authorization": "Bearer secret-key", "host": "evil.example"}, 421),
]
WIDE = [({"authorization": "Bearer secret-key", "host": "tools.example"}, 200), ({"host": "tools.example"}, 401)]


@pytest.mark.parametrize(
    ("options", "rows"),
    [([], OPEN), (["--key", "secret-key"], KEYED), (["--key", "secret-key", "--host", "0.0.0.0"], WIDE)],
    ids=["here", "with a key", "anywhere"],
)
def test_who_may_ask_over_http(command, tools, options, rows):
    async def scenario():
        async with over_http(command, "--tools", tools, *options) as url:
            return await statuses(url.replace("0.0.0.0", "127.0.0.1"), *[headers for headers, _ in rows])

    assert asyncio.run(scenario()) == [status for _, status in rows]
