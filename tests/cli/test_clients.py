"""What `callboard codex`, `claude`, `gemini` and `qwen` print and write; that the clients work with it is in tests/clients."""

import json
import re
import socket
import tomllib

import pytest

from callboard.errors import CallerError, ProviderError
from callboard.providers.transport import Transport

SETTINGS = {
    "codex": ".codex/config.toml",
    "claude": ".claude/settings.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
}
STARTS = {"gemini": "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8282 GEMINI_API_KEY=secret-key gemini"}
"""Where it is more than the client's name."""
THERE = {
    "codex": 'model = "gpt-5.5" # mine\n\n[tui]\nsound = true\n',
    "claude": '{"env": {"ANTHROPIC_MODEL": "opus", "ANTHROPIC_API_KEY": "sk-secret"}, "hooks": {}}',
    "gemini": '{"model": {"name": "gemini-3-pro"}, "ui": {"theme": "dark"}}',
    "qwen": '{"model": {"name": "qwen3"}, "ui": {"theme": "dark"}}',
}
every_client = pytest.mark.parametrize("client", SETTINGS)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "QWEN_HOME"):
        monkeypatch.delenv(name, raising=False)
    connect = Transport.connect

    async def connect_to_others(transport, url):
        if ":8282" in url:  # this machine may have a gateway
            raise ProviderError("nobody is there")
        await connect(transport, url)

    monkeypatch.setattr(Transport, "connect", connect_to_others)
    return home


def read(client, text):
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def printed(result):
    """The command that starts the gateway, the files by their paths, and the command that starts the client."""
    parts = re.split(r"^# (.+)\n", result.stdout, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return (
        texts.pop("the gateway").strip(),
        {path: text[:-1] for path, text in texts.items() if "/" in path},
        texts["the client"].strip(),
    )


def refused(result):
    assert isinstance(result.exception, CallerError), result.exception
    return str(result.exception)


@every_client
def test_what_is_printed_is_what_is_written(client, invoke, home):
    arguments = [client, "--model", "m", "--backend", "http://127.0.0.1:8080", "--key", "secret-key"]
    serve, files, start = printed(invoke(*arguments))
    assert (serve, start) == ("callboard serve --backend http://127.0.0.1:8080/v1", STARTS.get(client, client))
    for path, text in files.items():
        assert "secret-key" in text or "models" in path or client in STARTS
    assert list(home.iterdir()) == []

    invoke(*arguments, "--write")
    for path, text in files.items():
        assert (home / path).read_text("utf-8") == text
        assert (home / path).stat().st_mode & 0o077 == 0  # it holds a key
    again = invoke(*arguments, "--write")
    assert again.stderr.count("already has these settings") == len(files)


@every_client
def test_other_settings_stay(client, invoke, home):
    path = home / SETTINGS[client]
    path.parent.mkdir()
    path.write_text(THERE[client], "utf-8")
    result = invoke(client, "--model", "m", "--write", input="y\n")
    assert "becomes" in result.stderr
    assert "sk-secret" not in result.stderr
    after = read(client, path.read_text("utf-8"))
    assert after.get({"codex": "tui", "claude": "hooks"}.get(client, "ui")) in (
        {"sound": True},
        {},
        {"theme": "dark"},
    )
    (backup,) = path.parent.glob("*.before-callboard-1")
    assert backup.read_text("utf-8") == THERE[client]
    assert str(backup) in result.stderr


@every_client
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_a_no_changes_nothing(client, answer, invoke, home):
    path = home / SETTINGS[client]
    path.parent.mkdir()
    path.write_text(THERE[client], "utf-8")
    result = invoke(client, "--model", "m", "--write", input=answer)
    assert result.exit_code == 1
    assert path.read_text("utf-8") == THERE[client]


def test_a_no_to_one_file_writes_none(invoke, home):
    path = home / SETTINGS["codex"]
    path.parent.mkdir()
    path.write_text(THERE["codex"], "utf-8")
    result = invoke("codex", "--model", "m", "--write", input="n\n")
    assert result.exit_code == 1
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_a_link_stays_one(invoke, home):
    """Many keep their settings elsewhere."""
    (home / ".claude").mkdir()
    (home / "dotfiles.json").write_text("{}", "utf-8")
    (home / ".claude/settings.json").symlink_to(home / "dotfiles.json")
    invoke("claude", "--model", "m", "--write", "--yes")
    assert (home / ".claude/settings.json").is_symlink()
    assert "ANTHROPIC_BASE_URL" in (home / "dotfiles.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        ("codex", "[model_providers]\ncallboard = 3\n", "by hand"),
        ("codex", "model =\n", "config.toml: not TOML"),
        ("claude", "{} // mine\n", "settings.json: not JSON"),
    ],
)
def test_a_file_that_cannot_be_changed(client, text, said, invoke, home):
    path = home / SETTINGS[client]
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    assert said in refused(invoke(client, "--model", "m", "--write", "--yes"))
    assert path.read_text("utf-8") == text


def test_where_the_client_looks(invoke, home, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    _, files, _ = printed(invoke("codex", "--model", "m"))
    assert [*files] == [
        str(home / "elsewhere/config.toml"),
        str(home / "elsewhere/callboard-models.json"),
    ]


def test_the_catalogue(invoke):
    """Codex gives a model that it does not know a tool for patches only if a catalogue says so."""
    _, text = printed(invoke("codex", "--model", "m", "--context", "8000"))[1].values()
    (model,) = json.loads(text)["models"]
    assert (model["slug"], model["apply_patch_tool_type"], model["context_window"]) == ("m", "freeform", 8000)
    assert "*** Begin Patch" in model["base_instructions"]


@pytest.mark.parametrize(
    ("gateway", "serve", "base"),
    [
        ("http://127.0.0.1:8282", "callboard serve --backend URL", "http://127.0.0.1:8282/v1"),
        ("http://127.0.0.1:9000/v1/", "callboard serve --backend URL --port 9000", "http://127.0.0.1:9000/v1"),
        ("https://models.example/some/v1", "callboard serve --backend URL", "https://models.example/some/v1"),
    ],
)
def test_the_gateway(gateway, serve, base, invoke):
    said, files, _ = printed(invoke("codex", "--model", "m", "--gateway", gateway))
    assert said == serve
    assert tomllib.loads(next(iter(files.values())))["model_providers"]["callboard"]["base_url"] == base


def test_a_gateway_that_answers_needs_no_start(invoke):
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        url = f"http://127.0.0.1:{gateway.getsockname()[1]}"
        assert "# the gateway" not in invoke("codex", "--model", "m", "--gateway", url).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "m", "--gateway", "127.0.0.1:8282"], "--gateway: 127.0.0.1:8282 is not a URL"),
        (["--model", "m", "--backend", "llama"], "--backend: llama is not a URL"),
        (["--gateway", "http://127.0.0.1:9/v1"], "no model is listed"),
    ],
)
def test_what_cannot_be(arguments, said, invoke):
    assert said in refused(invoke("qwen", *arguments))
