"""What the shell completes behind a word."""

import pytest
from tests.cli.durable import make


@pytest.fixture
def completed(invoke):
    """What a shell is given for the last of the words."""

    def completed(*words):
        line = " ".join(["callboard", *words])
        environment = {"_CALLBOARD_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
        return invoke(env=environment, prog_name="callboard").stdout.split()

    return completed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--model", "ollama"), ["ollama:"]),
        (("run", "--model", "local:qwen2.5-coder-1"), ["local:qwen2.5-coder-1.5b"]),
        (("build", "--model", "local:qwen2.5-coder-1"), ["local:qwen2.5-coder-1.5b"]),
        (("serve", "--local", "qwen2.5-coder-1"), ["qwen2.5-coder-1.5b"]),
        (("models", "pull", "qwen2.5-coder-1"), ["qwen2.5-coder-1.5b"]),
        (("dialects", "herm"), ["hermes"]),
        (("serve", "--dialect", "herm"), ["hermes"]),
        (("explain", "m", "--mode", "par"), ["parsed"]),
        (("chat", "--mode", "nat"), ["native"]),
        (("build", "--effort", "m"), ["minimal", "medium", "max"]),
        (("tools", "call", "read_f"), ["read_file"]),
    ],
)
def test_values_are_completed(completed, words, expected):
    assert completed(*words) == expected


def test_jobs_and_chats_are_completed(completed):
    chat = make(lambda store: store.create("chat", description="Hi")).id
    build = make(lambda store: store.create("build", description="A page")).id
    assert {*completed("jobs", "show", "20")} == {chat, build}
    assert completed("undo", chat[:-1]) == [chat]
    assert completed("chat", "--resume", "20") == [chat]


def test_servers_are_completed(completed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    (tmp_path / "callboard" / "callboard.toml").write_text('[mcp.weather]\ncommand = ["weather"]\n')
    assert completed("mcp", "tools", "wea") == ["weather"]


def test_what_cannot_be_read_is_not_offered(completed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    (tmp_path / "callboard" / "callboard.toml").write_text("not TOML")
    assert completed("mcp", "tools", "wea") == []
