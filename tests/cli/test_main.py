import os
import shlex
import subprocess

import pytest
from tests.tables import table
from typer.main import get_command

from callboard import __version__
from callboard.cli import _FIRST_STEPS, app
from callboard.cli.command_group import summary

AT = ("--base-url", "http://127.0.0.1:1/v1", "--model", "m")
URL = "--base-url: 127.0.0.1:1/v1 is not a URL that a provider can be asked at; "


def test_version(invoke):
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"callboard {__version__}\n")


def test_without_arguments_it_shows_what_people_do_first(invoke):
    result = invoke()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\ncallboard --help lists all commands.\n")
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_each_of_the_five_first_commands_has_its_options():
    commands = get_command(app).commands
    lines = [line.split("#")[0] for line in _FIRST_STEPS.splitlines() if line.startswith("  callboard ")]
    for line in lines:
        _, name, *arguments = shlex.split(line)
        assert commands[name].load().make_context(name, arguments).params
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["run", "Hi", *AT, "--tools", "nowhere.py"], 1, "nowhere.py: no such file"),
        (["run", "Hi", *AT, "--tools", "nowhere:tool"], 1, "nowhere:tool: no module 'nowhere'"),
        (["run", "Hi", "--model", "mystery"], 1, "mystery: no provider is named; begin with its provider (openai:, "),
        (["run", "Hi", "--model", "opnai:x"], 1, "opnai:x: no provider is named; did you mean openai:x? Else begin"),
        (
            ["run", "Hi", "--model", "llama3.2:3b"],
            1,
            "llama3.2:3b: no provider is named; did you mean ollama:llama3.2:3b? Else begin",
        ),
        (
            ["run", "Hi", "--model", "phi4:latest"],
            1,
            "phi4:latest: no provider is named; did you mean ollama:phi4:latest? Else begin",
        ),
        (["run", "Hi", "--model", "local:nobody"], 1, "no local model 'nobody'; `callboard models list` shows all"),
        (["models", "path", "nobody"], 1, "no local model 'nobody'; `callboard models list` shows all"),
        (["tools", "call", "x", "--tools", "nowhere.py"], 1, "nowhere.py: no such file"),
        (["parse", "nowhere.txt"], 1, "nowhere.txt: No such file or directory"),
        (["run", "Hi", *AT, "--mode", "magic"], 2, "--mode: no mode 'magic'; there are native, structured, "),
        (["explain", "gpt-4o", "--mode", "magic"], 2, "--mode: no mode 'magic'; there are native, structured, "),
        (["serve", "--local", "x", "--mode", "magic"], 2, "--mode: no mode 'magic'; there are native, "),
        (["serve", "--local", "x", "--dialect", "pig_latin"], 2, "--dialect: "),
        (["serve", "--local", "x", "--backend-wire", "morse"], 2, "--backend-wire: "),
        (["serve", "--backend", "llama"], 2, "--backend: llama is not a URL that a provider can be asked at; did you "),
        (["doctor", "--backend", "llama"], 2, "--backend: llama is not a URL that a provider can be asked at; did you"),
        (["serve"], 2, "--backend: no backend; set its URL, or --local NAME"),
        (["debug"], 2, "--symptoms: missing 'symptoms' in input; write callboard debug \"...\", or give --issue"),
        (["build"], 2, "--description: missing 'description' in input; write callboard build \"...\""),
        (
            ["review"],
            2,
            "--branch: missing 'branch' in input; write callboard review \"...\", or give --pr",
        ),
        (["triage"], 2, "--description: missing 'description' in input; "),
        (["build", "x", "--access", "all"], 2, "--access: no access 'all'; there are "),
        (["build", "x", "--workflow", "long"], 2, "--workflow: no workflow 'long'; there are phased and short"),
        (["chat", *AT, "--access", "all"], 2, "--access: no access 'all'; there are "),
        (["run", "Hi", *AT, "--fork", "a@b"], 2, "--fork a@b: the round must be a number"),
        (["run", "Hi", "--model", "m", "--base-url", "127.0.0.1:1/v1"], 2, f"{URL}did you mean http://127.0.0.1:1/v1?"),
        (["chat", "--model", "m", "--base-url", "127.0.0.1:1/v1"], 2, f"{URL}did you mean http://127.0.0.1:1/v1?"),
        (
            ["codex", "--gateway", "here"],
            2,
            "--gateway: here is not a URL that a provider can be asked at; did you mean http://here?",
        ),
    ],
)
def test_a_mistake_is_one_line_and_wrong_usage_is_two(typed, tmp_path, arguments, code, line):
    result = typed(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.startswith(f"callboard: {line}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--no-such-option"),
        ("run",),
        ("debug", "test_add fails", "--symptoms", "test_add fails"),
        ("tools", "list"),
        ("serve", "--local", "x", "--log-level", "loud"),
    ],
)
def test_wrong_usage_is_explained(typed, tmp_path, arguments):
    result = typed(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Usage: callboard" in result.stderr


def test_a_reader_that_has_gone(callboard):
    with subprocess.Popen(
        [*callboard.command, "parse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        child.stdin.write(b"x" * 1_000_000)
        child.stdin.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1


@table("command", get_command(app).commands.values(), ids=lambda command: command.name)
def test_the_summary_of_a_command_is_that_of_its_own_help(command):
    assert command.help == summary(command.load().help)


def test_what_is_said_last_cannot_be_written(callboard):
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        ended = subprocess.run([*callboard.command, "dialects"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"callboard: No space left on device\n")


@pytest.mark.parametrize("arguments", [["dialects"], ["explain", "nowhere.json"]], ids=["output", "errors"])
def test_a_terminal_that_has_gone(callboard, arguments):
    master, slave = os.openpty()
    os.close(master)
    with open(slave, "wb") as terminal:  # noqa: PTH123  # a device
        ended = subprocess.run([*callboard.command, *arguments], stdout=terminal, stderr=terminal, check=False)
    assert ended.returncode == 130
