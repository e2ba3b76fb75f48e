"""Each client runs a tool that the model calls, tells it what came of it, and prints its answer."""

import asyncio
import json

import pytest

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, Usage
from callboard.testing import FakeBackend, StatusReply

SHELL = "printf made > made.txt"
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\n"
CODE = f"const done = await tools.exec_command({{cmd: {SHELL!r}}}); text(done.output);"


def calling(name, arguments):
    """A reply that calls one tool."""
    raw = json.dumps(arguments)
    return [
        ReplyStarted(),
        InvocationStarted(0, "call_1", name),
        InvocationEnded(0, "call_1", name, arguments, raw),
        Usage(input=11, output=7),
        ReplyEnded("invocations"),
    ]


# The models are those that Codex and Claude Code know by name, with requests of other shapes, and one that they do not.
LOOPS = [
    ("codex", "some-model", "exec_command", {"cmd": SHELL}),
    ("codex", "gpt-5.5", "exec_command", {"cmd": SHELL}),
    ("codex", "gpt-5.5", "apply_patch", {"input": PATCH}),
    ("codex", "gpt-6-sol", "functions__exec", {"input": CODE}),
    ("claude", "some-model", "Bash", {"command": SHELL, "description": "Makes it"}),
    ("claude", "claude-sonnet-4-5", "Bash", {"command": SHELL, "description": "Makes it"}),
    ("qwen", "some-model", "run_shell_command", {"command": SHELL, "is_background": False}),
    ("gemini", "some-model", "run_shell_command", {"command": SHELL, "description": "Makes it"}),
    ("gemini", "gemini-2.5-pro", "run_shell_command", {"command": SHELL, "description": "Makes it"}),
]


HERMES = "<tool_call>\n{}\n</tool_call>"
FENCED = "Let me see.\n\n```json\n{}\n```"


def written(spelling, name, arguments):
    """A reply that writes the call into its text."""
    return spelling.format(json.dumps({"name": name, "arguments": arguments}))


def refusing(replies):
    """A backend that takes no tools, as llama.cpp says it."""
    left = list(replies)

    def reply(body):
        if body.get("tools"):
            error = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
            return StatusReply(500, {"error": error})
        return left.pop(0)

    return reply


BACKENDS = {
    "calls": lambda name, arguments: [calling(name, arguments), "It is made."],
    "hermes": lambda name, arguments: [written(HERMES, name, arguments), "It is made."],
    "fenced": lambda name, arguments: [written(FENCED, name, arguments), "It is made."],
    "takes no tools": lambda name, arguments: refusing([written(HERMES, name, arguments), "It is made."]),
}
"""What is behind the gateway: the replies for a call."""


def loop(given, replies, run, endpoint, **facts):
    """Runs the client on the replies, and gives what came of it, and the backend."""
    client, model, *_ = given

    async def scenario():
        async with FakeBackend(replies) as backend, endpoint(backend, **facts) as url:
            ran = await run(client, "Make it.", url=url, model=model)
            backend.assert_complete()
            return ran, backend

    return asyncio.run(scenario())


def assert_made(ran, room):
    assert (ran.code, ran.answer) == (0, "It is made."), ran
    assert (room.work / "made.txt").read_text("utf-8").strip() == "made"


every_loop = pytest.mark.parametrize("given", LOOPS, ids=lambda given: "-".join(given[:3]))


@every_loop
@pytest.mark.parametrize("behind", BACKENDS)
def test_a_loop_through_the_gateway(given, behind, run, room, endpoint):
    ran, backend = loop(given, BACKENDS[behind](*given[2:]), run, endpoint)
    assert_made(ran, room)
    assert {asked.path for asked in backend.requests if asked.method == "POST"} == {"/v1/chat/completions"}


@pytest.mark.parametrize("model", ["some-model", "gpt-5.5"])
def test_a_loop_over_a_websocket(model, run, room, gateway):
    """Codex opens one, and would ask over HTTP if it could not."""
    replies = BACKENDS["calls"]("exec_command", {"cmd": SHELL})

    async def scenario():
        def reply(_):
            connections.append(sorted(type(each).__name__ for each in served.server.server_state.connections))
            return replies.pop(0)

        async with FakeBackend(reply) as backend, gateway(backend) as served:
            return await run("codex, WebSocket", "Make it.", url=served.url, model=model)

    connections = []
    ran = asyncio.run(scenario())
    assert_made(ran, room)
    assert replies == []
    assert connections == [["WebSocketsSansIOProtocol"]] * 2


@pytest.mark.parametrize("given", [LOOPS[0], LOOPS[4]], ids=lambda given: given[0])
def test_a_loop_with_nothing_in_between(given, run, room, direct):
    ran, _ = loop(given, BACKENDS["calls"](*given[2:]), run, direct)
    assert_made(ran, room)


WAITS = [
    ("codex", "exec_command", {"cmd": "touch begun; sleep 600"}),
    ("claude", "Bash", {"command": "touch begun; sleep 600"}),
    ("qwen", "run_shell_command", {"command": "touch begun; sleep 600", "is_background": False}),
    ("gemini", "run_shell_command", {"command": "touch begun; sleep 600", "description": "Waits"}),
]


@pytest.mark.parametrize(("client", "tool", "arguments"), WAITS)
def test_a_client_that_is_stopped_leaves_nothing(client, tool, arguments, run, room):
    """The room asserts it."""

    async def scenario():
        async with FakeBackend([calling(tool, arguments)] * 9) as backend:
            running = asyncio.create_task(run(client, "Wait.", url=backend.url, model="some-model"))
            while not (room.work / "begun").exists():
                await asyncio.sleep(0.01)
                assert not running.done()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(scenario())
