from __future__ import annotations

import subprocess

import pytest

from callboard import __version__

AT = ("--base-url", "http://127.0.0.1:1/v1", "--model", "m")


def test_version(invoke):
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"callboard {__version__}\n")


def test_without_arguments_there_is_help(invoke):
    result = invoke()
    for command in ("run", "tools", "models", "explain", "parse"):
        assert f" {command} " in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "Hi", *AT, "--tools", "nowhere.py"], "callboard: nowhere.py: no such file"),
        (["run", "Hi", *AT, "--tools", "nowhere:tool"], "callboard: nowhere:tool: no module 'nowhere'"),
        (["run", "Hi", *AT, "--mode", "magic"], "callboard: no mode 'magic'; there are native, structured, "),
        (["run", "Hi", "--model", "mystery"], "callboard: mystery: where is this model?; begin with its provider"),
        (
            ["run", "Hi", "--model", "local:nobody"],
            "callboard: no local model 'nobody'; `callboard models list` shows all",
        ),
        (["explain", "gpt-4o", "--mode", "magic"], "callboard: no mode 'magic'; there are native, structured, "),
        (["models", "path", "nobody"], "callboard: no local model 'nobody'; `callboard models list` shows all"),
        (["tools", "call", "x", "--tools", "nowhere.py"], "callboard: nowhere.py: no such file"),
        (["parse", "nowhere.txt"], "callboard: nowhere.txt: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(callboard, tmp_path, arguments, line):
    result = callboard(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_wrong_usage(callboard):
    result = callboard("run", "--no-such-option")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--no-such-option" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_has_gone(callboard):
    with subprocess.Popen(
        [*callboard.command, "parse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        child.stdin.write(b"x" * 1_000_000)
        child.stdin.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1


def test_help_costs_no_heavy_import(callboard):
    program = (
        "import sys, callboard.cli\n"
        "print([name for name in ('pydantic', 'griffe', 'aiohttp', 'xllamacpp') if name in sys.modules])"
    )
    ended = subprocess.run([callboard.command[0], "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_what_is_said_last_cannot_be_written(callboard):
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        ended = subprocess.run([*callboard.command, "dialects"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"callboard: No space left on device\n")
