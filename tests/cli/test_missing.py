"""What is missing is said before anything is downloaded, recorded or served."""

import runpy
import socket
import subprocess
import sys

import pytest

from callboard import __version__
from callboard.cli import models as cli_models
from callboard.errors import CallerError, NoSuchModel, ProviderError

LOCAL = "local:qwen2.5-coder-0.5b"
BEGINNING = {
    "run": ("run", "Hi", "--model", LOCAL),
    "debug": ("debug", "--symptoms", "test_add fails", "--model", LOCAL),
    "build": ("build", "--description", "a page", "--model", LOCAL),
    "chat": ("chat", "--model", LOCAL),
    "serve": ("serve", "--local", "qwen2.5-coder-0.5b"),
    "doctor": ("doctor", "--local", "qwen2.5-coder-0.5b"),
}


@pytest.fixture
def pulled(monkeypatch):
    """What would have been downloaded."""
    names = []

    def pull(name, **_):
        names.append(name)
        raise RuntimeError("downloaded")

    monkeypatch.setattr(cli_models, "pull_with_progress", pull)
    return names


@pytest.fixture
def nobody():
    """The URL of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def refused(result, kind=CallerError):
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


@pytest.mark.parametrize("arguments", BEGINNING.values(), ids=BEGINNING)
def test_without_the_extra_local_nothing_is_downloaded_recorded_or_served(arguments, invoke, pulled, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert "xllamacpp; pip install 'callboard[local]'" in refused(invoke(*arguments))
    assert (pulled, (data / "jobs").exists(), (data / "conversations").exists()) == ([], False, False)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("command", ["build", "debug", "triage", "chat"])
def test_a_coding_command_without_a_model_takes_one_that_can_do_it(command, invoke, pulled):
    result = invoke(command, "test_add fails")
    assert (str(result.exception), pulled) == ("downloaded", ["qwen2.5-coder-1.5b"])
    assert command == "chat" or "model: local:qwen2.5-coder-1.5b, which fixes small bugs" in result.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("uvicorn", ("serve", "--local", "qwen2.5-coder-0.5b"), "gateway"),
        ("starlette", ("doctor", "--local", "qwen2.5-coder-0.5b"), "gateway"),
        ("sqlalchemy", ("serve", "--local", "qwen2.5-coder-0.5b", "--store", "sqlite:///x"), "store"),
        ("mcp", ("mcp", "serve", "--ensembles", "io"), "mcp"),
        ("acp", ("chat", "--acp"), "acp"),
        ("tree_sitter", ("build", "a page"), "coding"),
        ("prometheus_client", ("worker", "--metrics", "0"), "otel"),
        ("xllamacpp", ("board", "--agui", "run"), "local"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(  # noqa: PLR0917 - half of them are fixtures
    module, arguments, extra, invoke, pulled, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    assert f"needs {module}; pip install 'callboard[{extra}]'" in refused(invoke(*arguments))
    assert pulled == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "Hi", "--model", LOCAL, "--mode", "magic"), "no mode 'magic'"),
        (("run", "Hi", "--model", LOCAL, "--base-url", "http://127.0.0.1:1"), "a local model has no base URL"),
        (("run", "Hi", "--model", f"{LOCAL},openai:gpt-4o"), "set OPENAI_API_KEY"),
        (("serve", "--local", "qwen2.5-coder-0.5b", "--mode", "magic"), "no mode 'magic'"),
    ],
)
def test_a_mistake_is_found_before_a_model_is_downloaded(arguments, said, invoke, pulled):
    assert said in refused(invoke(*arguments))
    assert pulled == []


@pytest.mark.parametrize("command", [("run", "Hi", "--model", "local:no.gguf"), ("serve", "--local", "no.gguf")])
def test_a_model_file_that_is_not_here_says_what_can_be_had(command, invoke):
    said = refused(invoke(*command), NoSuchModel)
    assert said.startswith("no.gguf: no such file; ")
    assert "callboard models list" in said


@pytest.mark.parametrize("command", [("debug", "--symptoms", "x"), ("chat",)])
def test_a_job_for_a_server_that_is_not_there_is_not_begun(command, invoke, nobody, data):
    result = invoke(*command, "--model", "m", "--base-url", nobody)
    assert refused(result, ProviderError) == f"{nobody}: cannot connect: Connection refused; is the server running?"
    assert not (data / "jobs").exists()


def test_a_gateway_says_at_its_start_which_backend_is_not_there(invoke, nobody, monkeypatch):
    monkeypatch.setattr("callboard.servers.gateway.server.serve", lambda *_, **__: None)
    result = invoke("serve", "--backend", nobody)
    assert result.exit_code == 0
    assert result.stderr == (
        f"callboard: warning: {nobody}: cannot connect: Connection refused; is the server running?\n"
    )


WITHOUT_MODULES = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from callboard.cli import main
for line in sys.stdin:
    sys.argv = ["callboard", *line.split()]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""
NOT_THERE = ("undo x", "debug x --base-url {0} --model m", "chat --base-url {0} --model m")


def test_where_the_system_has_no_posix_modules_each_command_says_so_in_one_line(nobody):
    commands = [*[each.format(nobody) for each in NOT_THERE], "mcp serve", "tools list --ensembles io"]
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODULES, "fcntl", "termios", "pwd", "grp", "resource"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ended.stderr.splitlines()
    said, codes = lines[:-1:2], lines[1:-1:2]
    assert len(said) == len(NOT_THERE) + 1, ended.stderr
    assert all(("fcntl" in line or "grp" in line) and "WSL" in line and "pip install" not in line for line in said)
    assert {*codes} == {"1"}
    assert (lines[-1], "read_file(" in ended.stdout) == ("0", True)


BARE = (
    "acp",
    "itsdangerous",
    "jinja2",
    "prometheus_client",
    "psycopg",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "websockets",
)


def test_without_any_extra_a_command_names_its_own():
    needed = {
        "serve --backend http://127.0.0.1:9": "gateway",
        "doctor --backend http://127.0.0.1:9": "gateway",
        "board": "board,jobs",
        "board --link": "board",
        "chat": "coding",
        "build x": "coding",
        "worker": "jobs",
    }
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODULES, *BARE],
        input="\n".join(needed),
        capture_output=True,
        text=True,
        check=True,
    )
    said = ended.stderr.splitlines()[::2]
    assert [line.partition("callboard[")[2].removesuffix("]'") for line in said] == [*needed.values()], ended.stderr


def test_without_the_extra_jobs_the_board_names_it_and_a_link_is_had():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODULES, "croniter", "sqlalchemy", "psycopg"],
        input="board\nboard --link",
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr.splitlines() == [
        "callboard: a durable job needs sqlalchemy; pip install 'callboard[jobs]'",
        "1",
        "0",
    ]
    assert "/board/login?token=" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (("board",), "board,jobs"),
        (("board", "--link"), "board"),
        (("serve", "--backend", "http://127.0.0.1:9", "--board", "--agui", "run"), "gateway,board,jobs"),
        (("worker", "--metrics", "0"), "jobs,otel"),
    ],
)
def test_all_missing_extras_are_named_at_once(arguments, extras, invoke, monkeypatch):
    for module in ("itsdangerous", "croniter", "uvicorn", "prometheus_client"):
        monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install 'callboard[{extras}]'" in refused(invoke(*arguments))


def test_the_package_can_be_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["callboard", "--version"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("callboard", run_name="__main__")
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out == f"callboard {__version__}\n"
