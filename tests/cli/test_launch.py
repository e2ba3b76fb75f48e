"""`callboard launch` with a client that is a script; that the real clients work with it is in tests/clients."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.cli.conftest import COMMAND
from tests.tables import table
from typer.testing import CliRunner

from callboard.cli import app
from callboard.testing import FakeBackend, Silence, StatusReply

CLIENT = f"""#!{sys.executable}
import json, os, sys, time
files = {{name: open(os.path.join(folder, name)).read()
    for folder, _, names in os.walk(os.environ["XDG_STATE_HOME"]) for name in names if name.endswith("json")}}
print(json.dumps([sys.argv[1:], dict(os.environ), files]), flush=True)
if "stay" in sys.argv:
    time.sleep(1000)
sys.exit(7)
"""
UNKNOWN = "callboard: no server says how large the context window of mystery is; --context TOKENS sets it\n"
FOUND = "callboard: mystery has a context window of 32,768 tokens (/props of URL); --context sets another\n"
WAITED = "callboard: waiting for mystery to answer...\ncallboard: it answered after 0 s\n"


class Launched(NamedTuple):
    """A process of `callboard launch`, what it writes, and the backend."""

    process: asyncio.subprocess.Process
    out: Path
    err: Path
    backend: FakeBackend

    async def told(self):
        """What the client was told: its arguments, variables and files."""
        while not (text := self.out.read_text()).endswith("\n"):  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.01)
        return json.loads(text)

    async def ends(self):
        code = await self.process.wait()
        return code, self.out.read_text(), self.err.read_text()


@asynccontextmanager
async def launched(place, replies, *arguments, pages=None):
    """`callboard launch ARGUMENTS`, with a backend at URL and every client."""
    programs = place / "programs"
    programs.mkdir()
    for name in ("codex", "claude", "gemini", "qwen", "opencode"):
        (programs / name).write_text(CLIENT)
        (programs / name).chmod(0o755)
    out, err = place / "out", place / "err"
    async with FakeBackend(replies, models=["mystery", "other"], pages=pages or {}) as backend:
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "launch",
                *(each.replace("URL", backend.url) for each in arguments),
                env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(place)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            yield Launched(process, out, err, backend)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the client too, which stays if we are killed
            await process.wait()


def address(variables, files, arguments):
    """Where the client was told that the gateway is."""
    texts = [*variables.values(), *files.values(), *arguments]
    text = next(each for each in texts if "http://127.0.0.1:" in each and "/v1" in each)
    return urlsplit(text[text.index("http://127.0.0.1:") :].partition('"')[0])


@table(
    ("client", "told", "settings"),
    [
        (
            "codex",
            lambda arguments, variables, files: 'model="mystery"' in arguments and "callboard-models.json" in files,
            ['"context_window": 32768'],
        ),
        (
            "claude",
            lambda arguments, variables, files: arguments[0] == "--settings" and "mystery" in files["settings.json"],
            [
                '"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8192"',
                '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "24576"',
                '"API_TIMEOUT_MS": "3600000"',
                '"CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1800000"',
            ],
        ),
        (
            "qwen",
            lambda arguments, variables, files: variables["QWEN_CODE_SYSTEM_SETTINGS_PATH"] and "mystery" in str(files),
            ['"contextWindowSize": 32768', '"timeout": 3600000', '"streamIdleTimeoutMs": 3600000'],
        ),
        (
            "gemini",
            lambda arguments, variables, files: (
                variables["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] and "mystery" in str(files)
            ),
            ['"compressionThreshold": 0.015625'],
        ),
        (
            "opencode",
            lambda arguments, variables, files: variables["OPENCODE_CONFIG"] and "callboard/mystery" in str(files),
            ['"context": 32768', '"output": 8192'],
        ),
    ],
)
async def test_the_client_gets_its_settings_and_its_exit_code_is_ours(tmp_path_factory, client, told, settings):
    """The settings have the context window of the model, and wait for slow prompts."""
    place = tmp_path_factory.mktemp(client)
    pages = {"/props": {"default_generation_settings": {"n_ctx": 32768}}}
    async with launched(place, ["Hi!"], client, "--backend", "URL", "--", "-x", "a prompt", pages=pages) as shown:
        code, out, err = await shown.ends()
    assert (code, re.sub(r"(/props of) http://[^)]+", r"\1 URL", err)) == (7, FOUND + WAITED)
    arguments, variables, files = json.loads(out)
    assert arguments[-2:] == ["-x", "a prompt"]
    assert told(arguments, variables, files)
    assert [each for each in settings if each not in str(files)] == []
    assert not any(
        "CALLBOARD_API_KEY" not in each and variables.get("CALLBOARD_API_KEY", "?") in each for each in arguments
    )
    assert [*Path(os.environ["XDG_STATE_HOME"], "callboard/launch").iterdir()] == []


async def test_a_client_starts_if_the_context_window_of_the_model_is_unknown(tmp_path):
    async with launched(tmp_path, ["Hi!"], "codex", "--backend", "URL") as shown:
        code, out, err = await shown.ends()
    assert (code, err) == (7, UNKNOWN + WAITED)
    assert "context_window" not in json.loads(out)[2]["callboard-models.json"]


async def test_the_gateway_ends_with_the_client_and_wants_the_key(tmp_path):
    async with launched(tmp_path, ["Hi!", "Hello."], "codex", "--backend", "URL", "--", "stay") as shown:
        arguments, variables, files = await shown.told()
        port = address(variables, files, arguments).port
        ask = ["curl", "-s", f"http://127.0.0.1:{port}/v1/models"]
        assert b"mystery" not in subprocess.run(ask, check=True, capture_output=True).stdout  # noqa: ASYNC221  # at once
        key = f"Authorization: Bearer {variables['CALLBOARD_API_KEY']}"
        assert b"mystery" in subprocess.run([*ask, "-H", key], check=True, capture_output=True).stdout  # noqa: ASYNC221
        shown.process.send_signal(signal.SIGINT)  # the client's alone: this one was not asked by the terminal
        shown.process.send_signal(signal.SIGTERM)
        assert (await shown.ends())[0] == 128 + signal.SIGTERM
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", port)) != 0


async def test_the_gateway_ends_if_we_are_killed(tmp_path):
    async with launched(tmp_path, ["Hi!"], "codex", "--backend", "URL", "--", "stay") as shown:
        arguments, variables, files = await shown.told()
        port = address(variables, files, arguments).port
        shown.process.kill()
        async with asyncio.timeout(60):
            while True:
                with socket.socket() as connection:
                    if connection.connect_ex(("127.0.0.1", port)):
                        break
                await asyncio.sleep(0.01)


@table(
    ("replies", "arguments", "code", "message"),
    [
        ([], ["codx", "--backend", "URL"], 1, "codx: not a client; did you mean 'codex' or 'opencode'?"),
        (
            [],
            ["codex"],
            2,
            "--backend: no model; --backend URL names your model server, --local NAME a model on this machine",
        ),
        ([], ["codex", "--backend", "URL", "--mode", "nativ"], 2, "--mode: "),
        ([StatusReply(401)], ["codex", "--backend", "URL"], 1, "mystery: it does not answer: "),
        ([], ["codex", "--backend", "http://127.0.0.1:9/v1"], 2, "--model: the backend lists no model; name one"),
        ([], ["codex", "--backend", "URL", "--backend-key", "NOT_SET"], 1, ""),
    ],
)
async def test_what_does_not_start_is_said_in_a_line(tmp_path_factory, replies, arguments, code, message):
    async with launched(tmp_path_factory.mktemp("place"), replies, *arguments) as shown:
        ended, out, err = await shown.ends()
    line = err.splitlines()[-1]
    assert (ended, out) == (code, "")
    assert ("callboard: warning: http://127.0.0.1:9/v1: " in err) == ("http://127.0.0.1:9/v1" in arguments)
    assert line.startswith(f"callboard: {message}"), err


async def test_nothing_is_waited_for_if_nobody_wants_it(tmp_path):
    arguments = ["codex", "--backend", "URL", "--model", "other", "--no-wait", "--context", "9000"]
    async with launched(tmp_path, [Silence()], *arguments) as shown:
        code, out, err = await shown.ends()
        assert (code, err) == (7, "")
        assert 'model="other"' in json.loads(out)[0]
        assert [each.method for each in shown.backend.requests if each.method == "POST"] == []


def test_a_client_that_is_not_installed(invoke, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    result = invoke("launch", "claude", "--backend", "http://127.0.0.1:9/v1")
    assert str(result.exception) == "claude: not installed; npm install -g @anthropic-ai/claude-code"


@pytest.mark.parametrize("signs", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_can_be_stopped_while_it_waits(tmp_path, signs):
    async with launched(tmp_path, [Silence()], "codex", "--backend", "URL") as shown:
        while not any(each.method == "POST" for each in shown.backend.requests):  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.01)
        shown.process.send_signal(signs)
        assert (await shown.ends())[0] == 128 + signs
        await shown.backend.disconnected.wait()
    assert [*Path(os.environ["XDG_STATE_HOME"], "callboard/launch").iterdir()] == []


def test_the_gateway_gets_the_context_of_a_local_model(tmp_path_factory):
    programs = tmp_path_factory.mktemp("programs")
    (programs / "codex").write_text("")
    (programs / "codex").chmod(0o755)
    started = []

    def start(command, **_):
        started.append(command)
        raise OSError("no more processes")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs))
        patch.setattr("callboard.cli.launch.pull_with_progress", lambda _: None)
        patch.setattr("callboard.cli.launch.subprocess.Popen", start)
        CliRunner().invoke(app, ["launch", "codex", "--local", "tiny", "--context", "16000"])
    assert started[0][-4:] == ["--local", "tiny", "--context", "16000"]
