"""Those that stand between client and backend, and how each is started, as its own documentation has it.

Callboard runs from the environment of the bench, its peers from `.venv-relays` (versions: bench/relays.txt). Each
is a process of its own that gets no key, no proxy and an empty home.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-relays"
PINS = dict(
    line.split("==")
    for line in (ROOT / "bench/relays.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)
PATIENCE = 90.0
"""Seconds that one may take to start."""

TOOL = {
    "name": "edit",
    "description": "Replace a text in a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "new": {"type": "string"}}},
}


class Front(NamedTuple):
    """A wire that clients speak. `mark` is what a piece of text stands behind in its streams."""

    path: str
    mark: bytes
    asking: Callable[[str, bool], dict[str, object]]

    def body(self, model: str, *, stream: bool) -> bytes:
        return json.dumps({"model": model, **self.asking("Go on.", stream)}).encode()


def _chat(text: str, stream: bool) -> dict[str, object]:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    asked = {"messages": [{"role": "user", "content": text}], "tools": [{"type": "function", "function": TOOL}]}
    return {**asked, "stream": stream, **options}


def _responses(text: str, stream: bool) -> dict[str, object]:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"input": [message], "tools": [{"type": "function", **TOOL}], "stream": stream}


def _messages(text: str, stream: bool) -> dict[str, object]:
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
    return {"max_tokens": 4096, "messages": [{"role": "user", "content": text}], "tools": [tool], "stream": stream}


FRONTS = {
    "chat": Front("/v1/chat/completions", b'"content"', _chat),
    "responses": Front("/v1/responses", b'"delta"', _responses),
    "messages": Front("/v1/messages", b'"text"', _messages),
}


class Relay(NamedTuple):
    """`command` is given the backend's URL, a port, its home and the models. `prefix` is put before a model's name."""

    command: Callable[[str, int, Path, list[str]], list[str]]
    package: str = ""
    """Whose version is pinned; empty for us."""
    prefix: str = ""

    @property
    def installed(self) -> bool:
        return not self.package or (ENVIRONMENT / ".installed").exists()


def _callboard(backend: str, port: int, _: Path, __: list[str]) -> list[str]:
    script = Path(sys.executable).with_name("callboard")
    return [str(script), "serve", "--backend", f"{backend}/v1", "--port", str(port)]


def _codex_relay(backend: str, port: int, _: Path, __: list[str]) -> list[str]:
    upstream = ["--upstream", f"{backend}/v1", "--api-key", "sk-bench"]
    return [_script("codex-relay"), "--port", str(port), "--bind", "127.0.0.1", *upstream]


def _llm_rosetta(backend: str, port: int, home: Path, models: list[str]) -> list[str]:
    """It serves the models that it is told of by their names."""
    settings = {
        "providers": {"openai_chat": {"api_key": "sk-bench", "base_url": f"{backend}/v1"}},
        "models": dict.fromkeys(models, "openai_chat"),
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    (home / "config.jsonc").write_text(json.dumps(settings), "utf-8")
    return [_script("llm-rosetta-gateway"), "--config", str(home / "config.jsonc"), "--no-banner"]


def _litellm(backend: str, port: int, home: Path, _: list[str]) -> list[str]:
    """Behind `openai/` it would ask for /v1/responses itself; behind `deepseek/` it crosses, as the others do."""
    model = {"model": "deepseek/*", "api_base": f"{backend}/v1", "api_key": "sk-bench"}
    settings = {"model_list": [{"model_name": "deepseek/*", "litellm_params": model}]}
    (home / "config.yaml").write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    return [_script("litellm"), "--config", str(home / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]


def _script(name: str) -> str:
    return str(ENVIRONMENT / "bin" / name)


RELAYS = {
    "callboard": Relay(_callboard),
    "codex-relay": Relay(_codex_relay, "codex-relay"),
    "llm-rosetta": Relay(_llm_rosetta, "llm-rosetta"),
    "litellm": Relay(_litellm, "litellm", prefix="deepseek/"),
}


class Process:
    """One that runs, on `cores` from its first instruction, for some count them then; empty leaves it where we are."""

    def __init__(self, command: list[str], port: int, cores: set[int], home: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        self._log = home / "log"
        with self._log.open("wb") as log, _pinned(cores):
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    def resident(self) -> int:
        """Bytes of it and its children, as Linux counts them; 0 elsewhere."""
        return sum([_status(pid, "VmRSS") for pid in self._family()]) * 1024

    def spent(self) -> float:
        """CPU seconds until now, of its threads and its children's."""
        spent = 0
        for pid in self._family():
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with suppress(OSError):
                    spent += int(task.read_text("ascii").split()[0])
        return spent / 1e9

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _family(self) -> list[int]:
        pids = [self._process.pid]
        for pid in pids:
            with suppress(OSError):
                pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())
        return pids


@contextmanager
def _pinned(cores: set[int]) -> Iterator[None]:
    """What is started meanwhile is pinned too."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _status(pid: int, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def wait_for(process: Process) -> None:
    """Until it takes connections. Raises OSError where it does not."""
    end = time.monotonic() + PATIENCE
    port = int(process.url.rpartition(":")[2])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.gone or time.monotonic() > end:
                raise ProcessLookupError(process.said) from None
            time.sleep(0.1)
        else:
            return


@contextmanager
def started(command: Callable[[int, Path], list[str]], cores: set[int]) -> Iterator[Process]:
    """A process while it is measured. Raises OSError where it does not come up."""
    with TemporaryDirectory() as home:
        port = free_port()
        process = Process(command(port, Path(home)), port, cores, Path(home))
        try:
            wait_for(process)
            yield process
        finally:
            process.stop()
