"""What each client sends has the shape of its vector, with every text of its maker replaced.

The vectors are in `vectors/clients`: the first request of a run, and its last, which tells what the model said, its
calls and their results. `pytest tests/clients --record` writes them anew.
"""

import asyncio
import json
import re
from base64 import b64decode
from pathlib import Path

import pytest

from callboard.core import (
    InvocationEnded,
    InvocationStarted,
    ReasoningPiece,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.testing import FakeBackend

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "clients"
PICTURE = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
"""A PNG of one pixel."""
SHELL = "printf made > made.txt"
PATCH = "*** Begin Patch\n*** Add File: patched.txt\n+made\n*** End Patch\n"
CODE = "const seen = await tools.view_image({path: 'dot.png'}); text('seen'); image(seen);"

# The calls of each reply, the last of which has none. A path in the work directory begins with WORK.
WORK = "/home/someone/project"
DOT = {"file_path": f"{WORK}/dot.png"}
CLAUDE = [
    [("Bash", {"command": SHELL, "description": "Makes it"}), ("Read", DOT)],
    [("ToolSearch", {"query": "select:WebFetch"})],
    [],
]
QWEN = [
    [("run_shell_command", {"command": SHELL, "is_background": False}), ("read_file", DOT)],
    [("tool_search", {"query": "select:web_fetch"})],
    [],
]
GEMINI = [
    [("run_shell_command", {"command": SHELL, "description": "Makes it"}), ("read_file", DOT)],
    [("list_directory", {"dir_path": WORK})],
    [],
]
RUNS = [
    ("codex", "some-model", [
        [("exec_command", {"cmd": SHELL}), ("view_image", {"path": "dot.png"})],
        [("multi_agent_v1__close_agent", {"target": "nobody"})],
        [],
    ]),
    ("codex", "gpt-5.5", [
        [("apply_patch", {"input": PATCH}), ("exec_command", {"cmd": SHELL})],
        [("tool_search", {"query": "close_agent target of the agent to close", "limit": 1})],
        [("multi_agent_v1__close_agent", {"target": "nobody"})],
        [],
    ]),
    ("codex", "gpt-6-sol", [
        [("functions__exec", {"input": CODE})],
        [("collaboration__list_agents", {})],
        [],
    ]),
    ("claude", "some-model", CLAUDE),
    ("claude", "claude-sonnet-4-5", CLAUDE),
    ("gemini", "some-model", GEMINI),
    ("gemini", "gemini-2.5-pro", GEMINI),
    ("qwen", "some-model", QWEN),
    ("qwen", "qwen3-vl-plus", QWEN),
]  # fmt: skip


@pytest.mark.parametrize("given", RUNS, ids=lambda given: f"{given[0]}-{given[1]}")
def test_what_is_sent(given, run, room, request):
    client, model, rounds = given
    (room.work / "dot.png").write_bytes(PICTURE)
    said = [reply(number, model, calls, room.work) for number, calls in enumerate(rounds)]

    async def scenario():
        async with FakeBackend(said) as backend:
            ran = await run(client, PROMPT, url=backend.url, model=model)
            backend.assert_complete()
            assert ran.answer == f"Step {len(rounds) - 1}.", ran
            return backend.requests

    first, *_, last = asyncio.run(scenario())
    plain = Plain(room)
    sent = {
        "client": client,
        "path": first.path,
        "headers": plain.headers(first.headers),
        "first": plain.value(first.body),
        "last": plain.value(last.body),
    }
    vector = VECTORS / f"{client}-{model.removeprefix(f'{client}-')}.json"
    if request.config.getoption("--record"):
        vector.write_text(f"{json.dumps(sent, indent=1)}\n", "utf-8")
    assert sent == json.loads(vector.read_text("utf-8"))


def reply(number, model, calls, work):
    """A thought, a text, and the calls."""
    events = [ReplyStarted(), ReasoningPiece("I think.", f"seal-{number}", model), TextPiece(f"Step {number}.")]
    for index, (name, arguments) in enumerate(calls):
        raw = json.dumps(arguments).replace(WORK, str(work))
        called = (index, f"call_{number}_{index}", name)
        events += [InvocationStarted(*called), InvocationEnded(*called, json.loads(raw), raw)]
    return [*events, Usage(input=11, output=7), ReplyEnded("invocations" if calls else "stop")]


PROMPT = "Make it."
OURS = re.compile(r"Make it\.|Step \d\.|I think\.|seen|call_\d_\d|\w+_fake-\d_\d")
WORD = re.compile(r"[\w$./:*-]*")
GRAMMAR = "start: /(.|\\n)+/"
KEPT = frozenset(
    {
        "$schema",
        "arguments",
        "context",
        "data",
        "detail",
        "display",
        "effort",
        "encrypted_content",
        "execution",
        "file_path",
        "format",
        "image_url",
        "keep",
        "media_type",
        "model",
        "name",
        "namespace",
        "pattern",
        "phase",
        "role",
        "mimeType",
        "mode",
        "responseMimeType",
        "signature",
        "status",
        "summary",
        "syntax",
        "thinkingLevel",
        "thoughtSignature",
        "tool_choice",
        "tool_name",
        "ttl",
        "type",
        "url",
        "verbosity",
    }
)
"""Where strings are words of the wire, or what we said ourselves."""
LISTS = frozenset({"enum", "include", "required", "search_content_types", "type"})
HEADERS = frozenset(
    {
        "accept", "anthropic-beta", "anthropic-dangerous-direct-browser-access", "anthropic-version", "authorization",
        "content-type", "originator", "x-api-key", "x-goog-api-key", "x-app", "x-codex-beta-features",
        "x-openai-internal-codex-responses-lite",
    }
)  # fmt: skip
TRANSPORT = frozenset({"accept-encoding", "accept-language", "connection", "content-length", "host", "sec-fetch-mode"})


class Plain:
    """What a client sent, in words of ours: texts, identifiers and paths by number, the same ones the same."""

    def __init__(self, room):
        self._paths = [(str(room.work), WORK), (str(room.home), WORK.rpartition("/")[0])]
        self._numbers = {}

    def headers(self, headers):
        agent, rest = headers["User-Agent"].partition(" ")[0], {}
        for name, value in sorted((name.lower(), value) for name, value in headers.items()):
            if name not in TRANSPORT and not name.startswith("x-stainless-"):
                rest[name] = value if name in HEADERS else "…"
        return rest | {"user-agent": agent}

    def value(self, value, key=""):
        match value:
            case {"type": "tool_use", "input": given}:  # by us
                return {**value, "input": self._known(given)}
            case {"functionCall": {"args": _}}:
                return self._known(value)
            case {"type": "tool_search_call"}:
                return {name: self._known(each) for name, each in value.items()}
            case dict():
                members = sorted(value.items()) if key == "client_metadata" else value.items()
                return {name: self.value(each, key if key == "client_metadata" else name) for name, each in members}
            case list():
                return [self.value(each, key) for each in value]
            case str() if key == "definition":
                return GRAMMAR
            case str() if key in KEPT or OURS.fullmatch(value):
                return self._known(value)
            case str() if key in LISTS | {"const", "default"} and WORD.fullmatch(value):
                return value
            case str() if key == "input" and value in {PATCH, CODE}:
                return value
            case str():
                return self._numbered(value, key)
        return value

    def _known(self, value):
        said = json.dumps(value)
        for path, plain in self._paths:
            said = said.replace(path, plain)
        return json.loads(said)

    def _numbered(self, value, key):
        kind, end = (f"{value.partition('_')[0]}_", "") if key == "id" else (f"{key} ", ".")
        among = self._numbers.setdefault(kind, {})
        return f"{kind}{among.setdefault(value, len(among) + 1)}{end}"
