import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import msgspec
import pytest

from callboard.mcp import connection, stdio_transport
from callboard.mcp.client import McpClient
from callboard.mcp.connection_state import Logged, StateChanged, ToolsChanged
from callboard.mcp.errors import ServerFailure, ServerItemNotFound, ServerTimeout, ServerUnreachable
from callboard.mcp.settings import PASSED_VARIABLES, ServerSettings

SERVERS = Path(__file__).with_name("servers")
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
PROTOCOLS = pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
PATIENCE = 60


class Stage:
    """Links to our servers, closed at the end, what they told, and the journal that the servers write."""

    def __init__(self, directory):
        self.journal = directory / "journal"
        self.journal.touch()
        self.events = []
        self.clients = []
        self.servers = []
        self.here = []

    def settings(self, *flags, server="small", **changes):
        quick = ("-S",) if server == "small" else ()
        command = (sys.executable, *quick, str(SERVERS / f"{server}.py"), "--journal", str(self.journal), *flags)
        return ServerSettings(name="s", command=command, **changes)

    def client(self, *flags, server="small", settings=None, elicit=None, sample=None, **changes):
        given = settings or self.settings(*flags, server=server, **changes)
        self.clients.append(McpClient(given, on_event=self.events.append, elicit=elicit, sample=sample))
        return self.clients[-1]

    def written(self):
        return self.journal.read_text(encoding="utf-8").splitlines()

    def count(self, what):
        return sum(line.startswith(what) for line in self.written())

    def pids(self, what="start"):
        return [int(line.split()[1]) for line in self.written() if line.startswith(what)]

    def states(self):
        return [event.state for event in self.events if isinstance(event, StateChanged)]

    def serve(self, port, *flags, server="small"):
        """A server on HTTP; returns when it is there."""
        command = (sys.executable, str(SERVERS / f"{server}.py"), "--journal", str(self.journal), "--port", str(port))
        server = subprocess.Popen((*command, *flags), stderr=subprocess.DEVNULL)
        self.servers.append(server)
        while server.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                return server
            time.sleep(0.02)
        raise AssertionError(server.returncode)

    async def ordinary(self, **changes):
        """A client to the SDK's server on HTTP, within this process: its own would import the SDK once more."""
        import uvicorn

        spec = spec_from_file_location("ordinary", SERVERS / "ordinary.py")
        module = module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["ordinary", "--journal", str(self.journal)])
            spec.loader.exec_module(module)
        config = uvicorn.Config(module.server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext
        self.here.append((server, asyncio.create_task(server.serve(sockets=[listening]))))
        return self.web(listening.getsockname()[1], **changes)

    def web(self, port, *, elicit=None, sample=None, **changes):
        settings = ServerSettings(name="s", transport="http", url=f"http://127.0.0.1:{port}/mcp", **changes)
        return self.client(settings=settings, elicit=elicit, sample=sample)

    async def close_after_test(self):
        for client in self.clients:
            await client.aclose()
        for server, serving in self.here:
            server.should_exit = True
            await serving


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    yield stage
    for server in stage.servers:
        server.kill()
        server.wait()


@pytest.fixture
def hasty(monkeypatch):
    """Servers that do not end by themselves, or do not answer, are not waited for."""
    monkeypatch.setattr(connection, "PING_SECONDS", 0.5)
    monkeypatch.setattr(stdio_transport, "EOF_SECONDS", 0.1)
    monkeypatch.setattr(stdio_transport, "TERM_SECONDS", 0.1)


async def until(true):
    while not true():  # noqa: ASYNC110  # what is awaited is a file that another process writes
        await asyncio.sleep(0.005)


def gone(pid):
    """Whether it ends within the patience; it is nobody's child of ours."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], PATIENCE)[0])
    finally:
        os.close(watched)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def text_of(result):
    return result.content[0].text


# what a client is for


@ERAS
async def test_a_server_is_used_from_any_task_and_closed_from_another(stage, era):
    client = stage.client("--era", era)
    assert client.state == "idle"
    await client.start()
    assert client.state == "ready"
    assert client.protocol_version == {"legacy": "2025-11-25", "modern": "2026-07-28"}[era]
    assert client.capabilities.tools.list_changed
    assert "echo" in [tool.name for tool in await client.tools()]
    tasks = [asyncio.create_task(client.call("echo", {"text": str(n)})) for n in range(20)]
    assert [text_of(result) for result in await asyncio.gather(*tasks)] == [str(n) for n in range(20)]
    await asyncio.create_task(client.aclose())
    assert stage.states() == ["connecting", "ready", "idle"]
    assert stage.written()[-1] == "end", "it was let end by itself"
    assert all(gone(pid) for pid in stage.pids())
    with pytest.raises(ServerUnreachable, match="it is closed"):
        await client.call("echo", {})


async def test_a_call_connects_and_a_slow_start_is_not_the_calls_idle_time(stage):
    client = stage.client("--slow", "0.5", idle_timeout=0.3)
    assert text_of(await client.call("echo", {"text": "hello"})) == "hello"


async def test_what_a_server_says_of_itself(stage):
    client = await stage.ordinary()
    await client.start()
    assert (client.server.name, client.server.version, client.server.instructions) == (
        "ordinary",
        "2",
        "Add numbers.",
    )
    assert await client.resources() == ()
    assert await client.prompts() == ()
    with pytest.raises(ServerItemNotFound):
        await client.read_resource("a://b")
    with pytest.raises(ServerFailure, match="Invalid structured content"):
        await client.call("wrong", {})


async def test_a_server_gets_of_our_environment_what_is_named(stage, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("TOKEN", "2")
    monkeypatch.setenv("LANG", "C.UTF-8")

    client = stage.client(environment={"GIVEN": "env:TOKEN", "PLAIN": "3"}, inherit=("LANG", "NOT_SET"))
    got = json.loads(text_of(await client.call("environment", {})))
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    got.pop("LC_CTYPE", None)  # Python's own
    assert got == passed | {"GIVEN": "2", "PLAIN": "3", "LANG": "C.UTF-8"}


async def test_whoever_listens_may_fail(stage):
    def fails(_):
        raise RuntimeError("no")

    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["message"]))
    client = McpClient(stage.settings(), on_event=fails)
    stage.clients.append(client)
    assert text_of(await client.call("echo", {"text": "a"})) == "a"
    assert heard == ["on_event of mcp.s raised"] * 2


# servers that end, hang, or are not there


@ERAS
async def test_a_child_that_dies_fails_the_call_and_is_started_for_the_next(stage, era):
    client = stage.client("--era", era)
    with pytest.raises(ServerUnreachable) as failed:
        await client.call("die", {})
    assert failed.value.may_have_run
    assert failed.value.category == "network"
    assert str(failed.value) == (
        "mcp.s: the connection was lost: it ended with status 3; its last words: I die; "
        "the tool die was sent and may have run"
    )
    assert client.state == "backoff"
    assert stage.count("start") == 1, "nobody asked"
    assert text_of(await client.call("echo", {"text": "again"})) == "again"
    assert stage.states() == ["connecting", "ready", "backoff", "connecting", "ready"]


async def test_only_what_may_be_repeated_is_repeated_and_once(stage):
    client = stage.client()
    assert text_of(await client.call("die_once", {}, idempotent=True)) == "alive"
    with pytest.raises(ServerUnreachable):
        await client.call("die", {}, idempotent=True)
    assert stage.count("call die_once") == 2
    assert stage.count("call die") - stage.count("call die_once") == 2
    assert stage.count("start") == 3


@ERAS
async def test_ten_calls_share_one_reconnect(stage, era):
    client = stage.client("--era", era)
    calls = [asyncio.create_task(client.call("hang", {})) for _ in range(10)]
    await until(lambda: stage.count("call hang") == 10)
    os.kill(stage.pids()[0], signal.SIGKILL)
    lost = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in lost} == {ServerUnreachable}
    assert all("status -9" in str(each) for each in lost)
    answers = await asyncio.gather(*[client.call("echo", {"text": str(n)}) for n in range(10)])
    assert [text_of(answer) for answer in answers] == [str(n) for n in range(10)]
    assert stage.count("start") == 2


async def test_a_child_that_dies_while_nobody_asks_costs_no_call(stage):
    client = stage.client()
    await client.start()
    os.kill(stage.pids()[0], signal.SIGKILL)
    await until(lambda: client.state == "backoff")
    assert text_of(await client.call("echo", {"text": "again"})) == "again"


async def test_one_that_ends_at_once_is_tried_again_later(stage):
    client = stage.client("--fail", "2")
    with pytest.raises(ServerUnreachable, match="ended with status 1; its last words: not yet"):
        await client.start()
    assert client.state == "backoff"
    assert text_of(await client.call("echo", {"text": "there"})) == "there"
    assert stage.count("start") == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"command": ("no-such-program",)}, "mcp.s.command: no-such-program cannot be started: No such file"),
        ({"command": ("/",)}, "mcp.s.command: / cannot be started: Permission denied"),
        ({"command": ()}, "mcp.s: it has no command"),
        ({"directory": "/no/such/directory"}, "cannot be started: No such file"),
        ({"environment": {"A": "env:NOT_SET"}}, "mcp.s.environment.A: NOT_SET is not set"),
        ({"transport": "http", "url": "ftp://x"}, "mcp.s.url: no address of a server: 'ftp://x'"),
        ({"transport": "http", "url": "http://x", "headers": {"A": "env:NOT_SET"}}, "mcp.s.headers.A: NOT_SET is not"),
        ({"protocol": "2026-07-28"}, "mcp.s.protocol: it speaks 2025-11-25, not 2026-07-28"),
    ],
)
async def test_a_mistake_of_configuration_is_not_tried_again(stage, changes, says):
    client = stage.client(settings=msgspec.structs.replace(stage.settings(), **changes))
    with pytest.raises(ServerFailure) as failed:
        await client.start()
    assert says in str(failed.value)
    with pytest.raises(ServerFailure):
        await client.call("echo", {})
    assert stage.states() == ["connecting", "failed"]
    with pytest.raises(ServerFailure):
        await client.start()
    assert stage.states().count("connecting") == 2, "when it is asked to"


async def test_without_the_sdk_it_says_what_to_install(stage, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)

    with pytest.raises(ServerFailure, match=r"pip install 'callboard\[mcp\]'"):
        await stage.client().start()
    assert all(gone(pid) for pid in stage.pids())


async def test_a_silent_server_is_given_up(stage):
    client = stage.client("--silent", "--say", "thinking", connect_timeout=2.5)
    with pytest.raises(ServerTimeout, match=r"did not answer within 2\.5 s; its last words: thinking"):
        await client.start()
    assert client.state == "backoff"
    assert all(gone(pid) for pid in stage.pids())


async def test_the_era_is_found_out_and_remembered(stage):
    client = stage.client("--deaf-to-discover", connect_timeout=2.5)
    with pytest.raises(ServerTimeout):
        await client.start()
    await client.start()
    with pytest.raises(ServerUnreachable):
        await client.call("die", {})
    await client.call("echo", {})
    assert stage.count("start") == 3
    assert stage.count("server/discover") == 1


async def test_a_call_without_a_sign_of_life_ends_and_the_server_stays(stage):
    client = stage.client(idle_timeout=0.3)
    with pytest.raises(ServerTimeout, match=r"no sign of life from the tool hang within 0\.3 s; its idle_timeout"):
        await client.call("hang", {})
    await until(lambda: stage.count("ping") == 1)
    assert stage.count("notifications/cancelled") == 1
    assert text_of(await client.call("echo", {"text": "here"})) == "here"
    assert stage.count("start") == 1


@ERAS
@pytest.mark.usefixtures("hasty")
async def test_a_server_that_hears_nothing_any_more_is_replaced(stage, era):
    client = stage.client("--era", era, idle_timeout=0.3)
    with pytest.raises(ServerTimeout):
        await client.call("freeze", {})
    await until(lambda: client.state == "backoff")
    assert text_of(await client.call("echo", {"text": "new"})) == "new"
    assert stage.count("start") == 2


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_is_stopped_holds_up_nobody(stage):
    client = stage.client(idle_timeout=0.3)
    await client.start()
    os.kill(stage.pids()[0], signal.SIGSTOP)
    calls = [asyncio.create_task(client.call("echo", {"text": "x" * 1_000_000})) for _ in range(3)]
    assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {ServerTimeout}
    await until(lambda: client.state == "backoff")
    assert text_of(await client.call("echo", {"text": "new"})) == "new"
    assert await asyncio.to_thread(gone, stage.pids()[0])


@pytest.mark.usefixtures("hasty")
async def test_progress_is_a_sign_of_life_but_not_for_ever(stage):
    client = stage.client(idle_timeout=0.6, timeout=1.6)
    seen = []
    slow = {"steps": 8, "seconds": 0.1}
    assert text_of(await client.call("slow", slow, on_progress=lambda *step: seen.append(step))) == "done"
    assert seen == [(float(n), 8.0, "on") for n in range(1, 9)]
    with pytest.raises(ServerTimeout, match=r"no answer from the tool slow within 1\.6 s; its timeout can be raised"):
        await client.call("slow", {"steps": 16, "seconds": 0.15})


async def test_a_call_that_waits_in_vain_says_why(stage):
    client = stage.client("--fail", "100", timeout=2.0)
    with pytest.raises(ServerUnreachable, match=r"no connection for the tool echo in time.*not yet") as failed:
        await client.call("echo", {})
    assert not failed.value.may_have_run
    await until(lambda: client.state == "backoff")


# output


async def test_noise_is_passed_over_and_told_once(stage):
    client = stage.client("--noise", "3")
    assert text_of(await client.call("noise", {"lines": 5000})) == "noisy"
    assert client.noise_lines == 5003
    (told,) = [event for event in stage.events if isinstance(event, Logged)]
    assert told.text == "it writes to its standard output what is no message, first: DEBUG: starting up"


@ERAS
async def test_twenty_megabytes(stage, era):
    result = await stage.client("--era", era).call("big", {"size": 20_000_000})
    assert len(text_of(result)) == 20_000_000


async def test_all_pages_are_read(stage):
    assert [tool.name for tool in await stage.client("--pages", "3").tools()] == ["tool0", "tool1", "tool2"]


async def test_pages_without_end_are_not(stage):
    client = stage.client("--pages", "1000000")
    assert len(await client.tools()) == 100
    (told,) = [event for event in stage.events if isinstance(event, Logged)]
    assert told.text == "it lists more tools than 100 on 100 pages; the rest is not read"


# changes


@ERAS
async def test_changed_tools_are_listed_once_and_told(stage, era):
    client = stage.client("--era", era)
    got = asyncio.get_running_loop().create_future()
    client.on_tools_changed = got.set_result
    before = await client.tools()
    await client.call("grow", {})
    after = await got
    assert [tool.name for tool in after[len(before) :]] == ["new9", "new10", "new11"]
    (told,) = [event for event in stage.events if isinstance(event, ToolsChanged)]
    assert told == ToolsChanged("s", added=("new9", "new10", "new11"))
    assert stage.count("tools/list") == 2


@PROTOCOLS
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_changes_of_a_server_of_the_sdk_are_heard(stage, protocol, transport):
    if transport == "stdio":
        client = stage.client(server="ordinary", protocol=protocol)
    else:
        client = await stage.ordinary(protocol=protocol)
    got = asyncio.get_running_loop().create_future()
    client.on_tools_changed = got.set_result
    await client.tools()
    if protocol != "legacy":  # when it is listened to it is asked once more
        await until(lambda: stage.count("tools/list") == 2)
    await client.call("grow", {})
    assert (await got)[-1].name == "new9"


async def test_tools_that_changed_while_it_was_away_are_told(stage):
    client = stage.client()
    await client.call("grow", {})
    assert len(await client.tools()) == 12
    got = asyncio.get_running_loop().create_future()
    client.on_tools_changed = got.set_result
    with pytest.raises(ServerUnreachable):
        await client.call("die", {})
    await client.call("echo", {})
    assert len(await got) == 9


# what passes through


@PROTOCOLS
@pytest.mark.filterwarnings("ignore:The .* deprecated as of 2026-07-28")  # of the server, which is in this process
async def test_progress_logs_and_questions_pass(stage, protocol):
    async def elicit(message, schema):
        assert message == "Who are you?"
        assert set(schema["properties"]) == {"name", "size"}
        await asyncio.sleep(1.3)  # longer than the call may be idle
        return "accept", {"name": "Ada"}

    async def sample(request):
        import mcp_types

        text = mcp_types.TextContent(type="text", text=request.messages[0].content.text + " = 4")
        return mcp_types.CreateMessageResult(role="assistant", content=text, model="m")

    asks = {"elicit": elicit, "sample": sample, "sampling": True}
    client = await stage.ordinary(protocol=protocol, idle_timeout=1.0, **asks)
    steps = []
    await client.call("steps", {}, on_progress=lambda *step: steps.append(step))
    assert steps == [(1.0, 3.0, "on"), (2.0, 3.0, "on"), (3.0, 3.0, "on")]
    assert text_of(await client.call("ask", {})) in {
        "accept {'size': 7, 'name': 'Ada'}",
        "accept {'name': 'Ada', 'size': 7}",
    }
    assert text_of(await client.call("think", {})) == "2 + 2 = 4"
    await client.call("log", {})
    assert [event for event in stage.events if isinstance(event, Logged)] == [
        Logged("s", "warning", '{"what":"x"}', "here")
    ]


@PROTOCOLS
async def test_without_anybody_to_ask_a_question_is_refused(stage, protocol):
    async def sample(_):
        raise AssertionError

    client = await stage.ordinary(protocol=protocol, sample=sample)
    for name in ("ask", "think"):
        with pytest.raises(ServerFailure, match=r"not supported|capability"):
            await client.call(name, {})


@pytest.mark.parametrize("server", ["small", "ordinary"])
async def test_a_cancelled_call_ends_at_once_and_the_server_is_told(stage, server):
    client = stage.client() if server == "small" else await stage.ordinary()
    name = "hang" if server == "small" else "wait"
    call = asyncio.create_task(client.call(name, {}))
    await until(lambda: stage.count(f"call {name}"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: stage.count("notifications/cancelled") or stage.count("cancelled"))
    assert client.state == "ready"


@pytest.mark.usefixtures("hasty")
async def test_a_call_that_waits_for_a_server_is_cancelled_at_once(stage):
    client = stage.client("--slow", "600")
    call = asyncio.create_task(client.call("echo", {}))
    await until(lambda: stage.count("start"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await client.aclose()
    assert stage.states() == ["connecting", "idle"]
    assert all(gone(pid) for pid in stage.pids())


# HTTP


@ERAS
async def test_a_web_server_gone_and_back(stage, era):
    port = free_port()
    server = stage.serve(port, "--era", era)
    client = stage.web(port)
    await client.start()
    server.kill()
    server.wait()
    calls = [asyncio.create_task(client.call("echo", {"text": str(n)})) for n in range(10)]
    await until(lambda: stage.states().count("backoff") == 2)
    assert not any(call.done() for call in calls)
    await asyncio.to_thread(stage.serve, port, "--era", era)
    assert [text_of(answer) for answer in await asyncio.gather(*calls)] == [str(n) for n in range(10)]
    assert stage.count("call echo") == 10
    with pytest.raises(ServerUnreachable) as failed:
        await client.call("die", {})
    assert failed.value.may_have_run


@ERAS
async def test_a_web_server_that_was_restarted_costs_no_call(stage, era):
    port = free_port()
    server = stage.serve(port, "--era", era)
    client = stage.web(port)
    await client.start()
    server.kill()
    server.wait()
    stage.serve(port, "--era", era)
    assert text_of(await client.call("echo", {"text": "again"})) == "again"
    again = ["backoff", "connecting", "ready"] if era == "legacy" else []  # a session of its own
    assert stage.states() == ["connecting", "ready", *again]
    assert stage.count("call echo") == 1


class Answers:
    """An HTTP server that always says the same, and remembers what it was sent."""

    def __init__(self, answer):
        self.answer = answer
        self.silent = False
        self.requests = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            writer.write(self.answer.encode())
            await writer.drain()
            if self.silent:
                await reader.read()
        writer.close()


def _http(status, body="", *headers):
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines) + "\r\n\r\n" + body


@pytest.mark.parametrize(
    ("answer", "says", "state"),
    [
        (_http("401 Unauthorized", "no"), "HTTP 401 Unauthorized: no; check its headers, or log in", "failed"),
        (_http("401 Unauthorized"), "log in: `callboard mcp login s`", "failed"),
        (_http("403 Forbidden"), "HTTP 403 Forbidden", "failed"),
        (_http("405 Method Not Allowed"), "is it a URL of streamable HTTP? One of the older SSE", "backoff"),
        (_http("404 Not Found", "<html>"), "HTTP 404 Not Found: <html>", "backoff"),
        (_http("500 Oops"), "HTTP 500 Oops", "backoff"),
        (_http("502 Bad Gateway"), "HTTP 502 Bad Gateway", "backoff"),
        (_http("200 OK", "x", "content-type: application/json"), "Failed to parse JSON", "backoff"),
        (_http("200 OK", "x", "content-type: text/html"), "Unexpected content type", "backoff"),
        (_http("202 Accepted"), "202 Accepted", "backoff"),
        ("nonsense", "http://127.0.0.1", "backoff"),
        ("", "Server disconnected", "backoff"),
    ],
)
async def test_what_is_no_answer_says_what_it_is(stage, answer, says, state):
    async with Answers(answer) as server:
        client = stage.web(server.port)
        with pytest.raises(ServerFailure) as failed:
            await client.start()
        assert says in str(failed.value)
        assert client.state == state
        await client.aclose()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_headers_do_not_follow_a_redirect_elsewhere(stage, status, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")

    async with Answers(_http("500 Oops")) as other:
        location = f"location: http://127.0.0.1:{other.port}/mcp"
        async with Answers(_http(status, "", location)) as server:
            client = stage.web(server.port, headers={"authorization": "env:TOKEN"})
            with pytest.raises(ServerFailure, match="not followed"):
                await client.start()
            assert b"authorization: secret" in server.requests[0].lower()
            await client.aclose()
        assert other.requests == []


async def test_requests_are_signed(stage):
    import httpx2

    async with Answers(_http("500 Oops")) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        settings = ServerSettings(name="s", transport="http", url=url)
        client = McpClient(settings, auth=httpx2.BasicAuth("user", "word"))
        stage.clients.append(client)
        with pytest.raises(ServerFailure):
            await client.start()
        assert b"authorization: basic dxnlcjp3b3jk" in server.requests[0].lower()
        await client.aclose()


async def test_a_silent_web_server_is_given_up(stage):
    async with Answers("HTTP/1.1 200 OK\r\n") as server:
        server.silent = True
        client = stage.web(server.port, connect_timeout=0.5)
        with pytest.raises(ServerTimeout, match=r"did not answer within 0\.5 s"):
            await client.start()
        await client.aclose()


# nothing is left


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_ignores_everything_is_killed_with_what_it_started(stage):
    client = stage.client("--stubborn", "--child")
    await client.start()
    await client.aclose()
    assert all(gone(pid) for pid in stage.pids() + stage.pids("child"))


async def test_what_a_server_left_behind_is_killed_when_it_ends(stage):
    client = stage.client("--child")
    with pytest.raises(ServerUnreachable):
        await client.call("die", {})
    assert await asyncio.to_thread(gone, stage.pids("child")[0])


def test_a_loop_that_ends_without_closing_leaves_nothing(tmp_path):
    stage = Stage(tmp_path)

    async def scene():
        await stage.client("--child").start()

    asyncio.run(scene())
    assert all(gone(pid) for pid in stage.pids() + stage.pids("child"))


async def test_nothing_is_left_after_many_connects(stage):
    def left():
        tasks = Path("/proc/self/task").glob("*/children")
        return len([*Path("/proc/self/fd").iterdir()]), [task.read_text() for task in tasks if task.read_text()]

    tasks = asyncio.all_tasks()
    await stage.client().start()
    await stage.close_after_test()
    before = left()
    for number in range(6):
        client = stage.client("--era", ("legacy", "modern")[number % 2])
        await client.start()
        await client.tools()
        await client.aclose()
    assert left() == before
    assert asyncio.all_tasks() == tasks


def test_the_sdk_is_not_imported_before_it_is_needed():
    modules = [f"callboard.mcp.{path.stem}" for path in Path("src/callboard/mcp").glob("*.py")]
    code = (
        f"import sys; import callboard.configuration, {', '.join(modules)}; callboard.mcp.connect('stdio://x')\n"
        "print(sorted({'mcp', 'mcp_types', 'anyio', 'httpx2', 'pydantic'} & {*sys.modules}))"
    )
    ran = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
