"""Keys that an option names a place of, so that no process list shows them."""

import pytest
from tests.tables import table

from callboard.cli.options import read_key
from callboard.errors import CallerError
from callboard.servers.gateway import server
from callboard.servers.gateway.auth import digest
from callboard.servers.mcp import transports as http

KEY = "sk-1234567890123=="


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("EMPTY_KEY", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(f"{KEY}\n", "utf-8")
    (tmp_path / "empty").write_text("\n", "utf-8")
    (tmp_path / "binary").write_bytes(b"\xff")


@table("text", ["env:MY_KEY", "file:key", KEY])
def test_a_key_is_spelled_or_named(text):
    assert read_key(text) == KEY
    assert read_key(f"ann={text}") == f"ann={KEY}"


@table("text", ["env", "env:", "environment:MY_KEY", "sha256:00", "a:env:MY_KEY", "a=b=env:MY_KEY"])
def test_what_names_no_place_is_the_key(text):
    assert read_key(text) == text


PLACES = {
    "env:NOT_SET_HERE": "export NOT_SET_HERE=",
    "env:EMPTY_KEY": "holds no key",
    "file:nowhere": "No such file",
    "file:empty": "write the key into it",
    "file:binary": "is no text",
    "file:.": "Is a directory",
}
COMMANDS = {
    "serve": ["serve", "--backend", "http://127.0.0.1:9/v1", "--port", "0"],
    "mcp serve": ["mcp", "serve", "--ensembles", "io", "--transport", "http", "--port", "0"],
    "codex": ["codex", "--model", "m"],
    "qwen": ["qwen", "--model", "m"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_without_a_key_is_named(invoke, command, place):
    error = invoke(*COMMANDS[command], "--key", place).exception
    assert isinstance(error, CallerError)
    assert PLACES[place] in str(error)
    assert error.path == place  # the option has another name in each command


def test_the_gateway_takes_named_keys(invoke, monkeypatch):
    seen = []
    monkeypatch.setattr(server, "serve", lambda settings, *_, **__: seen.append(settings))
    invoke(*COMMANDS["serve"], "--key", "ann=env:MY_KEY", "--key", "bob=file:key")
    assert seen[0].keys == {"ann": digest(KEY), "bob": digest(KEY)}


def test_a_server_of_tools_takes_named_keys(invoke, monkeypatch):
    seen = []

    async def serve_http(*_, keys, **__):
        seen.append(keys)

    monkeypatch.setattr(http, "serve_http", serve_http)
    invoke(*COMMANDS["mcp serve"], "--key", "env:MY_KEY")
    assert seen == [[KEY]]


def test_a_client_s_file_gets_the_key_that_is_named(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert KEY in invoke("claude", "--model", "m", "--key", "env:MY_KEY").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_says_how_a_key_stays_out_of_ps(invoke, command):
    words = invoke(*command.split(), "--help", env={"COLUMNS": "200", "TERM": "dumb"}).output.replace("│", " ").split()
    assert "env:NAME or file:PATH hides it from ps" in " ".join(words)
