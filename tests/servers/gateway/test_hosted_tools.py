"""Tools that run in the gateway, as the clients' own packages see them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp
import pytest
from tests.servers.gateway.fronts import FRONTS, call_events, reply, request
from tests.servers.gateway.sdk_clients import ask, client_of

from callboard.core import InvocationCanister, ReasoningPiece, TextPiece, Usage
from callboard.errors import DescriptorError, ToolExecutionFailure
from callboard.servers.gateway.hosted_tools import HostedTools
from callboard.servers.gateway.settings import GatewaySettings, Permissions
from callboard.testing import FakeBackend, StatusReply
from callboard.wires import get_wire

COMMAND = (sys.executable, "-P", "-c", "from callboard.cli import main; main()")
MODULE = '''
import asyncio
import sys

from callboard.tools import Context, tool

log = []
started = asyncio.Event()
stopped = asyncio.Event()


class Connection:
    async def connect(self):
        log.append("connected")

    async def disconnect(self):
        log.append("disconnected")
        print("disconnected", file=sys.stderr)


def connection():
    return Connection()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def count(context: Context) -> int:
    """How often this was called."""
    context.namespace["calls"] = context.namespace.get("calls", 0) + 1
    return context.namespace["calls"]


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@tool(timeout=0.01)
async def late() -> None:
    """Come too late."""
    await asyncio.Event().wait()


async def wait() -> None:
    """Wait for ever."""
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()


@tool(approval=True)
def erase() -> str:
    """Erase everything."""
    return "everything is erased"
'''
NAMES = ("add", "count", "fail", "late", "wait", "erase")
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
QUESTION = [{"role": "user", "content": "What is 1 + 2?"}]
ONE_AND_TWO = {"a": 1, "b": 2}
WRITES = {"mode": "validated", "dialect": "hermes"}


@pytest.fixture
def ensembles(tmp_path, monkeypatch):
    """The setting for an ensemble `sums`."""
    (tmp_path / "sums_of_test.py").write_text(MODULE)
    directory = tmp_path / "ensembles"
    directory.mkdir()
    invokers = "".join([f'[[invokers]]\nname = "{name}"\n' for name in NAMES])
    (directory / "sums.toml").write_text(f'[ensemble]\nname = "sums"\nmodule = "sums_of_test"\n{invokers}')
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "sums_of_test", raising=False)
    return (str(directory),)


@pytest.fixture
def hosting(serving, behind, ensembles):
    """A gateway in front of a backend with these replies; `sums` runs there unless it is told otherwise."""

    @asynccontextmanager
    async def started(replies, *, ensembles=ensembles, facts=MappingProxyType({}), **settings):
        async with FakeBackend(replies) as backend:
            gateway = serving(behind(backend, **facts), ensembles=ensembles, **settings)
            async with gateway as served:
                served.backend = backend
                yield served

    return started


def calls(*named, reason="invocations", said=()):
    """A reply that calls; each call is a name and its arguments, or what stands in place of these."""
    events = [
        event
        for index, (name, arguments) in enumerate(named)
        for event in call_events(name, arguments, index, identifier=f"{name}-{index}")
    ]
    return reply(*said, *events, Usage(10, 5, 2, 1), end=reason)


def answer(text):
    return reply(TextPiece(text), Usage(20, 7, 3, 2))


def spelled(name, arguments):
    """A call as a model writes it that has no other way."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Reply(NamedTuple):
    """What a client makes of a reply; `items` are what it sends back."""

    text: str
    reasoning: str
    called: list[tuple[str, str, Any]]
    usage: tuple[int, int]
    end: str
    items: list[Any]


async def over_sdk(front, served, conversation, tools=(), *, stream=False, **more):
    declared = request(front, tools=dict.fromkeys(tools, SHELL))["tools"] if tools else []
    fields = {"tools": declared, **more} if declared else more
    async with client_of(front, served) as client:
        heard, identifiers, sent = await ask(front, client, stream, conversation, **fields)
    called = [(identifier, *call) for identifier, call in zip(identifiers, heard.calls, strict=True)]
    return Reply(heard.text, heard.reasoning, called, heard.usage[:2], heard.end, sent)


async def over_gemini(served, conversation, tools=(), *, stream=False, **more):
    contents = [each if "parts" in each else turn(each["content"]) for each in conversation]
    declared = [{"functionDeclarations": [{"name": name, "parametersJsonSchema": SHELL} for name in tools]}]
    asked = {"model": "m", "stream": stream, "contents": contents, "tools": declared if tools else [], **more}
    answer = await served.post("gemini", asked)
    assert answer.status == 200, answer
    chunks = answer.events if stream else [answer.body]
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    said = [
        "".join([part["text"] for part in parts if "text" in part and part.get("thought") == is_thought])
        for is_thought in (None, True)
    ]
    called = [(call["id"], call["name"], call["args"]) for part in parts if (call := part.get("functionCall"))]
    usage = chunks[-1]["usageMetadata"]
    counts = (usage["promptTokenCount"], usage["totalTokenCount"] - usage["promptTokenCount"])
    return Reply(
        *said, called, counts, chunks[-1]["candidates"][0]["finishReason"].lower(), [{"role": "model", "parts": parts}]
    )


def turn(text):
    return {"role": "user", "parts": [{"text": text}]}


OVER = {**{front: partial(over_sdk, front) for front in ("responses", "chat", "messages")}, "gemini": over_gemini}


def output(front, identifier, text):
    """The result of a client's tool, in the client's words."""
    match front:
        case "responses":
            return {"type": "function_call_output", "call_id": identifier, "output": text}
        case "chat":
            return {"role": "tool", "tool_call_id": identifier, "content": text}
        case "gemini":
            response = {"id": identifier, "name": "shell", "response": {"output": text}}
            return {"role": "user", "parts": [{"functionResponse": response}]}
        case _:
            block = {"type": "tool_result", "tool_use_id": identifier, "content": text}
            return {"role": "user", "content": [block]}


def body_of(front, **more):
    """A request of the client's own tool `shell`."""
    return request(front, QUESTION[0]["content"], tools={"shell": SHELL}, **more)


def ways(test):
    return pytest.mark.parametrize("front", FRONTS)(pytest.mark.parametrize("stream", [False, True])(test))


def tools_of(request):
    return [each["function"]["name"] for each in request.body.get("tools", ())]


def asked(served):
    return [each for each in served.backend.requests if each.method == "POST"]


@ways
async def test_the_client_gets_one_reply_of_all_rounds(hosting, front, stream):
    replies = [
        calls(("add", ONE_AND_TWO), ("count", {}), said=[ReasoningPiece("I add."), TextPiece("Adding.")]),
        answer("It is 3."),
    ]

    async with hosting(replies) as served:
        reply = await OVER[front](served, QUESTION, stream=stream)
        assert reply.text == "Adding.\n\nIt is 3."
        assert reply.reasoning.replace("\n", "") == 'I add.add({"a":1,"b":2}) -> 3count({}) -> 1'
        assert (reply.called, reply.usage, reply.end) == ([], (30, 12), "stop")
        first, second = asked(served)
        assert tools_of(first) == tools_of(second) == ["add", "count", "fail", "late", "wait"]
        said = second.body["messages"][1:]
        assert [each["function"]["name"] for each in said[0]["tool_calls"]] == ["add", "count"]
        assert [each["content"] for each in said[1:]] == ["3", "1"]


@ways
async def test_a_model_that_writes_its_calls(hosting, front, stream):
    replies = ["Let me see. " + spelled("add", ONE_AND_TWO), "It is 3."]

    async with hosting(replies, facts=WRITES) as served:
        reply = await OVER[front](served, QUESTION, stream=stream)
        assert reply.text.endswith("It is 3.")
        assert "tool_call" not in reply.text
        assert reply.reasoning == 'add({"a":1,"b":2}) -> 3\n'
        first, second = asked(served)
        assert not tools_of(first)
        assert '"add"' in first.body["messages"][0]["content"]
        assert "3" in second.body["messages"][-1]["content"]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("wire", ["responses", "messages", "gemini"])
async def test_whatever_the_backend_speaks(hosting, front, wire):
    replies = [calls(("add", ONE_AND_TWO)), answer("It is 3."), answer("As I said.")]

    async with hosting(replies, facts={"wire": wire}) as served:
        reply = await OVER[front](served, QUESTION, stream=True)
        assert (reply.text, reply.usage) == ("It is 3.", (30, 12))
        assert reply.reasoning == 'add({"a":1,"b":2}) -> 3\n'
        reply = await OVER[front](served, [*QUESTION, *reply.items, *QUESTION], stream=True)
        assert reply.text == "As I said."
        sent = get_wire(wire).decode_request({"model": "m", **asked(served)[2].body}).canisters
        called = [each.name for each in sent if isinstance(each, InvocationCanister)]
        assert called == ([] if front == "chat" else ["add"])


@pytest.mark.parametrize("front", FRONTS)
async def test_tools_that_do_not_fit_beside_the_clients_are_searched_for(hosting, front):
    """The client sends the conversation back, and what was found is declared again, where it had a place for that."""
    replies = [
        calls(("search_tools", {"query": "Add two numbers"})),
        calls(("add", ONE_AND_TWO)),
        answer("It is 3."),
        answer("As I said."),
    ]

    async with hosting(replies, facts={"profile": {"max_tools": 5}}) as served:
        reply = await OVER[front](served, QUESTION, ["shell"])
        assert (reply.text, reply.called) == ("It is 3.", [])
        first, second, third = [tools_of(each) for each in asked(served)]
        assert (first, third) == (["shell", "search_tools"], second)
        assert second[:3] == [*first, "add"]
        await OVER[front](served, [*QUESTION, *reply.items, *QUESTION], ["shell"])
        assert tools_of(asked(served)[3]) == (first if front == "chat" else second)


async def test_a_tool_that_a_client_chooses_by_its_name_is_declared_however_many_there_are(hosting):
    async with hosting([calls(("add", ONE_AND_TWO)), answer("3")], facts={"profile": {"max_tools": 5}}) as served:
        chosen = {"type": "function", "function": {"name": "add"}}
        reply = await served.post("chat", {"model": "m", "messages": QUESTION, "tool_choice": chosen})
        assert reply.body["choices"][0]["message"]["content"] == "3"
        first, second = [tools_of(each) for each in asked(served)]
        assert "add" in first
        assert sorted(first) == sorted(second)


@ways
async def test_what_ran_here_is_not_lost_behind_a_clients_call(hosting, front, stream):
    replies = [
        calls(("shell", {"command": "ls"}), ("add", ONE_AND_TWO)),
        answer("3 files."),
        answer("You are welcome."),
    ]

    async with hosting(replies) as served:
        reply = await OVER[front](served, QUESTION, ["shell"], stream=stream)
        assert reply.reasoning == 'add({"a":1,"b":2}) -> 3\n'
        assert reply.called == [("shell-0", "shell", {"command": "ls"})]
        assert (reply.usage, reply.end) == ((10, 5), "stop")
        conversation = [*QUESTION, *reply.items, output(front, "shell-0", "README")]
        reply = await OVER[front](served, conversation, ["shell"], stream=stream)
        assert (reply.text, reply.called, reply.end) == ("3 files.", [], "stop")
        said = asked(served)[1].body["messages"][1:]
        if front == "chat":
            assert said[0]["reasoning_content"] == 'add({"a":1,"b":2}) -> 3\n'
            called, results = ["shell"], ["README"]
        else:
            called, results = ["add", "shell"], ["3", "README"]
        assert [each["function"]["name"] for each in said[0]["tool_calls"]] == called
        assert [each["content"] for each in said[1:]] == results
        await OVER[front](served, [*conversation, *reply.items, *QUESTION], ["shell"], stream=stream)
        again = asked(served)[2].body["messages"]
        assert again[: len(said) + 1] == asked(served)[1].body["messages"]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_reply_with_a_clients_call_only_is_as_it_came(hosting, front):
    replies = [calls(("shell", {"command": "ls"}), ("shell", {"command": "pwd"}), said=[TextPiece("Looking.")])]

    async with hosting(replies) as served:
        reply = await OVER[front](served, QUESTION, ["shell"], stream=True)
        assert (reply.text, reply.reasoning, reply.end) == ("Looking.", "", "stop")
        assert [each[2]["command"] for each in reply.called] == ["ls", "pwd"]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fail", {"why": "no paper"}, "Error: ValueError: no paper"),
        ("late", {}, "Error: Tool execution timed out. It had 0.01 s."),
        ("ad", ONE_AND_TWO, "Error: no tool 'ad'; did you mean 'add'?"),
        ("erase", {}, "Error: no tool 'erase'"),
        ("add", {"a": 1}, "Error: ArgValidationError: b\n  Field required"),
        ("add", '{"a": 1', "Error: the call was cut"),
    ],
)
async def test_the_model_reads_what_went_wrong(hosting, name, arguments, told):
    async with hosting([calls((name, arguments)), answer("Sorry.")]) as served:
        reply = await OVER["chat"](served, QUESTION, stream=True)
        assert (reply.text, reply.called, reply.end) == ("Sorry.", [], "stop")
        assert asked(served)[1].body["messages"][-1]["content"].startswith(told)
        assert f" -> {told}" in reply.reasoning


@pytest.mark.parametrize(
    ("permissions", "offered"),
    [
        (Permissions(), {"add", "count", "fail", "late", "wait"}),
        (Permissions(allow=("erase",)), set(NAMES)),
        (Permissions(deny=("*",), allow=("add",)), set()),
        (Permissions(ask=("sums/*",)), set()),
        (Permissions(deny=("sums/[!a]*",)), {"add"}),
    ],
)
async def test_only_what_may_run_is_offered(hosting, permissions, offered):
    async with hosting(["Hello."], permissions=permissions) as served:
        assert (await OVER["chat"](served, QUESTION)).text == "Hello."
        assert set(tools_of(asked(served)[0])) == offered


@pytest.mark.parametrize("allowed", [False, True])
async def test_files_are_written_only_if_that_is_allowed(hosting, tmp_path, monkeypatch, allowed):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "note"

    replies = [calls(("write_file", {"path": str(path), "content": "mine"})), answer("Done.")]
    permissions = Permissions(allow=("io/write_file",) if allowed else ())
    async with hosting(replies, ensembles=("io",), permissions=permissions) as served:
        assert (await OVER["chat"](served, QUESTION)).text == "Done."
        assert ("write_file" in tools_of(asked(served)[0])) == allowed
    assert path.exists() == allowed


def adding(body):
    """Never the same call."""
    return calls(("add", {"a": len(body["messages"]), "b": 0}))


@pytest.mark.parametrize("front", FRONTS)
async def test_a_model_that_goes_on_calling_is_asked_to_answer(hosting, front):
    def replied(body):
        if body.get("tool_choice") == "none":
            return answer("Enough.")
        return adding(body)

    async with hosting(replied, rounds=3) as served:
        reply_of_all = await OVER[front](served, QUESTION, stream=True)
        assert (reply_of_all.text, reply_of_all.end) == ("Enough.", "stop")
        assert reply_of_all.reasoning.count("add(") == 3
        assert len(asked(served)) == 4


@pytest.mark.parametrize("front", FRONTS)
async def test_a_model_that_calls_all_the_same_is_stopped(hosting, front):
    async with hosting(adding, rounds=2) as served:
        reply = await OVER[front](served, QUESTION, stream=True)
        assert (reply.text, reply.called, reply.end) == ("", [], "stop")
        assert len(asked(served)) == 3


async def test_who_has_called_as_asked_is_free_to_answer(hosting):
    async with hosting([calls(("add", ONE_AND_TWO)), answer("3.")]) as served:
        assert (await OVER["chat"](served, QUESTION, ["shell"], tool_choice="required")).text == "3."
        first, second = asked(served)
        assert first.body["tool_choice"] == "required"
        assert second.body.get("tool_choice", "auto") == "auto"


async def test_nothing_runs_where_the_client_wants_no_calls(hosting):
    async with hosting([answer("Hello.")]) as served:
        assert (await OVER["chat"](served, QUESTION, ["shell"], tool_choice="none")).text == "Hello."


@pytest.mark.parametrize("front", FRONTS)
async def test_a_clients_tool_stands_for_ours_of_its_name(hosting, front):
    async with hosting([calls(("add", ONE_AND_TWO))]) as served:
        reply = await OVER[front](served, QUESTION, ["add"])
        assert reply.called == [("add-0", "add", ONE_AND_TWO)]
        assert sorted(tools_of(asked(served)[0])) == ["add", "count", "fail", "late", "wait"]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("reason", ["invocations", "length"])
async def test_a_clients_call_that_is_no_json_is_passed_on(hosting, front, reason):
    async with hosting([calls(("shell", '{"command": "l'), reason=reason)]) as served:
        found = await served.post(front, body_of(front))
        assert found.status == 200
        # Gemini has no place for arguments that are no object, but words for it.
        assert ("function call: shell(" if front == "gemini" else '"shell"') in found.text
        assert '{\\"command\\": \\"l' in found.text
        assert len(asked(served)) == 1


async def test_each_reply_has_a_state_of_its_own(hosting):
    replies = [calls(("count", {})), calls(("count", {}), ("add", ONE_AND_TWO)), answer("Twice.")] * 2
    async with hosting(replies) as served:
        for _ in range(2):
            reply = await OVER["chat"](served, QUESTION, stream=True)
            assert reply.reasoning == 'count({}) -> 1\ncount({}) -> 2\nadd({"a":1,"b":2}) -> 3\n'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_leaves_stops_what_runs(hosting, front, stream):
    async with hosting([calls(("wait", {}))]) as served:
        tools = sys.modules["sums_of_test"]
        asking = asyncio.ensure_future(served.post(front, body_of(front, stream=stream)))
        await asyncio.wait_for(tools.started.wait(), 60)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(tools.stopped.wait(), 60)


@pytest.mark.parametrize("front", FRONTS)
async def test_what_runs_is_told_before_it_has_run(hosting, front):
    said = [TextPiece("One moment.")]
    async with hosting([calls(("wait", {}), said=said)]) as served:
        heard = b""
        async with served.open(front, body_of(front, stream=True)) as coming:
            while b"wait({})" not in heard:
                chunk = await coming.content.readany()
                assert chunk
                heard += chunk
        assert b"One moment." in heard


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_fails_in_a_later_round(hosting, stream):
    replies = [calls(("add", ONE_AND_TWO)), StatusReply(500)]
    async with hosting(replies) as served:
        found = await served.post("responses", {"model": "m", "input": "hi", "stream": stream})
        if stream:
            assert [each["type"] for each in found.events if "response" in each][-1] == "response.failed"
            assert found.frames[-1][1] == "[DONE]"
        else:
            assert found.status == 500
            assert found.body["error"]["message"]


async def test_identifiers_are_not_used_twice(hosting):
    """A client that does not send reasoning back sees fewer items than the model did."""
    call = spelled("shell", {"command": "ls"})
    replies = [spelled("add", ONE_AND_TWO), call, call, "Done."]
    async with hosting(replies, facts=WRITES) as served:
        conversation = list(QUESTION)
        seen = []
        while True:
            reply = await OVER["chat"](served, conversation, ["shell"], stream=True)
            if not reply.called:
                break
            ((identifier, _, _),) = reply.called
            seen.append(identifier)
            (sent,) = reply.items
            sent.pop("reasoning_content", None)
            conversation += [sent, output("chat", identifier, "README")]
        assert len(set(seen)) == len(seen) == 2
        assert reply.text == "Done."


async def test_what_is_counted_are_the_tokens_of_all_rounds(hosting):
    async with hosting([calls(("add", ONE_AND_TWO)), answer("3.")]) as served:
        await OVER["chat"](served, QUESTION)
        told = (await served.get("/metrics")).text
        found = dict(re.findall(r'callboard_tokens_total\{.*kind="(\w+)"\} (\S+)', told))
        assert found == {"input": "30.0", "output": "12.0", "cached": "5.0", "reasoning": "3.0"}


async def test_ensembles_live_as_long_as_the_gateway(serving, ensembles):
    async with FakeBackend([]) as backend:
        async with serving(backend, ensembles=ensembles):
            log = sys.modules["sums_of_test"].log
            assert log == ["connected"]
        assert log == ["connected", "disconnected"]


def test_a_directory_that_is_none_is_found_before_anything_starts(tmp_path):
    with pytest.raises(DescriptorError, match="no such directory"):
        HostedTools(GatewaySettings(backends=(), ensembles=(str(tmp_path / "nowhere"),)))


def test_an_ensemble_that_cannot_be_connected_is_named(tmp_path, monkeypatch):
    (tmp_path / "stuck_of_test.py").write_text(
        "class Stuck:\n    async def connect(self):\n        raise OSError('no such host')\n\n"
        "def connection():\n    return Stuck()\n"
    )
    (tmp_path / "stuck.toml").write_text('[ensemble]\nname = "stuck"\nmodule = "stuck_of_test"\n')
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    hosted = HostedTools(GatewaySettings(backends=(), ensembles=(str(tmp_path),)))
    with pytest.raises(ToolExecutionFailure, match="no such host"):
        asyncio.run(hosted.connect())


async def test_the_command(ensembles, tmp_path):
    """`callboard serve --ensembles DIR`, as a person starts it; the module lies in the current directory."""
    async with FakeBackend([calls(("add", ONE_AND_TWO)), answer("It is 3.")]) as backend:
        command = (*COMMAND, "serve", "--backend", backend.url, "--port", "0", "--ensembles", *ensembles)
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
        try:
            url = ""
            while not url:
                line = (await process.stderr.readline()).decode()
                assert line
                url = line.partition(" at ")[2].split(" ")[0]
            async with aiohttp.ClientSession() as client:
                body = {"model": "m", "messages": QUESTION}
                async with client.post(f"{url}/chat/completions", json=body) as found:
                    message = (await found.json())["choices"][0]["message"]
            assert message["content"] == "It is 3."
            assert message["reasoning_content"] == 'add({"a":1,"b":2}) -> 3\n'
        finally:
            process.terminate()
            _, told = await process.communicate()
        assert b"disconnected" in told


async def test_a_missed_call_is_logged_once(hosting, caplog):
    said = "I call the tool: <tool_call>add 1 2</tool_call> One moment."
    async with hosting([said], facts=WRITES) as served:
        await OVER["responses"](served, QUESTION)
    lines = [each.getMessage() for each in caplog.records if "no call was found" in each.getMessage()]
    backend = served.backend.url.removeprefix("http://").removesuffix("/v1")
    assert lines == [f"{backend}: the reply contains '<tool_call>' at character 17, but no call was found"]
