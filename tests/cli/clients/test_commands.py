"""What `callboard codex`, `claude`, `gemini` and `qwen` print and write; that the clients work with it is in tests/clients."""

from __future__ import annotations

import json
import tomllib

import pytest

from callboard.errors import CallerError

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
    return home


def read(client, text):
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def refused(result):
    assert isinstance(result.exception, CallerError), result.exception
    return str(result.exception)


@every_client
def test_what_is_printed_is_what_is_written(client, invoke, home):
    arguments = [client, "--model", "m", "--backend", "http://127.0.0.1:8080", "--key", "secret-key"]
    told = json.loads(invoke(*arguments, "--json").stdout)
    assert (told["serve"], told["start"]) == (
        "callboard serve --backend http://127.0.0.1:8080/v1",
        STARTS.get(client, client),
    )
    plain = invoke(*arguments).stdout
    for file in told["files"]:
        assert f"# {file['path']}\n{file['text']}" in plain
        assert "secret-key" in file["text"] or "models" in file["path"] or client in STARTS
    assert list(home.iterdir()) == []

    invoke(*arguments, "--write")
    for file in told["files"]:
        assert (home / file["path"]).read_text("utf-8") == file["text"]
        assert (home / file["path"]).stat().st_mode & 0o077 == 0  # a key stands in it
    again = invoke(*arguments, "--write")
    assert again.stderr.count("says so already") == len(told["files"])


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


@every_client
@pytest.mark.parametrize("there", [True, False])
def test_what_was_there_is_restored(client, there, invoke, home):
    path = home / SETTINGS[client]
    if there:
        path.parent.mkdir()
        path.write_text(THERE[client], "utf-8")
    for model in ("m", "another"):
        assert invoke(client, "--model", model, "--write", "--yes").exit_code == 0
    refusal = invoke(client, "--restore", input="n\n")
    assert (refusal.exit_code, path.exists()) == (1, True)
    result = invoke(client, "--restore", "--yes")
    assert (result.exit_code, str(path) in result.stderr) == (0, True)
    assert [each.name for each in path.parent.iterdir()] == ([path.name] if there else [])
    if there:
        assert path.read_text("utf-8") == THERE[client]
    assert "nothing to restore" in refused(invoke(client, "--restore", "--yes"))


def test_claude_code_is_started_once_without_a_file(invoke, home, monkeypatch):
    started = []
    claude = home / "bin/claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/sh\n", "utf-8")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", str(claude.parent))
    monkeypatch.setattr("os.execve", lambda *given: started.append(given))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    invoke("claude", "--model", "m", "--run", "--", "-p", "Hi")
    ((program, arguments, environment),) = started
    assert (program, arguments) == (str(claude), [str(claude), "-p", "Hi"])
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8282"
    assert (environment["ANTHROPIC_MODEL"], environment["ANTHROPIC_API_KEY"]) == ("m", "")
    assert [*home.iterdir()] == [claude.parent]


def test_claude_code_is_not_taken_from_the_repository_of_this_directory(invoke, tmp_path, monkeypatch):
    """A model may have put it there."""
    (tmp_path / "repository/.git").mkdir(parents=True)
    (tmp_path / "repository/claude").write_text("#!/bin/sh\n", "utf-8")
    (tmp_path / "repository/claude").chmod(0o755)
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setattr("os.execve", lambda *given: pytest.fail(f"started {given}"))
    for path in (".", "", str(tmp_path / "repository")):
        monkeypatch.setenv("PATH", path)
        assert "Claude Code is not installed" in refused(invoke("claude", "--model", "m", "--run"))


def test_claude_code_that_is_not_installed_is_named(invoke, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "Claude Code is not installed; npm install" in refused(invoke("claude", "--model", "m", "--run"))


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
    told = json.loads(invoke("codex", "--model", "m", "--json").stdout)
    assert [file["path"] for file in told["files"]] == [
        str(home / "elsewhere/config.toml"),
        str(home / "elsewhere/callboard-models.json"),
    ]


@every_client
def test_offline(client, invoke):
    bare, alone = (
        json.loads(invoke(client, "--model", "m", "--json", *more).stdout)["files"][0]["text"]
        for more in ([], ["--offline"])
    )
    words = {
        "codex": ["check_for_update_on_startup = false", "[analytics]\nenabled = false", "plugins = false"],
        "claude": ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"],
        "gemini": ['"enableAutoUpdate": false', '"usageStatisticsEnabled": false'],
        "qwen": ['"enableAutoUpdate": false', '"usageStatisticsEnabled": false'],
    }[client]
    assert [word in bare for word in words] == [False] * len(words)
    assert [word in alone for word in words] == [True] * len(words)


def test_the_catalogue(invoke):
    """Codex gives a model that it does not know a tool for patches only if a catalogue says so."""
    _, file = json.loads(invoke("codex", "--model", "m", "--context", "8000", "--json").stdout)["files"]
    (model,) = json.loads(file["text"])["models"]
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
    told = json.loads(invoke("codex", "--model", "m", "--gateway", gateway, "--json").stdout)
    assert told["serve"] == serve
    assert tomllib.loads(told["files"][0]["text"])["model_providers"]["callboard"]["base_url"] == base


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "m", "--gateway", "127.0.0.1:8282"], "--gateway: not a URL"),
        (["--model", "m", "--backend", "llama"], "--backend: not a URL"),
        (["--gateway", "http://127.0.0.1:9/v1"], "which model"),
    ],
)
def test_what_cannot_be(arguments, said, invoke):
    assert said in refused(invoke("qwen", *arguments))
